//! The rules: one file each, one list of them all.
//!
//! A rule turns facts of a [`Context`] into findings and does nothing else. Its doc comment is
//! also what `pkgtool explain` prints, so it has fixed headings.

use super::context::Context;
use crate::diagnostic::{Finding, RuleMeta};
use crate::source::suggest;

/// A rule: what is fixed about it, and the check.
pub struct Rule {
    /// Code, name, severity, explanation.
    pub meta: RuleMeta,
    /// Adds the rule's findings.
    pub(super) check: fn(&Context<'_>, &mut Vec<Finding>),
}

/// Declares a rule; its doc comment becomes its explanation. `fix Safe` or `fix Unsafe` after the severity says that
/// findings can carry a fix, and the boldest kind of it.
macro_rules! rule {
    (
        $(#[doc = $doc:literal])+
        $code:ident $name:literal $severity:ident $(fix $fix:ident)? $summary:literal => $check:path
    ) => {
        $(#[doc = $doc])+
        pub(super) static RULE: crate::validate::rules::Rule = crate::validate::rules::Rule {
            meta: crate::diagnostic::RuleMeta {
                code: stringify!($code),
                name: $name,
                severity: crate::diagnostic::Severity::$severity,
                summary: $summary,
                fix: rule!(@fix $($fix)?),
                explanation: concat!($($doc, "\n"),+),
            },
            check: $check,
        };
    };
    (@fix) => { None };
    (@fix $fix:ident) => { Some(crate::diagnostic::Applicability::$fix) };
}

mod mismatch;

/// Declares the modules and the list of their rules, in the order of the codes.
macro_rules! rules {
    ($($module:ident),+ $(,)?) => {
        $(mod $module;)+

        /// All rules, in the order of their codes.
        pub static RULES: &[&Rule] = &[$(&$module::RULE),+];
    };
}

rules! {
    empty_file,
    json_syntax,
    json_duplicate_key,
    schema,
    legacy_field,
    precision_list_overlap,
    variant_file_xor_components,
    precision_unknown,
    variant_duplicate,
    placeholder,
    methods_nesting,
    methods_unknown_component,
    methods_missing,
    tensor_dim,
    file_missing,
    file_outside_package,
    file_empty,
    file_lfs_pointer,
    size_mismatch,
    file_unlisted,
    file_shared,
    tokenizer_invalid,
    tokenizer_expected,
    backend_directory,
    file_name,
    license_unknown,
    model_unreadable,
    model_format,
    method_not_in_model,
    method_undeclared,
    tensor_count,
    tensor_dtype,
    tensor_rank,
    tensor_shape,
    tensor_dynamic,
    tensor_name,
    tensor_inexpressible,
    backend_delegate,
    file_unreadable,
    external_data,
    findings_limit,
    config_foreign,
    config_missing,
    config_name,
    size_directory,
    variant_identical,
    backends_disagree,
    tokenizer_exchanged,
    config_duplicate,
    precision_evidence,
    variants_disagree,
    bundled_case,
    settings_invalid,
    license_not_allowed,
    backend_required,
    capability_required,
    exception_stale,
    baseline_stale,
    schema_id,
    file_name_case,
    card_disagrees,
}

pub(super) use backends_disagree::{backends_disagree, size_in_model};
pub use baseline_stale::baseline_stale;
pub(super) use config_duplicate::config_duplicate;
pub(super) use config_foreign::config_foreign;
pub(super) use config_missing::bare_directory;
pub use exception_stale::exception_stale;
pub(super) use file_unreadable::unreadable_directory;
pub(super) use findings_limit::findings_limit;
pub(super) use json_syntax::describe_fault;
pub(super) use schema_id::schema_id_differs;
pub use settings_invalid::settings_invalid;
pub(super) use size_directory::{is_other_size, is_size_token};
pub(super) use variants_disagree::variants_disagree;

/// Where all rules are found.
const LIST: &str = "`pkgtool rules` lists them";
/// Most rules that are suggested for a word.
const MAX_NEAR: usize = 5;

/// The rule of this code or name; else what to write instead.
pub fn rule_named(text: &str) -> Result<&'static RuleMeta, String> {
    let all = || RULES.iter().map(|rule| &rule.meta);
    let is_it = |meta: &&RuleMeta| meta.code.eq_ignore_ascii_case(text) || meta.name == text;
    if let Some(meta) = all().find(is_it) {
        return Ok(meta);
    }
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let code = digits.parse().map(|number: u16| format!("PKG{number:03}"));
    let by_number = all().find(|meta| code.as_deref() == Ok(meta.code));
    let by_name = || suggest::nearest(text, all().map(|meta| meta.name));
    if let Some(near) = by_number.map(|meta| meta.code).or_else(by_name) {
        return Err(format!("did you mean `{near}`? {LIST}"));
    }
    let word = text.to_ascii_lowercase().replace(['_', ' '], "-");
    let is_part = |meta: &&RuleMeta| word.len() > 2 && meta.name.contains(&word);
    let near: Vec<String> = all()
        .filter(is_part)
        .map(|meta| format!("`{}`", meta.name))
        .collect();
    Err(match &near[..] {
        [] => LIST.to_owned(),
        near => format!(
            "did you mean {}? {LIST}",
            near[..near.len().min(MAX_NEAR)].join(", ")
        ),
    })
}

/// Whether a rule tells of keys that stand twice.
pub(super) fn tells_repetition(rule: &Rule) -> bool {
    std::ptr::eq(rule, &raw const json_duplicate_key::RULE)
}

/// Whether a rule speaks of the directory in which a config stands.
pub(super) fn is_about_place(rule: &RuleMeta) -> bool {
    rule.code == backend_directory::RULE.meta.code
}
