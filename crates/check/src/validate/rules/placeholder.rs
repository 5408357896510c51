//! Rule `placeholder`: reports placeholders that a generator left for a person to fill in.

use super::methods_missing;
use pkgtool_base::diagnostic::{Anchor, Applicability, Finding, Fix};
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::source::json::{JsonValue, Node, Step};
use pkgtool_base::source::{JsonPath, Trail};
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// No string and no key of a config begins with `TODO_` or is `TODO`.
    ///
    /// # Why
    /// Generators of configs write `TODO_license`, `TODO_methods` or `TODO_capabilities` for values
    /// they do not know. Most of these satisfy the schema and get published.
    ///
    /// # Example
    /// ```json
    /// { "license": "TODO_license" }
    /// ```
    ///
    /// # Fix
    /// Fill in the value, or leave an optional field out. `pkgtool fix` writes the methods from the
    /// model; `pkgtool fix --unsafe` removes optional fields.
    ///
    /// # What it does not see
    /// Placeholders of other generators (`FIXME`, `xxx`, `your-name`).
    PKG010 "placeholder" Error fix Unsafe "A value is a generator's placeholder." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    // A text without the word, even in escapes, contains no placeholder.
    let text = &context.loaded.text;
    let may_be = text.contains("TODO") || text.contains('\\');
    if let Some(document) = context.document().filter(|_| may_be) {
        visit(&document.root, Trail::root(), context, findings);
    }
}

fn visit(node: &Node, trail: Trail<'_>, context: &Context<'_>, findings: &mut Vec<Finding>) {
    match &node.kind {
        JsonValue::String(text) if is_placeholder(text) => {
            let path = trail.to_path();
            let fix = replacement_fix(context, &path);
            findings.push(placeholder(Anchor::Value(path), text).fix(fix));
        }
        JsonValue::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                visit(element, trail.index(i), context, findings);
            }
        }
        JsonValue::Object(members) => {
            // A member hidden by a repeated key has no effect.
            for member in members.effective() {
                let trail = trail.key(&member.key);
                if is_placeholder(&member.key) {
                    let path = trail.to_path();
                    let fix = replacement_fix(context, &path);
                    findings.push(placeholder(Anchor::Key(path), &member.key).fix(fix));
                }
                visit(&member.value, trail, context, findings);
            }
        }
        _ => {}
    }
}

fn placeholder(anchor: Anchor, text: &str) -> Finding {
    let finding = RULE.meta.finding(anchor, format!("`{text}` is a placeholder"));
    finding.help("fill it in, or leave the field out if it is optional")
}

/// Returns a fix: the value from the model, or the removal of an optional field.
fn replacement_fix(context: &Context<'_>, path: &JsonPath) -> Option<Fix> {
    if !context.may_fix() {
        return None;
    }
    let steps = path.steps();
    let key = |at: usize| match steps.get(at) {
        Some(Step::Key(key)) => Some(&**key),
        _ => None,
    };
    let is_optional = match steps.len() {
        // The document itself is the placeholder.
        0 => return None,
        1 if key(0)? == "$schema" => {
            let mend = ValueChange::replace(path.clone(), context.schema_id()?);
            return context.fix(Applicability::Safe, &mend);
        }
        1 => matches!(key(0)?, "size" | "tokenizer" | "tokenizer_config"),
        2 => key(0)? == "capabilities" && has_others(context, path),
        3 | 4 if key(2)? == "methods" => return methods(context, path),
        3 => matches!(key(2)?, "size_bytes"),
        _ => key(steps.len() - 1)? == "name",
    };
    let mend = ValueChange::Remove(path.clone());
    is_optional.then(|| context.fix(Applicability::Unsafe, &mend)).flatten()
}

fn has_others(context: &Context<'_>, path: &JsonPath) -> bool {
    let list = path.parent().and_then(|(list, _)| context.document()?.node(&list));
    list.is_some_and(|list| list.elements().len() > 1)
}

/// Returns a fix that rewrites the methods of a variant, if nothing else is declared there.
fn methods(context: &Context<'_>, path: &JsonPath) -> Option<Fix> {
    let whole: JsonPath = path.steps().iter().take(3).cloned().collect();
    let node = context.document()?.node(&whole)?;
    if node.members().len() > 1 {
        return None;
    }
    let mut variants = context.variants().iter();
    let index = variants.position(|variant| whole.is_within(&variant.path))?;
    match methods_missing::declared(context, index) {
        Some(value) => context.fix(Applicability::Safe, &ValueChange::replace(whole, value)),
        None => context.fix(Applicability::Unsafe, &ValueChange::Remove(whole)),
    }
}
