//! Rule `file-name`: reports model files whose names deviate from the naming convention.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::backend_delegate;
use pkgtool_base::diagnostic::{Anchor, Applicability, Finding, Fix};
use pkgtool_base::package::naming::{ExpectedName, NameFault};
use pkgtool_base::package::{Config, Variant, steps};
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::same_file::is_same_file;
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;
use crate::validate::listing::listed;
use crate::validate::references::{ReferencedFile, leaves_directory};
use crate::validate::files::FileState;
use pkgtool_base::package::leftover::is_placeholder;

rule! {
    /// # What it checks
    /// A model file in the config's directory is named
    /// `<model>[_<size>][_<component>]_<backend>_<precision>.<extension>`, in lower case. Its
    /// backend and precision are those of the config. Further tokens (a chip, a resolution) may
    /// stand between these parts and after them.
    ///
    /// # Why
    /// People and scripts choose files by name. If the name and the variant give different
    /// precisions, one of the two is wrong.
    ///
    /// # Example
    /// `tiny_xnnpack_fp32.pte` in the variant `int8`.
    ///
    /// # Fix
    /// Rename the file, or correct the config. `pkgtool fix --unsafe` renames a valid model file
    /// and updates every given config, unless the file name contains another backend or precision.
    /// A file that other configs reference too keeps its name.
    ///
    /// # What it does not see
    /// Files outside the config's directory, which several backends may share; the meaning of
    /// additional tokens; the size. A name that another finding explains is not reported again.
    PKG025 "file-name" Warning fix Unsafe "A model file's name departs from the convention." => check
}

/// A model file with an unconventional name.
struct MisnamedFile<'a> {
    file: &'a ReferencedFile,
    name: &'a str,
    fault: NameFault,
    expected: ExpectedName<'a>,
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(config) = &context.config else { return };
    let models = context.files.iter().filter(|file| file.is_model);
    let mut judged = Vec::new();
    let mut all = 0;
    // Files outside the directory may be shared by several backends or packages, so the convention
    // does not apply.
    for file in models.filter(|file| !leaves_directory(&file.file.reference)) {
        all += 1;
        let variant = file.variant.and_then(|index| config.variants.get(index));
        judged.extend(variant.and_then(|variant| judge(context, config, variant, file)));
    }
    if judged.is_empty() {
        return;
    }
    let no_model = judged.iter().all(|one| one.fault == NameFault::NoModel);
    if judged.len() > 1 && judged.len() == all && no_model {
        findings.push(wrong_model_finding(&judged));
        return;
    }
    let mut proposals: HashMap<String, usize> = HashMap::new();
    for one in &judged {
        *proposals.entry(one.proposal()).or_default() += 1;
    }
    let taken: HashSet<&str> = config.files().map(|file| file.reference.as_str()).collect();
    for one in &judged {
        let proposal = one.proposal();
        let is_there = context.models_beside.is_some_and(|names| names.contains(&proposal)) && !one.has_name(&proposal);
        let is_free = proposals.get(&proposal) == Some(&1) && !taken.contains(proposal.as_str()) && !is_there;
        let fix = is_free.then(|| one.renamed(context, &proposal)).flatten();
        findings.push(one.finding(is_free.then_some(proposal)).fix(fix));
    }
}

/// Reports all files at once if none begins with the model token: it is one mistake, possibly in
/// `model`.
fn wrong_model_finding(judged: &[MisnamedFile<'_>]) -> Finding {
    let model = judged[0].expected.model.unwrap_or_default();
    let names = listed(judged.iter().map(|one| format!("`{}`", one.name)));
    let message = format!("no model file begins with the model token `{model}`: {names}");
    let anchor = Anchor::Value(JsonPath::root().key("model"));
    let finding = RULE.meta.finding(anchor, message);
    finding.help(format!("correct `model` if the files are right; otherwise rename them to `{model}_…`"))
}

fn judge<'a>(
    context: &'a Context<'_>,
    config: &'a Config,
    variant: &'a Variant,
    file: &'a ReferencedFile,
) -> Option<MisnamedFile<'a>> {
    let facts = file.facts.as_ref().ok()?;
    let precision = variant.precision.as_deref()?;
    if context.is_ambiguous(&variant.path.key("precision")) {
        return None;
    }
    let list = &context.precisions.list;
    // Missing files and unknown precisions have findings of their own.
    let is_there = facts.is_file() || matches!(facts.state, FileState::Directory(_));
    if !is_there || file.is_wrong_directory() || !list.contains(precision) {
        return None;
    }
    let backend = config.backend?;
    let expected = ExpectedName {
        model: token(context, "model", config.model.as_deref()),
        size: token(context, "size", config.size.as_deref()),
        component: file.file.component.as_deref(),
        backend,
        precision,
    };
    let name = steps::name(Path::new(&file.file.reference))?;
    let fault = expected.check(name, list.tokens()).err()?;
    let told = match &fault {
        // A copied line that was not adapted is reported by `file-shared` or `variant-duplicate`.
        NameFault::OtherPrecision(_) => {
            context.models_at(&facts.path).count() > 1 || shares_precision(config, variant)
        }
        // If the directory contradicts the field too, `backend-directory` reports it. If the
        // program was exported for the other backend, `backend-delegate` reports it.
        NameFault::OtherBackend(other) => {
            let directory = context.absolute.file_name();
            let in_other = directory.is_some_and(|name| name == other.name());
            let info = file.model_info();
            let delegated = info.is_some_and(|info| backend_delegate::is_delegated_to(info, *other, backend));
            in_other || delegated
        }
        _ => false,
    };
    (!told).then_some(MisnamedFile { file, name, fault, expected })
}

