//! `methods-unknown-component`: methods of a component that is not there.

use crate::diagnostic::{Anchor, Applicability, Finding};
use crate::package::Methods;
use crate::validate::context::Context;
use crate::validate::listing::listed;
use crate::validate::mend::Mend;
use crate::package::leftover::is_placeholder;
use crate::source::suggest;

rule! {
    /// # What it checks
    /// Every component named under a variant's `methods` is one of its `components`.
    ///
    /// # Why
    /// Signatures of a component that does not exist describe nothing; usually its name was
    /// mistyped or changed, and the real component has no signature.
    ///
    /// # Example
    /// ```json
    /// { "components": { "encoder": "e.pte" }, "methods": { "encodr": { … } } }
    /// ```
    ///
    /// # Fix
    /// Use the component's name. `pkgtool fix` does where one is near and has no methods yet.
    ///
    /// # What it does not see
    /// A component that is named rightly and has another component's signatures; comparing with the model
    /// (`tensor-count` and the rules after it) shows that.
    PKG012 "methods-unknown-component" Error fix Safe "Methods are declared for a component that does not exist." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for variant in context.variants() {
        let Methods::Declared { groups, .. } = &variant.methods else {
            continue;
        };
        let node = context.document().and_then(|d| d.node(&variant.path));
        let components = node.and_then(|node| node.get("components"));
        let members = components.map_or(&[][..], |components| components.members());
        let names = || members.iter().map(|member| member.key.as_str());
        // Without any, `components` is at fault.
        for group in groups.iter().filter(|_| !members.is_empty()) {
            let Some(component) = &group.component else {
                continue;
            };
            if components.is_some_and(|node| node.get(component).is_some()) || is_placeholder(component) {
                continue;
            }
            let meant = suggest::nearest(component, names());
            let fix = meant.and_then(|meant| {
                let mend = Mend::RenameKey(group.path.clone(), meant.to_owned());
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
