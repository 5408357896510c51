//! Rule `methods-unknown-component`: reports methods declared for components that do not exist or
//! are not models.

use std::collections::HashSet;

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::{MethodGroup, Methods};
use crate::validate::context::Context;
use crate::validate::listing::listed;
use crate::validate::mend::ValueChange;
use crate::validate::references::is_data;
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::source::suggest;

rule! {
    /// # What it checks
    /// Every component named under a variant's `methods` is one of its `components`, and a model. A
    /// tokenizer or a scheduler's settings have no methods.
    ///
    /// # Why
    /// Signatures of a component that does not exist describe nothing. Usually its name was
    /// mistyped or changed, and the real component has no signature.
    ///
    /// # Example
    /// ```json
    /// { "components": { "encoder": "e.pte" }, "methods": { "encodr": { … } } }
    /// ```
    ///
    /// # Fix
    /// Use the component's name. `pkgtool fix` does this if a component without methods has a
    /// similar name.
    ///
    /// # What it does not see
    /// A correctly named component with the signatures of another one. The comparison with the
    /// model (`tensor-count` and the following rules) detects it.
    PKG012 "methods-unknown-component" Error fix Safe "Methods are declared for a component that does not exist or is not a model." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        let Methods::Declared { groups, .. } = &variant.methods else {
            continue;
        };
        let node = context.document().and_then(|d| d.node(&variant.path));
        let components = node.and_then(|node| node.get("components"));
        let members = components.map_or(&[][..], |components| components.members());
        let names = || members.iter().map(|member| member.key.as_str());
        // A component that already has methods is not suggested.
        let taken: HashSet<&str> = groups.iter().filter_map(|one| one.component.as_deref()).collect();
        let free: Vec<&str> = names().filter(|name| !taken.contains(name)).collect();
        // If `components` is empty, it is `components` that is wrong.
        for group in groups.iter().filter(|_| !members.is_empty()) {
            let Some(component) = &group.component else {
                continue;
            };
            if is_placeholder(component) {
                continue;
            }
            if components.is_some_and(|node| node.get(component).is_some()) {
                findings.extend(of_data(context, index, component, group));
                continue;
            }
            let meant = suggest::nearest(component, free.iter().copied());
            let fix = meant.and_then(|meant| {
                let mend = ValueChange::RenameKey(group.path.clone(), meant.to_owned());
                context.fix(Applicability::Safe, &mend)
            });
            let help = match meant {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("the variant's components: {}", listed(names())),
            };
            let anchor = Anchor::Key(group.path.clone());
            let message = format!("the variant has no component `{component}`");
            findings.push(RULE.meta.finding(anchor, message).help(help).fix(fix));
        }
    }
}

/// Creates the finding about methods of a component whose file is data.
fn of_data(context: &Context<'_>, variant: usize, component: &str, group: &MethodGroup) -> Option<Finding> {
    let mut files = context.files_of(variant);
    let file = files.find(|file| file.file.component.as_deref() == Some(component))?;
    let reference = &file.file.reference;
    if group.methods.is_empty() || !is_data(reference) {
        return None;
    }
    let message = format!("the component `{component}` is `{reference}`, which is not a model and has no methods");
    let finding = RULE.meta.finding(Anchor::Key(group.path.clone()), message);
    Some(finding.help(format!("remove `{component}` from `methods`, or name a model in `components`")))
}
