//! The capabilities and workspace folders of the client.

use std::path::PathBuf;

use serde_json::Value;

use super::text::PositionEncoding;
use super::uri;

/// The client's folders and the capabilities that this server depends on.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a capability of the protocol"
)]
pub(super) struct EditorClient {
    pub(super) encoding: PositionEncoding,
    /// Supports completions with placeholders (snippets).
    pub(super) snippets: bool,
    /// Supports adjusting the indentation of inserted lines.
    pub(super) shifts: bool,
    /// Supports edits with the version of the document.
    pub(super) versioned_edits: bool,
    /// Supports edits that rename files.
    pub(super) renames: bool,
    pub(super) markdown: bool,
    pub(super) tags: bool,
    pub(super) code_descriptions: bool,
    pub(super) nested_symbols: bool,
    /// Supports code actions, not only commands.
    pub(super) actions: bool,
    /// Supports watching files and reporting their changes.
    pub(super) watches: bool,
    /// Requests findings itself (pull diagnostics). Such a client gets no published findings, since
    /// it would show them twice.
    pub(super) pulls: bool,
    /// Supports being asked to request findings again.
    pub(super) refreshes: bool,
    pub(super) folders: Vec<PathBuf>,
    pub(super) process: Option<u32>,
}

impl EditorClient {
    /// Reads `InitializeParams`. Absent values and values of the wrong type count as unsupported.
    pub(super) fn read(params: &Value) -> Self {
        let pointer = |path: &str| params.pointer(&format!("/capabilities{path}"));
        let flag = |path: &str| pointer(path).and_then(Value::as_bool).unwrap_or(false);
        let has = |path: &str, word: &str| {
            let words = pointer(path).and_then(Value::as_array);
            words.is_some_and(|words| words.iter().any(|one| one == word))
        };
        let adjust = 2;
        let modes =
            pointer("/textDocument/completion/completionItem/insertTextModeSupport/valueSet");
        let encoding = if has("/general/positionEncodings", "utf-8") {
            PositionEncoding::Utf8
        } else {
            PositionEncoding::Utf16
        };
        Self {
            encoding,
            snippets: flag("/textDocument/completion/completionItem/snippetSupport"),
            shifts: modes
                .and_then(Value::as_array)
                .is_some_and(|modes| modes.iter().any(|mode| mode == adjust)),
            versioned_edits: flag("/workspace/workspaceEdit/documentChanges"),
            renames: has("/workspace/workspaceEdit/resourceOperations", "rename"),
            markdown: has("/textDocument/hover/contentFormat", "markdown"),
            // Pulled findings have the features of published ones. Since LSP 3.18, clients declare
            // them separately.
            tags: ["publishDiagnostics", "diagnostic"]
                .iter()
                .any(|kind| pointer(&format!("/textDocument/{kind}/tagSupport")).is_some()),
            code_descriptions: ["publishDiagnostics", "diagnostic"]
                .iter()
                .any(|kind| flag(&format!("/textDocument/{kind}/codeDescriptionSupport"))),
            nested_symbols: flag("/textDocument/documentSymbol/hierarchicalDocumentSymbolSupport"),
            actions: pointer("/textDocument/codeAction/codeActionLiteralSupport").is_some(),
            watches: flag("/workspace/didChangeWatchedFiles/dynamicRegistration"),
            pulls: pointer("/textDocument/diagnostic").is_some_and(Value::is_object),
            refreshes: flag("/workspace/diagnostics/refreshSupport"),
            folders: folders(params),
            process: params
                .get("processId")
                .and_then(Value::as_u64)
                .and_then(|id| u32::try_from(id).ok()),
        }
    }

    /// Applies added and removed folders.
    pub(super) fn change_folders(&mut self, event: &Value) {
        let named = |key: &str| paths(event.get(key));
        let removed = named("removed");
        self.folders.retain(|folder| !removed.contains(folder));
        self.folders.extend(named("added"));
    }
}

fn folders(params: &Value) -> Vec<PathBuf> {
    let folders = paths(params.get("workspaceFolders"));
    if !folders.is_empty() {
        return folders;
    }
    let root = params.get("rootUri").and_then(Value::as_str);
    root.and_then(uri::to_path).into_iter().collect()
}

fn paths(folders: Option<&Value>) -> Vec<PathBuf> {
    let folders = folders.and_then(Value::as_array).into_iter().flatten();
    folders
        .filter_map(|folder| uri::to_path(folder.get("uri")?.as_str()?))
        .collect()
}
