//! Prints JSON values in the style of an existing text. The default is the style of this
//! repository's package configs.
//!
//! Invariant: the printed text parses to the given value. Packages are handled elsewhere.

use serde_json::Value;

use super::json::{JsonValue, Node};

/// Maximum line length of an array or object on one line, in characters.
const MAX_LINE_CHARS: usize = 100;
/// Maximum number of values that are examined to learn a text's style.
const MAX_SAMPLED: usize = 2000;

/// The layout of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The additional indentation of each level.
    pub indent: String,
    /// The line ending: `\n` or `\r\n`.
    pub newline: &'static str,
    /// True if the whole text is on one line.
    pub one_line: bool,
    /// True if an array of scalars is on one line if it fits.
    pub short_arrays: bool,
    /// True if an object of scalars and short arrays is on one line if it fits.
    pub short_objects: bool,
    /// The white space inside the braces of an object on one line.
    pub padding: &'static str,
    /// The white space after `:`.
    pub after_colon: &'static str,
    /// The white space after `,` on one line.
    pub after_comma: &'static str,
}

impl Default for Layout {
    /// Two spaces, short arrays on one line, objects never.
    fn default() -> Self {
        Self {
            indent: "  ".to_owned(),
            newline: "\n",
            one_line: false,
            short_arrays: true,
            short_objects: false,
            padding: " ",
            after_colon: " ",
            after_comma: " ",
        }
    }
}

impl Layout {
    /// Learns the layout of `text`, whose tree is `root`. Properties that the text does not show
    /// are those of [`Layout::default`].
    pub fn of(text: &str, root: &Node) -> Self {
        let mut seen = StyleEvidence {
            text,
            left: MAX_SAMPLED,
            ..StyleEvidence::default()
        };
        seen.visit(root, None);
        let plain = Self::default();
        let newline = text.find('\n').map(|at| text[..at].ends_with('\r'));
        let written = text.get(root.span.start..root.span.end).unwrap_or_default();
        let one_line = !written.contains('\n') && seen.values > 1;
        let tight = |count: [usize; 2], spaced| if count[0] > count[1] { "" } else { spaced };
        Self {
            indent: seen.indent.unwrap_or(plain.indent),
            newline: if newline == Some(true) { "\r\n" } else { "\n" },
            one_line,
            short_arrays: seen.arrays[1] >= seen.arrays[0],
            short_objects: seen.objects[1] > seen.objects[0],
            padding: tight(seen.paddings, " "),
            after_colon: tight(seen.colons, " "),
            // A text without a comma is assumed to be as tight after commas as after colons.
            after_comma: match seen.commas {
                [0, 0] => tight(seen.colons, " "),
                commas => tight(commas, " "),
            },
        }
    }

    /// Prints the value. Lines after the first begin with `margin`; the first does not, so that it
    /// can follow a key.
    pub fn print(&self, value: &Value, margin: &str) -> String {
        let mut out = String::new();
        self.write(value, margin, &mut out);
        out
    }

    /// Prints the value on one line.
    pub fn print_on_one_line(&self, value: &Value) -> String {
        let mut out = String::new();
        self.write_short(value, &mut out);
        out
    }

    fn write(&self, value: &Value, margin: &str, out: &mut String) {
        if self.is_short(value, margin) {
            self.write_short(value, out);
            return;
        }
        let inner = format!("{margin}{}", self.indent);
        let begin = |index: usize, out: &mut String| {
            if index > 0 {
                out.push(',');
            }
            out.push_str(self.newline);
            out.push_str(&inner);
        };
        match value {
            Value::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    begin(index, out);
                    self.write(element, &inner, out);
                }
                out.push_str(self.newline);
                out.push_str(margin);
                out.push(']');
            }
            Value::Object(members) => {
                out.push('{');
                for (index, (key, member)) in members.iter().enumerate() {
                    begin(index, out);
                    out.push_str(&quoted(key));
                    out.push(':');
                    out.push_str(self.after_colon);
                    self.write(member, &inner, out);
                }
                out.push_str(self.newline);
                out.push_str(margin);
                out.push('}');
            }
            scalar => out.push_str(&scalar.to_string()),
        }
    }

    fn write_short(&self, value: &Value, out: &mut String) {
        match value {
            Value::Array(elements) => {
                out.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                        out.push_str(self.after_comma);
                    }
                    self.write_short(element, out);
                }
                out.push(']');
            }
            Value::Object(members) if members.is_empty() => out.push_str("{}"),
            Value::Object(members) => {
                out.push('{');
                out.push_str(self.padding);
                for (index, (key, member)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                        out.push_str(self.after_comma);
                    }
                    out.push_str(&quoted(key));
                    out.push(':');
                    out.push_str(self.after_colon);
                    self.write_short(member, out);
                }
                out.push_str(self.padding);
                out.push('}');
            }
            scalar => out.push_str(&scalar.to_string()),
        }
    }

    fn is_short(&self, value: &Value, margin: &str) -> bool {
        let may = match value {
            _ if self.one_line => return true,
            Value::Array(elements) if elements.is_empty() => return true,
            Value::Object(members) if members.is_empty() => return true,
            Value::Array(elements) => self.short_arrays && elements.iter().all(is_scalar),
            Value::Object(members) => {
                let is_simple = |value: &Value| match value {
                    Value::Array(elements) => self.short_arrays && elements.iter().all(is_scalar),
                    value => is_scalar(value),
                };
                self.short_objects && members.values().all(is_simple)
            }
            _ => return true,
        };
        may && margin.chars().count() + self.print_on_one_line(value).chars().count()
            <= MAX_LINE_CHARS
    }
}

