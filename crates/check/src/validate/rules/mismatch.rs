//! Converts signature mismatches to findings, for the rules that compare declared signatures with
//! the model.

use crate::validate::context::Context;
use crate::validate::signature::DifferenceKind;
use pkgtool_base::diagnostic::{Anchor, Applicability, Finding, RuleMeta};

/// Adds a finding of `rule` for each mismatch of this kind.
pub(super) fn findings_of(
    kind: DifferenceKind,
    rule: &'static RuleMeta,
    context: &Context<'_>,
    findings: &mut Vec<Finding>,
) {
    for mismatch in context.mismatches.iter().filter(|m| m.kind == kind) {
        let path = mismatch.path.clone();
        let anchor = match kind {
            DifferenceKind::MethodNotInModel | DifferenceKind::MethodUndeclared => {
                Anchor::Key(path)
            }
            _ => Anchor::Value(path),
        };
        let mend = mismatch.mend.as_ref();
        let variant = context.variant_at(&mismatch.path);
        let mend = mend.filter(|_| variant.is_some_and(|variant| context.names_all_files(variant)));
        let fix = mend.and_then(|mend| context.fix(Applicability::Safe, mend));
        let finding = rule.finding(anchor, &mismatch.message).fix(fix);
        findings.push(match &mismatch.help {
            Some(help) => finding.help(help),
            None => finding,
        });
    }
}
