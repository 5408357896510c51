//! The main loop of the server: processes messages, and sends answers and findings.
//!
//! Invariant: only this loop writes to the output. Each request gets exactly one answer, even if
//! its method is unknown, if it comes too early or too late, or if its handler panics.

use std::collections::HashMap;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::action::{self, ActionRequest};
use super::checker::Checker;
use super::client::EditorClient;
use super::document::{DocumentText, Documents, OpenDocument, TextChange};
use super::finding;
use super::job::{CheckJob, CheckOutcome};
use super::lost::UnknownTexts;
use super::mailbox::{Mailbox, ServerEvent};
use super::message::{self, ErrorCode, Incoming, RequestError};
use super::parent::ParentProcess;
use super::pull::{DiagnosticRequest, WaitingRequests};
use super::rename;
use super::text::{Position, Range, Text};
use super::view::DocumentView;
use super::watch::{self, Dependencies};
use super::{Ending, ServerOptions, capabilities, completion, hover, symbol, uri};
use crate::validate::ValidationSession;

/// Idle time after which the files and the parent process are checked.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The server of one client.
pub(super) struct Server<'o> {
    mailbox: Mailbox,
    output: &'o mut dyn Write,
    session: Arc<ValidationSession>,
    checker: Checker,
    stage: SessionStage,
    client: EditorClient,
    parent: Option<ParentProcess>,
    documents: Documents,
    dependencies: HashMap<String, Dependencies>,
    pulls: WaitingRequests,
    /// Number of times that the client was asked to request findings again.
    refreshed: u64,
    looked: Instant,
}

/// The stage of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SessionStage {
    Before,
    Serving,
    /// After `shutdown`.
    Closing,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DocumentParams {
    text_document: ChangedDocument,
    #[serde(default)]
    position: Option<Position>,
    #[serde(default)]
    range: Option<Range>,
    #[serde(default)]
    context: Value,
    #[serde(default)]
    content_changes: Vec<TextChange>,
}

#[derive(Deserialize)]
#[serde(expecting = "struct Identifier")]
struct ChangedDocument {
    uri: String,
    #[serde(default)]
    version: Option<i64>,
    #[serde(default)]
    text: Option<String>,
}

impl<'o> Server<'o> {
    pub(super) fn new(
        mailbox: Mailbox,
        output: &'o mut dyn Write,
        options: &ServerOptions,
    ) -> Self {
        let session = Arc::new(ValidationSession::new(options.open_models));
        Self {
            checker: Checker::start(Arc::clone(&session), mailbox.clone()),
            mailbox,
            output,
            session,
            stage: SessionStage::Before,
            client: EditorClient::default(),
            parent: None,
            documents: Documents::default(),
            dependencies: HashMap::new(),
            pulls: WaitingRequests::default(),
            refreshed: 0,
            looked: Instant::now(),
        }
    }

    /// Runs until the session ends.
    pub(super) fn run(mut self) -> io::Result<Ending> {
        loop {
            let event = self.mailbox.next(IDLE_CHECK_INTERVAL);
            if self.looked.elapsed() >= IDLE_CHECK_INTERVAL {
                self.looked = Instant::now();
                if self.parent.as_ref().is_some_and(ParentProcess::has_ended) {
                    return Ok(Ending::Broken);
                }
                self.look_at_files()?;
            }
            match event {
                None => {}
                Some(ServerEvent::Message(Incoming::Notification { method, .. }, _))
                    if method == "exit" =>
                {
                    return Ok(match self.stage {
                        SessionStage::Closing => Ending::Orderly,
                        _ => Ending::Broken,
                    });
                }
                Some(ServerEvent::Message(message, cancelled)) => self.take(message, cancelled)?,
                Some(ServerEvent::TooLarge(size, lost)) => {
                    let text = format!("skipped a message that is too large: {size} bytes");
                    self.log(&text)?;
                    self.clear_unknown(&lost)?;
                }
                Some(ServerEvent::Checked(checked)) => self.show(checked)?,
                Some(ServerEvent::Ended(None)) => return Ok(Ending::Broken),
                Some(ServerEvent::Ended(Some(reason))) => {
                    let fault = RequestError::new(ErrorCode::Parse, reason);
                    self.send(&message::response(&Value::Null, Err(fault)))?;
                    return Ok(Ending::Broken);
                }
            }
        }
    }