/// Returns a text as a JSON string.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Array(_) | Value::Object(_))
}

/// Evidence of a text's style, as counts of `[without, with]`.
#[derive(Default)]
struct StyleEvidence<'t> {
    text: &'t str,
    left: usize,
    values: usize,
    indent: Option<String>,
    arrays: [usize; 2],
    objects: [usize; 2],
    paddings: [usize; 2],
    colons: [usize; 2],
    commas: [usize; 2],
}

impl StyleEvidence<'_> {
    fn visit(&mut self, node: &Node, outer: Option<&str>) {
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        self.values += 1;
        let written = &self.text[node.span.start..node.span.end];
        let on_one_line = !written.contains('\n');
        match &node.kind {
            JsonValue::Array(elements) if !elements.is_empty() => {
                if elements.iter().all(is_scalar_node) && elements.len() > 1 {
                    self.arrays[usize::from(on_one_line)] += 1;
                }
                self.look_behind_comma(elements.first().map(|first| first.span.end));
                for element in elements {
                    let own = self.learn_indent(element.span.start, outer);
                    self.visit(element, own.as_deref().or(outer));
                }
            }
            JsonValue::Object(members) if !members.is_empty() => {
                let is_simple = |node: &Node| {
                    is_scalar_node(node)
                        || !node.elements().is_empty() && node.elements().iter().all(is_scalar_node)
                };
                if outer.is_some() && members.iter().all(|member| is_simple(&member.value)) {
                    self.objects[usize::from(on_one_line)] += 1;
                }
                if on_one_line {
                    self.paddings[usize::from(written[1..].starts_with([' ', '\t']))] += 1;
                }
                self.look_behind_comma(members.first().map(|first| first.value.span.end));
                for member in members {
                    let behind = &self.text[member.key_span.end..member.value.span.start];
                    self.colons[usize::from(!behind.ends_with(':'))] += 1;
                    let own = self.learn_indent(member.key_span.start, outer);
                    let own = own.as_deref().or(outer).unwrap_or_default();
                    self.visit(&member.value, Some(own));
                }
            }
            _ => {}
        }
    }

    /// Returns the indentation of the item that begins a line at `start`, and records the
    /// difference to the outer one.
    fn learn_indent(&mut self, start: usize, outer: Option<&str>) -> Option<String> {
        let own = indentation(self.text, start)?;
        let added = own.strip_prefix(outer.unwrap_or_default());
        if let Some(added) = added.filter(|added| !added.is_empty() && self.indent.is_none()) {
            self.indent = Some(added.to_owned());
        }
        Some(own.to_owned())
    }

    fn look_behind_comma(&mut self, end: Option<usize>) {
        let rest = end.and_then(|end| self.text[end..].trim_ascii_start().strip_prefix(','));
        let next = rest.and_then(|rest| rest.bytes().next());
        if let Some(next) = next.filter(|next| !b"\r\n".contains(next)) {
            self.commas[usize::from(next == b' ')] += 1;
        }
    }
}

/// Returns the white space before `at` in its line; `None` if anything else precedes it. The search
/// stops at the first other character, because a line may be as long as the text.
pub(super) fn indentation(text: &str, at: usize) -> Option<&str> {
    let before = &text[..at];
    let above = before.trim_end_matches([' ', '\t']);
    (above.is_empty() || above.ends_with('\n')).then(|| &before[above.len()..])
}

fn is_scalar_node(node: &Node) -> bool {
    !matches!(node.kind, JsonValue::Array(_) | JsonValue::Object(_))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Layout;
    use crate::source::Document;

    #[test]
    fn values_are_printed_as_the_examples_are() {
        let value = json!({
            "model": "tiny",
            "capabilities": ["classification", "vision"],
            "methods": { "forward": { "inputs": [{ "shape": [1, -1], "dtype": "float32" }], "outputs": [] } },
        });
        let text = "{\n  \"model\": \"tiny\",\n  \"capabilities\": [\"classification\", \"vision\"],\n  \
                    \"methods\": {\n    \"forward\": {\n      \"inputs\": [\n        {\n          \
                    \"shape\": [1, -1],\n          \"dtype\": \"float32\"\n        }\n      ],\n      \
                    \"outputs\": []\n    }\n  }\n}";
        assert_eq!(Layout::default().print(&value, ""), text);
        let long = json!(vec!["a word of some length"; 9]);
        assert_eq!(Layout::default().print(&long, "").lines().count(), 11);
    }

    #[test]
    fn a_text_shows_its_layout() {
        let of = |text: &str| Layout::of(text, &Document::parse(text).expect("JSON").root);
        assert_eq!(of("{}"), Layout::default());
        let tabs = of("{\r\n\t\"a\": [\r\n\t\t1,\r\n\t\t2\r\n\t]\r\n}");
        assert_eq!((tabs.indent.as_str(), tabs.newline), ("\t", "\r\n"));
        assert!(!tabs.short_arrays);
        let tight = of("{\"a\":[1,2],\"b\":{\"c\":0}}");
        assert!(tight.one_line);
        let value = json!({ "a": [1, { "b": 2 }] });
        assert_eq!(tight.print(&value, ""), "{\"a\":[1,{\"b\":2}]}");
        let objects =
            of("{\n    \"a\": [\n        { \"shape\": [1, 2], \"dtype\": \"int8\" }\n    ]\n}");
        assert_eq!(objects.indent, "    ");
        let tensor = json!([{ "shape": [3], "dtype": "bool" }]);
        assert_eq!(
            objects.print(&tensor, ""),
            "[\n    { \"shape\": [3], \"dtype\": \"bool\" }\n]"
        );
    }
}