/// Returns whether another variant has the same precision.
fn shares_precision(config: &Config, variant: &Variant) -> bool {
    let same = config.variants.iter().filter(|other| other.precision == variant.precision);
    same.count() > 1
}

impl MisnamedFile<'_> {
    /// Returns the conventional name.
    fn proposal(&self) -> String {
        let extension = Path::new(self.name).extension().and_then(|it| it.to_str());
        self.expected.name(extension.unwrap_or("pte"))
    }

    /// Returns whether the proposed name is already a second name of the file, as an interrupted
    /// renaming leaves it.
    fn has_name(&self, proposal: &str) -> bool {
        let facts = self.file.facts.as_ref();
        facts.is_ok_and(|facts| is_same_file(&facts.path, &facts.path.with_file_name(proposal)))
    }

    /// Returns the fix that renames the file, if its name violates only the convention.
    fn renamed(&self, context: &Context<'_>, proposal: &str) -> Option<Fix> {
        // Either the name or the config is wrong; it is unknown which.
        if matches!(self.fault, NameFault::OtherBackend(_) | NameFault::OtherPrecision(_)) {
            return None;
        }
        // Without a model token the new name would be incomplete. External weights are found by the
        // model's file name.
        let has_weights = self.file.model_info().is_none_or(|info| !info.external.is_empty());
        if self.expected.model.is_none() || has_weights {
            return None;
        }
        let from = &self.file.facts.as_ref().ok()?.path;
        let to = from.with_file_name(proposal);
        if to.symlink_metadata().is_ok() && !self.has_name(proposal) {
            return None;
        }
        let reference = &self.file.file.reference;
        let prefix = reference.strip_suffix(self.name)?;
        let mend = ValueChange::replace(self.file.file.path.clone(), format!("{prefix}{proposal}"));
        let mut fix = context.fix(Applicability::Unsafe, &mend)?;
        fix.title = format!("rename `{reference}` to `{prefix}{proposal}`");
        Some(fix.renaming(from.clone(), to))
    }

    fn finding(&self, proposal: Option<String>) -> Finding {
        let help = match (&self.fault, proposal) {
            (NameFault::OtherBackend(other), _) => {
                format!("if the file is for {other}, it belongs to another config; otherwise rename it")
            }
            (NameFault::OtherPrecision(other), _) => {
                format!("if the file is {other}, correct `precision`; otherwise rename it")
            }
            (_, Some(name)) => format!("the conventional name is `{name}`"),
            (_, None) => "the conventional name is `<model>[_<size>][_<component>]_<backend>_<precision>`; \
                          if that is taken, add a token that distinguishes the files"
                .to_owned(),
        };
        let anchor = Anchor::Value(self.file.file.path.clone());
        let message = describe(self.name, &self.fault, &self.expected);
        RULE.meta.finding(anchor, message).help(help)
    }
}

/// Returns a token of the config, unless it is invalid: then no name can follow it.
fn token<'t>(context: &Context<'_>, key: &str, token: Option<&'t str>) -> Option<&'t str> {
    let is_sound = || !context.is_violated_at(key);
    token.filter(|token| !is_placeholder(token) && is_sound())
}

fn describe(name: &str, fault: &NameFault, expected: &ExpectedName<'_>) -> String {
    match fault {
        NameFault::Characters => {
            format!("`{name}` has characters other than `a`–`z`, `0`–`9` and `_`")
        }
        NameFault::OtherBackend(other) => {
            format!("`{name}` says {other}, but the config's backend is {}", expected.backend)
        }
        NameFault::OtherPrecision(other) => {
            format!("`{name}` says {other}, but the variant's precision is {}", expected.precision)
        }
        NameFault::NoModel => format!(
            "`{name}` does not begin with the model token `{}`",
            expected.model.unwrap_or_default()
        ),
        NameFault::NoBackend => format!("`{name}` does not name the backend `{}`", expected.backend),
        NameFault::NoPrecision => {
            format!("`{name}` does not name the precision `{}`", expected.precision)
        }
    }
}