    fn take(&mut self, message: Incoming, cancelled: bool) -> io::Result<()> {
        match message {
            Incoming::Request { id, .. } if cancelled => {
                let fault = RequestError::new(ErrorCode::Cancelled, "cancelled");
                self.send(&message::response(&id, Err(fault)))
            }
            Incoming::Request { id, method, params }
                if method == "textDocument/diagnostic" && self.stage == SessionStage::Serving =>
            {
                self.pull(id, params)
            }
            Incoming::Request { id, method, params } => {
                if method == "shutdown" {
                    let waiting = self.pulls.take_all();
                    self.cancel_requests(waiting, "the session ends")?;
                }
                let answer = catch_unwind(AssertUnwindSafe(|| self.answer(&method, params)));
                let outcome = answer.unwrap_or_else(|_| {
                    let reason = format!("a bug in pkgtool: {method} failed");
                    Err(RequestError::new(ErrorCode::Internal, reason))
                });
                self.send(&message::response(&id, outcome))
            }
            Incoming::Notification { method, params } => self.handle_notification(&method, params),
            Incoming::Response => Ok(()),
            Incoming::Invalid { id, fault, lost } => {
                self.send(&message::response(&id, Err(fault)))?;
                self.clear_unknown(&lost)
            }
        }
    }

    fn answer(&mut self, method: &str, params: Value) -> Result<Value, RequestError> {
        match (self.stage, method) {
            (SessionStage::Before, "initialize") => return Ok(self.initialize(&params)),
            (SessionStage::Before, _) => {
                return Err(RequestError::new(
                    ErrorCode::NotInitialized,
                    "expected `initialize` as the first request",
                ));
            }
            (SessionStage::Serving, "initialize") => {
                return Err(RequestError::new(
                    ErrorCode::InvalidRequest,
                    "`initialize` was already sent",
                ));
            }
            (SessionStage::Closing, _) => {
                return Err(RequestError::new(
                    ErrorCode::InvalidRequest,
                    "expected `exit` after `shutdown`",
                ));
            }
            (SessionStage::Serving, "shutdown") => {
                self.stage = SessionStage::Closing;
                return Ok(Value::Null);
            }
            (SessionStage::Serving, _) => {}
        }
        match method {
            "textDocument/hover" => self.at_position(params, hover::hover),
            "textDocument/completion" => self.at_position(params, completion::complete),
            "textDocument/documentSymbol" => self.about_document(params, |view, params| {
                json!(symbol::symbols(view, &params.text_document.uri))
            }),
            "textDocument/documentLink" => {
                self.about_document(params, |view, _| json!(symbol::links(view)))
            }
            "textDocument/codeAction" => self.actions(params),
            _ => Err(RequestError::new(
                ErrorCode::MethodNotFound,
                format!("unsupported method `{method}`"),
            )),
        }
    }

    fn initialize(&mut self, params: &Value) -> Value {
        self.client = EditorClient::read(params);
        self.parent = self.client.process.map(ParentProcess::new);
        self.stage = SessionStage::Serving;
        capabilities::initialize_result(&self.client)
    }

