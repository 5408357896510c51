//! A mock editor: an LSP client that talks to `pkgtool lsp` over its standard streams.
//!
//! A thread reads all messages of the server. Waiting for a message fails the test after a timeout.

#![expect(
    clippy::needless_pass_by_value,
    reason = "arguments are created at the call"
)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::run::pkgtool;

/// Maximum time to wait for an answer; generous, for busy machines.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running language server and the messages received from it.
pub(crate) struct Editor {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    passed: Vec<Value>,
    next_id: i64,
    /// The capabilities that the server announced.
    pub(crate) capabilities: Value,
}

/// Returns the `file:` URI of a path.
pub(crate) fn uri(path: impl AsRef<Path>) -> String {
    format!("file://{}", path.as_ref().display())
}

/// Returns the client capabilities of a modern editor.
pub(crate) fn able() -> Value {
    json!({
        "general": { "positionEncodings": ["utf-16", "utf-8"] },
        "workspace": {
            "workspaceEdit": { "documentChanges": true, "resourceOperations": ["rename"] },
            "didChangeWatchedFiles": { "dynamicRegistration": true },
        },
        "textDocument": {
            "hover": { "contentFormat": ["markdown"] },
            "completion": { "completionItem": { "snippetSupport": true } },
            "codeAction": { "codeActionLiteralSupport": { "codeActionKind": { "valueSet": [] } } },
            "documentSymbol": { "hierarchicalDocumentSymbolSupport": true },
            "publishDiagnostics": {
                "tagSupport": { "valueSet": [1, 2] },
                "codeDescriptionSupport": true,
            },
        },
    })
}

/// Returns the capabilities of an editor that pulls diagnostics.
pub(crate) fn asking() -> Value {
    let mut able = able();
    able["textDocument"]["diagnostic"] = json!({ "dynamicRegistration": false });
    able["workspace"]["diagnostics"] = json!({ "refreshSupport": true });
    able
}

impl Editor {
    /// Starts a server without sending it anything.
    pub(crate) fn start() -> Self {
        let mut command = pkgtool(["lsp"]).into_command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let output = child.stdout.take().expect("a pipe");
        let (sender, messages) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            while let Some(message) = read(&mut output) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self {
            input: child.stdin.take(),
            child,
            messages,
            passed: Vec::new(),
            next_id: 0,
            capabilities: Value::Null,
        }
    }

    /// Starts a server and opens `folder`, with these client capabilities.
    pub(crate) fn with(folder: &Path, capabilities: Value) -> Self {
        let mut editor = Self::start();
        let answer = editor.ask(
            "initialize",
            json!({
                "processId": null,
                "rootUri": null,
                "workspaceFolders": [{ "uri": uri(folder), "name": "packages" }],
                "capabilities": capabilities,
            }),
        );
        editor.capabilities = answer["capabilities"].clone();
        editor.tell("initialized", json!({}));
        editor
    }

    /// Starts a server and opens `folder`, with the capabilities of a modern editor.
    pub(crate) fn of(folder: &Path) -> Self {
        Self::with(folder, able())
    }

    /// Sends raw bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("open");
        // The caller notices a server that has already ended.
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    /// Sends any message.
    pub(crate) fn send(&mut self, message: &Value) {
        let body = message.to_string();
        let bytes = format!("Content-Length: {}\r\n\r\n{body}", body.len());
        self.raw(bytes.as_bytes());
    }

    /// Sends a notification.
    pub(crate) fn tell(&mut self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Sends a request and returns its id.
    pub(crate) fn begin(&mut self, method: &str, params: Value) -> i64 {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Waits for the answer to a request and returns all of it.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: i64) -> Value {
        self.wait(&format!("the answer to {id}"), |message| {
            message["id"] == id && message.get("method").is_none()
        })
    }

    /// Sends a request and returns its result.
    #[track_caller]
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params);
        let answer = self.answer(id);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Opens a document.
    pub(crate) fn open(&mut self, path: &Path, text: &str) {
        self.tell(
            "textDocument/didOpen",
            json!({ "textDocument": {
                "uri": uri(path), "languageId": "json", "version": 1, "text": text,
            } }),
        );
    }

