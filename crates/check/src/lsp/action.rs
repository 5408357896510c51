//! Code actions: the fixes of findings one by one, and all safe fixes together.

use serde_json::{Value, json};

use super::client::EditorClient;
use super::finding;
use super::text::Text;
use super::uri;
use pkgtool_base::diagnostic::{Applicability, Diagnostic, Fix};
use pkgtool_base::source::Span;
use pkgtool_base::source::edit::TextEdit;

/// Kind of the action that applies all safe fixes.
pub(super) const FIX_ALL: &str = "source.fixAll.pkgtool";
const QUICK_FIX: &str = "quickfix";

/// Parameters of a request for code actions.
pub(super) struct ActionRequest<'a> {
    pub(super) uri: &'a str,
    pub(super) version: i64,
    pub(super) span: Span,
    /// Requested kinds of actions; all kinds if `None`.
    pub(super) only: Option<Vec<String>>,
}

impl ActionRequest<'_> {
    fn wants(&self, kind: &str) -> bool {
        let covers = |wanted: &String| {
            let rest = kind.strip_prefix(wanted.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        match &self.only {
            Some(kinds) => kinds
                .iter()
                .any(|wanted| wanted.is_empty() || covers(wanted)),
            None => true,
        }
    }
}

/// Returns the actions for a range of a document with these findings. Fixes that rename a file are
/// offered only if the renaming breaks nothing.
pub(super) fn actions(
    wanted: &ActionRequest<'_>,
    findings: &[Diagnostic],
    text: &Text,
    client: &EditorClient,
    may_rename: &dyn Fn(&Fix) -> bool,
) -> Vec<Value> {
    let mut actions = Vec::new();
    if wanted.wants(QUICK_FIX) {
        let here = findings
            .iter()
            .filter(|finding| meets(finding.span, wanted.span));
        let fixes = here.filter_map(|finding| Some((finding, finding.fix.as_ref()?)));
        let possible =
            fixes.filter(|(_, fix)| fix.rename.is_none() || renames(client) && may_rename(fix));
        for (finding, fix) in possible {
            let mut action = json!({
                "title": fix.title,
                "kind": QUICK_FIX,
                "diagnostics": [finding::diagnostic(finding, text, client)],
                "edit": workspace_edit(wanted, fix, text, client),
            });
            if fix.applicability == Applicability::Safe {
                action["isPreferred"] = json!(true);
            }
            actions.push(action);
        }
    }
    if wanted.wants(FIX_ALL) {
        let edits = safe_edits(findings);
        if !edits.is_empty() {
            let fix = Fix::safe("Fix all that is safe to fix (pkgtool)", edits);
            actions.push(json!({
                "title": fix.title,
                "kind": FIX_ALL,
                "edit": workspace_edit(wanted, &fix, text, client),
            }));
        }
    }
    actions
}

/// Returns the edits of all safe fixes. Of two fixes that overlap, only the first is applied.
fn safe_edits(findings: &[Diagnostic]) -> Vec<TextEdit> {
    let fixes = findings.iter().filter_map(|finding| finding.fix.as_ref());
    let safe = fixes.filter(|fix| fix.applicability == Applicability::Safe && fix.rename.is_none());
    let mut edits: Vec<TextEdit> = Vec::new();
    for fix in safe {
        let is_free = |new: &TextEdit| edits.iter().all(|old| !overlap(old.span, new.span));
        if fix.edits.iter().all(is_free) {
            edits.extend(fix.edits.iter().cloned());
        }
    }
    edits
}

/// Returns whether two edits conflict. Two insertions at the same position conflict, since their
/// order matters.
fn overlap(one: Span, other: Span) -> bool {
    one.start < other.end && other.start < one.end || one.start == other.start
}

fn meets(one: Span, other: Span) -> bool {
    one.start <= other.end && other.start <= one.end
}

fn renames(client: &EditorClient) -> bool {
    client.renames && client.versioned_edits
}

fn workspace_edit(
    wanted: &ActionRequest<'_>,
    fix: &Fix,
    text: &Text,
    client: &EditorClient,
) -> Value {
    let edits: Vec<Value> = fix
        .edits
        .iter()
        .map(|edit| json!({ "range": text.range(edit.span), "newText": edit.replacement }))
        .collect();
    if !client.versioned_edits {
        return json!({ "changes": { wanted.uri: edits } });
    }
    let mut changes = Vec::new();
    if let Some(rename) = &fix.rename
        && let (Some(from), Some(to)) = (uri::from_path(&rename.from), uri::from_path(&rename.to))
    {
        let options = json!({ "overwrite": false, "ignoreIfExists": false });
        changes.push(json!({ "kind": "rename", "oldUri": from, "newUri": to, "options": options }));
    }
    if !edits.is_empty() {
        let document = json!({ "uri": wanted.uri, "version": wanted.version });
        changes.push(json!({ "textDocument": document, "edits": edits }));
    }
    json!({ "documentChanges": changes })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{ActionRequest, FIX_ALL, actions};
    use crate::lsp::client::EditorClient;
    use crate::lsp::text::{PositionEncoding, Text};
    use crate::validate::RULES;
    use pkgtool_base::diagnostic::{Diagnostic, Fix, Severity, SourceText};
    use pkgtool_base::source::Span;
    use pkgtool_base::source::edit::TextEdit;

    const TEXT: &str = "{\"é\": 1,\n \"size_bytes\": 12}";

    fn finding(start: usize, end: usize, fix: Option<Fix>) -> Diagnostic {
        Diagnostic {
            rule: &RULES[0].meta,
            severity: Severity::Error,
            message: "wrong".to_owned(),
            help: None,
            source: Arc::new(SourceText::new(String::new(), TEXT.to_owned())),
            pointer: String::new(),
            span: Span::new(start, end),
            subject: None,
            fix,
        }
    }

    fn edit(start: usize, end: usize, new: &str) -> TextEdit {
        TextEdit::replace(Span::new(start, end), new)
    }

    fn asked(
        findings: &[Diagnostic],
        span: Span,
        only: Option<&str>,
        client: &EditorClient,
    ) -> Vec<Value> {
        let wanted = ActionRequest {
            uri: "file:///c",
            version: 7,
            span,
            only: only.map(|kind| vec![kind.to_owned()]),
        };
        let text = Text::new(TEXT.to_owned(), PositionEncoding::Utf16);
        actions(&wanted, findings, &text, client, &|_| true)
    }

    #[test]
    fn a_fix_is_offered_where_its_finding_is() {
        let fix = Fix::safe("write 13", vec![edit(25, 27, "13")]);
        let bold = Fix::needs_consent("drop it", vec![edit(1, 5, "")]);
        let findings = [
            finding(25, 27, Some(fix)),
            finding(1, 5, Some(bold)),
            finding(0, 30, None),
        ];
        let client = EditorClient {
            versioned_edits: true,
            ..EditorClient::default()
        };
        let found = asked(&findings, Span::new(26, 26), Some("quickfix"), &client);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["title"], "write 13");
        assert_eq!(found[0]["isPreferred"], true);
        let change = &found[0]["edit"]["documentChanges"][0];
        assert_eq!(
            change["textDocument"],
            json!({ "uri": "file:///c", "version": 7 })
        );
        let start = json!({ "line": 1, "character": 15 });
        assert_eq!(change["edits"][0]["range"]["start"], start);
        let found = asked(&findings, Span::new(2, 2), None, &EditorClient::default());
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0]["isPreferred"], Value::Null);
        let range =
            json!({ "start": { "line": 0, "character": 1 }, "end": { "line": 0, "character": 4 } });
        assert_eq!(found[0]["edit"]["changes"]["file:///c"][0]["range"], range);
        assert_eq!(found[1]["kind"], FIX_ALL);
    }

    #[test]
    fn all_that_is_safe_is_fixed_once() {
        let findings = [
            finding(
                0,
                1,
                Some(Fix::safe("a", vec![edit(1, 5, "x"), edit(8, 9, "y")])),
            ),
            finding(
                0,
                1,
                Some(Fix::safe(
                    "overlaps",
                    vec![edit(4, 6, "z"), edit(12, 13, "")],
                )),
            ),
            finding(
                0,
                1,
                Some(Fix::needs_consent("unsafe", vec![edit(14, 15, "")])),
            ),
            finding(0, 1, Some(Fix::safe("b", vec![edit(9, 10, "w")]))),
        ];
        let found = asked(
            &findings,
            Span::new(20, 20),
            Some("source.fixAll"),
            &EditorClient::default(),
        );
        assert_eq!(found.len(), 1);
        let edits = found[0]["edit"]["changes"]["file:///c"]
            .as_array()
            .expect("edits");
        let texts: Vec<&Value> = edits.iter().map(|edit| &edit["newText"]).collect();
        assert_eq!(texts, ["x", "y", "w"]);
        assert!(
            asked(
                &findings,
                Span::new(20, 20),
                Some("refactor"),
                &EditorClient::default()
            )
            .is_empty()
        );
        assert!(
            asked(
                &findings[2..3],
                Span::new(0, 0),
                Some("source"),
                &EditorClient::default()
            )
            .is_empty()
        );
    }

    #[test]
    fn a_rename_needs_a_client_that_renames() {
        let fix = Fix::needs_consent("rename", vec![edit(1, 5, "x")]);
        let fix = fix.renaming(PathBuf::from("/p/a b.pte"), PathBuf::from("/p/c.pte"));
        let findings = [finding(1, 5, Some(fix))];
        let at = Span::new(2, 2);
        assert!(asked(&findings, at, None, &EditorClient::default()).is_empty());
        let client = EditorClient {
            versioned_edits: true,
            renames: true,
            ..EditorClient::default()
        };
        let found = asked(&findings, at, None, &client);
        let changes = &found[0]["edit"]["documentChanges"];
        assert_eq!(changes[0]["oldUri"], "file:///p/a%20b.pte");
        assert_eq!(changes[0]["options"]["overwrite"], false);
        assert_eq!(changes[1]["edits"][0]["newText"], "x");
    }
}