    fn handle_notification(&mut self, method: &str, params: Value) -> io::Result<()> {
        if self.stage != SessionStage::Serving {
            return Ok(());
        }
        let lost = UnknownTexts::from_params(Some(method), &params);
        let noted = match method {
            "initialized" => return self.register(),
            "textDocument/didOpen" => message::params(params).map(|params| self.open(params)),
            "textDocument/didChange" => message::params(params).map(|params| self.change(params)),
            "textDocument/didSave" => message::params(params)
                .map(|params: DocumentParams| self.saved(&params.text_document.uri)),
            "textDocument/didClose" => match message::params::<DocumentParams>(params) {
                Ok(params) => return self.close(&params.text_document.uri),
                Err(fault) => Err(fault),
            },
            "workspace/didChangeWatchedFiles" => {
                return self.files_changed(&watch::changed(&params));
            }
            "workspace/didChangeWorkspaceFolders" => {
                self.client.change_folders(&params["event"]);
                return self.recheck(|_| true);
            }
            "$/cancelRequest" => {
                let waiting = self.pulls.take(&params["id"]);
                return waiting.map_or(Ok(()), |pull| {
                    let fault = RequestError::new(ErrorCode::Cancelled, "cancelled");
                    self.send(&message::response(&pull.id, Err(fault)))
                });
            }
            _ => Ok(()),
        };
        match noted {
            Ok(()) => Ok(()),
            Err(fault) => {
                self.log(&format!("{method}: {}", fault.message))?;
                self.clear_unknown(&lost)
            }
        }
    }

    fn register(&mut self) -> io::Result<()> {
        if !self.client.watches {
            return Ok(());
        }
        let params = watch::registration();
        self.send(&message::request(
            "pkgtool/1",
            "client/registerCapability",
            &params,
        ))
    }

    fn open(&mut self, params: DocumentParams) {
        let ChangedDocument { uri, version, text } = params.text_document;
        let Some(path) = uri::to_path(&uri) else {
            return;
        };
        let text = Text::new(text.unwrap_or_default(), self.client.encoding);
        self.documents
            .open(&uri, path, version.unwrap_or_default(), text);
        self.check(&uri);
    }

    fn change(&mut self, params: DocumentParams) {
        let ChangedDocument { uri, version, .. } = params.text_document;
        let encoding = self.client.encoding;
        let changes = params.content_changes;
        let version = version.unwrap_or_default();
        self.documents.change(&uri, version, changes, encoding);
        self.check(&uri);
    }

    /// Clears the findings of documents whose texts are unknown now.
    fn clear_unknown(&mut self, lost: &UnknownTexts) -> io::Result<()> {
        for uri in self.documents.discard_texts(lost) {
            self.check(&uri);
            self.log(&format!(
                "{uri}: the text is unknown, because a message was unreadable; open the document again"
            ))?;
        }
        Ok(())
    }

    fn close(&mut self, uri: &str) -> io::Result<()> {
        self.checker.forget(uri);
        self.dependencies.remove(uri);
        let closed = self.documents.close(uri);
        for pull in self.pulls.take_of(uri) {
            self.send(&message::response(&pull.id, Ok(pull.report(&[]))))?;
        }
        match closed {
            Some(document) if document.shown => self.publish(uri, None, &[]),
            _ => Ok(()),
        }
    }

    /// Handles a saved document. The files that it refers to may have been saved, too.
    fn saved(&mut self, uri: &str) {
        if self.client.pulls {
            self.documents.touch(uri);
        }
        self.check(uri);
    }

    /// Answers a request for findings, or queues it until they are available.
    fn pull(&mut self, id: Value, params: Value) -> io::Result<()> {
        let pull = match DiagnosticRequest::read(id, params) {
            Ok(pull) => pull,
            Err((id, fault)) => return self.send(&message::response(&id, Err(fault))),
        };
        let document = self.documents.get(&pull.uri);
        if document.is_none_or(|document| document.checked == Some(document.revision)) {
            let report = pull.report(&self.findings_of(&pull.uri));
            return self.send(&message::response(&pull.id, Ok(report)));
        }
        let crowded_out = self.pulls.wait(pull);
        self.cancel_requests(crowded_out, "too many waiting requests")
    }

    fn cancel_requests(
        &mut self,
        pulls: impl IntoIterator<Item = DiagnosticRequest>,
        why: &str,
    ) -> io::Result<()> {
        pulls.into_iter().try_for_each(|pull| {
            let fault = RequestError::new(ErrorCode::ServerCancelled, why);
            self.send(&message::response(&pull.id, Err(fault)))
        })
    }