    /// Replaces the text of a document.
    pub(crate) fn replace(&mut self, path: &Path, version: i64, text: &str) {
        self.tell(
            "textDocument/didChange",
            json!({
                "textDocument": { "uri": uri(path), "version": version },
                "contentChanges": [{ "text": text }],
            }),
        );
    }

    /// Waits for the next published findings of a document, of this version if one is given.
    #[track_caller]
    pub(crate) fn findings(&mut self, path: &Path, version: Option<i64>) -> Vec<Value> {
        let uri = uri(path);
        let message = self.wait(&format!("findings of {uri}"), |message| {
            message["method"] == "textDocument/publishDiagnostics"
                && message["params"]["uri"] == *uri
                && version.is_none_or(|version| message["params"]["version"] == version)
        });
        let findings = message["params"]["diagnostics"].as_array();
        findings.expect("an array").clone()
    }

    /// Returns the codes of the next published findings.
    #[track_caller]
    pub(crate) fn codes(&mut self, path: &Path, version: Option<i64>) -> Vec<String> {
        let findings = self.findings(path, version);
        let codes = findings
            .iter()
            .map(|one| one["code"].as_str().expect("a code").to_owned());
        codes.collect()
    }

    /// Pulls the diagnostics of a document; `known` is the previous result id.
    #[track_caller]
    pub(crate) fn report(&mut self, path: &Path, known: Option<&Value>) -> Value {
        let mut params = json!({ "textDocument": { "uri": uri(path) }, "identifier": "pkgtool" });
        if let Some(known) = known {
            params["previousResultId"] = known.clone();
        }
        self.ask("textDocument/diagnostic", params)
    }

    /// Sends a request about the position that `|` marks in `marked`. The document itself does not
    /// contain the `|`.
    #[track_caller]
    pub(crate) fn ask_at(&mut self, method: &str, path: &Path, marked: &str) -> Value {
        let offset = marked.find('|').expect("a mark");
        let text = marked.replacen('|', "", 1);
        self.open(path, &text);
        self.findings(path, None);
        let line = text[..offset].matches('\n').count();
        let start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
        let character = text[start..offset].encode_utf16().count();
        self.ask(
            method,
            json!({
                "textDocument": { "uri": uri(path) },
                "position": { "line": line, "character": character },
            }),
        )
    }

    /// Returns the first message that `fits`, among those received and those to come.
    #[track_caller]
    pub(crate) fn wait(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed.iter().position(&fits) {
            return self.passed.remove(at);
        }
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) if fits(&message) => return message,
                Ok(message) => self.passed.push(message),
                Err(error) => panic!("{what}: {error}; received {:?}", self.passed),
            }
        }
    }

    /// Counts the received messages of this method that no test code waited for.
    pub(crate) fn passed(&self, method: &str) -> usize {
        self.passed
            .iter()
            .filter(|one| one["method"] == method)
            .count()
    }

    /// Closes the server's input.
    pub(crate) fn hang_up(&mut self) {
        self.input = None;
    }

    /// Shuts the server down as the protocol requires and returns its exit code.
    #[track_caller]
    pub(crate) fn quit(mut self) -> i32 {
        assert_eq!(self.ask("shutdown", Value::Null), Value::Null);
        self.tell("exit", Value::Null);
        self.code()
    }

    /// Waits for the end of the server and returns its exit code.
    #[track_caller]
    pub(crate) fn code(&mut self) -> i32 {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait().expect("a child") {
                return status.code().expect("no signal ended it");
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("the server did not end");
    }

    /// Returns the process id of the server.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(output: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    output.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).expect("the server writes JSON"))
}
