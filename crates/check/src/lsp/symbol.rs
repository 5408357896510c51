//! The outline of a config, and links from its references to the files.

use serde_json::{Value, json};

use super::text::Text;
use super::uri;
use super::view::DocumentView;
use pkgtool_base::source::Span;
use pkgtool_base::source::json::{Member, Node};

/// The LSP symbol kinds that are used.
const FILE: u8 = 1;
const METHOD: u8 = 6;
const ARRAY: u8 = 18;
const OBJECT: u8 = 19;

/// Maximum number of symbols per document.
const MAX_SYMBOLS: usize = 5000;

/// Returns the outline: variants with their components and methods, or the groups of a precision
/// list.
pub(super) fn symbols(view: &DocumentView<'_>, uri: &str) -> Vec<Value> {
    let root = &view.tree.root;
    let all: Vec<Symbol> = if view.is_list() {
        let groups = root.members().iter();
        let groups = groups.filter(|member| !member.value.elements().is_empty());
        groups.map(|member| Symbol::of(member, ARRAY)).collect()
    } else {
        let variants = root.get("variants").map_or(&[][..], Node::elements);
        variants.iter().take(MAX_SYMBOLS).map(variant).collect()
    };
    if view.client.nested_symbols {
        return all.iter().map(|symbol| symbol.nested(view.text)).collect();
    }
    let mut flat = Vec::new();
    for symbol in &all {
        symbol.flatten(view.text, uri, None, &mut flat);
    }
    flat
}

/// Returns links to the existing files.
pub(super) fn links(view: &DocumentView<'_>) -> Vec<Value> {
    let references = view.references().into_iter().take(MAX_SYMBOLS);
    references
        .filter_map(|(node, reference)| {
            let path = view.resolve(reference).ok()?;
            let target = uri::from_path(&path).filter(|_| path.exists())?;
            // The text between the quotes.
            let text = &view.text.as_str()[node.span.start..node.span.end];
            let is_quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
            let inner = usize::from(is_quoted);
            let span = Span::new(node.span.start + inner, node.span.end - inner);
            Some(json!({ "range": view.text.range(span), "target": target }))
        })
        .collect()
}

struct Symbol {
    name: String,
    detail: Option<String>,
    kind: u8,
    span: Span,
    selection: Span,
    children: Vec<Symbol>,
}

fn variant(node: &Node) -> Symbol {
    let word = |key: &str| {
        node.get(key)
            .and_then(Node::as_str)
            .filter(|word| !word.is_empty())
    };
    let components = node.get("components").map_or(&[][..], Node::members);
    let methods = node.get("methods").map_or(&[][..], Node::members);
    let mut children: Vec<Symbol> = components
        .iter()
        .map(|member| {
            let mut symbol = Symbol::of(member, FILE);
            symbol.detail = member.value.as_str().map(str::to_owned);
            symbol
        })
        .collect();
    for member in methods {
        let mut symbol = Symbol::of(member, METHOD);
        if !components.is_empty() {
            symbol.kind = OBJECT;
            let methods = member.value.members().iter();
            symbol.children = methods.map(|member| Symbol::of(member, METHOD)).collect();
        }
        children.push(symbol);
    }
    let selection = node
        .member("precision")
        .map_or(node.span, |member| member.value.span);
    Symbol {
        name: word("precision").unwrap_or("variant").to_owned(),
        detail: word("file").map(str::to_owned),
        kind: OBJECT,
        span: node.span,
        selection,
        children,
    }
}

impl Symbol {
    fn of(member: &Member, kind: u8) -> Self {
        let end = member.value.span.end.max(member.key_span.end);
        Self {
            // The protocol does not allow empty names.
            name: if member.key.trim().is_empty() {
                "\"\"".to_owned()
            } else {
                member.key.to_string()
            },
            detail: None,
            kind,
            span: Span::new(member.key_span.start, end),
            selection: member.key_span,
            children: Vec::new(),
        }
    }

    fn nested(&self, text: &Text) -> Value {
        let children: Vec<Value> = self
            .children
            .iter()
            .map(|child| child.nested(text))
            .collect();
        let mut symbol = json!({
            "name": self.name,
            "kind": self.kind,
            "range": text.range(self.span),
            "selectionRange": text.range(self.selection),
            "children": children,
        });
        if let Some(detail) = &self.detail {
            symbol["detail"] = json!(detail);
        }
        symbol
    }

    fn flatten(&self, text: &Text, uri: &str, holder: Option<&str>, flat: &mut Vec<Value>) {
        let location = json!({ "uri": uri, "range": text.range(self.span) });
        let mut symbol = json!({ "name": self.name, "kind": self.kind, "location": location });
        if let Some(holder) = holder {
            symbol["containerName"] = json!(holder);
        }
        flat.push(symbol);
        for child in &self.children {
            child.flatten(text, uri, Some(&self.name), flat);
        }
    }
}