    /// Queues a document for a check. If it is not a file of a package, clears its findings.
    fn check(&mut self, uri: &str) {
        let Some(document) = self.documents.get(uri) else {
            return;
        };
        let revision = document.revision;
        let text = match &document.content {
            DocumentText::Text(text) => Some(Ok(text.as_str().as_bytes().to_vec())),
            DocumentText::TooLarge(size) => Some(Err(*size)),
            DocumentText::Lost => None,
        };
        match text.zip(document.found(&self.client.folders)) {
            Some((text, found)) => self.checker.submit(CheckJob {
                uri: uri.to_owned(),
                revision,
                found,
                text,
            }),
            None => self.mailbox.queue_event(ServerEvent::Checked(CheckOutcome {
                uri: uri.to_owned(),
                revision,
                findings: Vec::new(),
                failure: None,
            })),
        }
    }

    fn recheck(&mut self, wants: impl Fn(&Dependencies) -> bool) -> io::Result<()> {
        let mut wanted = Vec::new();
        for (uri, document) in self.documents.iter() {
            let text = document.text().map_or("", Text::as_str);
            let known = self.dependencies.entry(uri.clone());
            if wants(known.or_insert_with(|| Dependencies::of(&document.path, text))) {
                wanted.push(uri.clone());
            }
        }
        let asks_again = !wanted.is_empty() && self.client.pulls && self.client.refreshes;
        for uri in wanted {
            self.documents.touch(&uri);
            self.check(&uri);
        }
        if !asks_again {
            return Ok(());
        }
        self.refreshed += 1;
        let id = format!("pkgtool/refresh/{}", self.refreshed);
        let method = "workspace/diagnostic/refresh";
        self.send(&message::request(&id, method, &Value::Null))
    }

    fn files_changed(&mut self, paths: &[PathBuf]) -> io::Result<()> {
        for path in paths {
            self.session.forget(path);
        }
        self.recheck(|dependencies| paths.iter().any(|path| dependencies.include(path)))
    }

    /// Checks for file changes that the client does not report.
    fn look_at_files(&mut self) -> io::Result<()> {
        if self.client.watches || self.documents.iter().next().is_none() {
            return Ok(());
        }
        let changed = self.session.changed();
        if changed.is_empty() {
            return Ok(());
        }
        self.files_changed(&changed)
    }

    fn show(&mut self, checked: CheckOutcome) -> io::Result<()> {
        let CheckOutcome {
            uri,
            revision,
            findings,
            failure,
        } = checked;
        if let Some(failure) = failure {
            self.log(&failure)?;
        }
        let Some(document) = self.documents.get_mut(&uri) else {
            return Ok(());
        };
        if document.revision != revision {
            return Ok(());
        }
        let is_news = document.shown || !findings.is_empty();
        document.shown = !findings.is_empty() && !self.client.pulls;
        document.findings = findings;
        document.checked = Some(revision);
        // The dependencies are computed only when files change, since keystrokes are more frequent.
        self.dependencies.remove(&uri);
        let waiting = self.pulls.take_of(&uri);
        if !waiting.is_empty() {
            let findings = self.findings_of(&uri);
            for pull in waiting {
                self.send(&message::response(&pull.id, Ok(pull.report(&findings))))?;
            }
        }
        if self.client.pulls {
            return Ok(());
        }
        if !is_news && document_is_foreign(self.documents.get(&uri), &self.client) {
            return Ok(());
        }
        self.publish_current(&uri)
    }

    fn publish_current(&mut self, uri: &str) -> io::Result<()> {
        let Some(document) = self.documents.get(uri) else {
            return Ok(());
        };
        let version = document.version;
        self.publish(uri, Some(version), &self.findings_of(uri))
    }

