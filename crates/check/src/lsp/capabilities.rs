//! The capabilities that the server announces in its answer to `initialize`.

use serde_json::{Value, json};

use super::action;
use super::client::EditorClient;

/// Returns the result of `initialize`.
pub(super) fn initialize_result(client: &EditorClient) -> Value {
    let mut capabilities = json!({
        "positionEncoding": client.encoding.name(),
        "textDocumentSync": { "openClose": true, "change": 2, "save": { "includeText": false } },
        "hoverProvider": true,
        "completionProvider": { "triggerCharacters": ["\"", ":", "/", " "] },
        "codeActionProvider": if client.actions {
            json!({ "codeActionKinds": ["quickfix", action::FIX_ALL] })
        } else {
            json!(false)
        },
        "documentSymbolProvider": true,
        "documentLinkProvider": { "resolveProvider": false },
        "workspace": {
            "workspaceFolders": { "supported": true, "changeNotifications": true },
        },
    });
    if client.pulls {
        capabilities["diagnosticProvider"] = json!({
            "identifier": "pkgtool",
            "interFileDependencies": true,
            "workspaceDiagnostics": false,
        });
    }
    json!({
        "capabilities": capabilities,
        "serverInfo": { "name": "pkgtool", "version": env!("CARGO_PKG_VERSION") },
    })
}