    /// Returns the findings of the last check of a document; none if it is not open.
    fn findings_of(&self, uri: &str) -> Vec<Value> {
        let Some(document) = self.documents.get(uri) else {
            return Vec::new();
        };
        let empty = Text::new(String::new(), self.client.encoding);
        let text = document.text().unwrap_or(&empty);
        let findings = document.findings.iter();
        findings
            .map(|one| finding::diagnostic(one, text, &self.client))
            .collect()
    }

    fn publish(
        &mut self,
        uri: &str,
        version: Option<i64>,
        diagnostics: &[Value],
    ) -> io::Result<()> {
        let mut params = json!({ "uri": uri, "diagnostics": diagnostics });
        if let Some(version) = version {
            params["version"] = json!(version);
        }
        self.send(&message::notification(
            "textDocument/publishDiagnostics",
            &params,
        ))
    }

    fn at_position(
        &self,
        params: Value,
        answer: fn(&DocumentView<'_>, usize) -> Value,
    ) -> Result<Value, RequestError> {
        let params: DocumentParams = message::params(params)?;
        let position = params
            .position
            .ok_or_else(|| RequestError::new(ErrorCode::InvalidParams, "`position` is missing"))?;
        let offset = |text: &Text| text.offset(position);
        Ok(
            self.view(&params.text_document.uri, Some(&offset), |view, offset| {
                answer(view, offset)
            }),
        )
    }

    fn about_document(
        &self,
        params: Value,
        answer: impl FnOnce(&DocumentView<'_>, &DocumentParams) -> Value,
    ) -> Result<Value, RequestError> {
        let params: DocumentParams = message::params(params)?;
        Ok(self.view(&params.text_document.uri, None, |view, _| {
            answer(view, &params)
        }))
    }

    /// Returns the result of `answer` for a document; `null` if it is not open or not a file of a
    /// package.
    fn view(
        &self,
        uri: &str,
        offset: Option<&dyn Fn(&Text) -> usize>,
        answer: impl FnOnce(&DocumentView<'_>, usize) -> Value,
    ) -> Value {
        let Some(document) = self.documents.get(uri) else {
            return Value::Null;
        };
        let found = document.found(&self.client.folders);
        let (Some(text), Some(found)) = (document.text(), found) else {
            return Value::Null;
        };
        let cursor = offset.map(|offset| offset(text));
        let parts = (&*self.session, &self.client);
        let view = DocumentView::new(text, &found, document.current_findings(), parts, cursor);
        if view.is_foreign() {
            return Value::Null;
        }
        answer(&view, cursor.unwrap_or_default())
    }

    fn actions(&self, params: Value) -> Result<Value, RequestError> {
        let params: DocumentParams = message::params(params)?;
        let uri = &params.text_document.uri;
        let document = self.documents.get(uri);
        let Some((document, text)) = document.and_then(|one| Some((one, one.text()?))) else {
            return Ok(json!([]));
        };
        let only = params.context.get("only").and_then(Value::as_array);
        let only = only.map(|kinds| {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds.map(str::to_owned).collect()
        });
        let wanted = ActionRequest {
            uri,
            version: document.version,
            span: text.span(params.range.unwrap_or(Range::ALL)),
            only,
        };
        let findings = document.current_findings();
        let actions = action::actions(&wanted, findings, text, &self.client, &|fix| {
            rename::breaks_nothing(&document.path, text, fix, &self.documents)
        });
        Ok(json!(actions))
    }

    /// Sends a message to the client's log.
    fn log(&mut self, text: &str) -> io::Result<()> {
        let warning = 2;
        let params = json!({ "type": warning, "message": format!("pkgtool: {text}") });
        self.send(&message::notification("window/logMessage", &params))
    }

    fn send(&mut self, message: &Value) -> io::Result<()> {
        super::frame::write(self.output, message)
    }
}

fn document_is_foreign(document: Option<&OpenDocument>, client: &EditorClient) -> bool {
    document.is_none_or(|document| document.found(&client.folders).is_none())
}
