//! The validation rules, one module each, and the list of all of them.
//!
//! A rule turns the facts in a [`Context`] into findings and has no other effect. The doc comment
//! of a rule is its explanation: `pkgtool explain` prints it, so its headings are fixed.

use super::context::Context;
use pkgtool_base::diagnostic::{Finding, RuleMeta};
use pkgtool_base::source::suggest;

/// A validation rule: its metadata and its check.
pub struct Rule {
    /// Code, name, severity, explanation.
    pub meta: RuleMeta,
    /// Appends the rule's findings.
    pub(super) check: fn(&Context<'_>, &mut Vec<Finding>),
}

/// Declares a rule. Its doc comment becomes its explanation. `fix Safe` or `fix Unsafe` after the
/// severity declares that findings can carry a fix; `fix Unsafe` if any of the fixes is unsafe.
macro_rules! rule {
    (
        $(#[doc = $doc:literal])+
        $code:ident $name:literal $severity:ident $(fix $fix:ident)? $summary:literal => $check:path
    ) => {
        $(#[doc = $doc])+
        pub(super) static RULE: crate::validate::rules::Rule = crate::validate::rules::Rule {
            meta: pkgtool_base::diagnostic::RuleMeta {
                code: stringify!($code),
                name: $name,
                severity: pkgtool_base::diagnostic::Severity::$severity,
                summary: $summary,
                fix: rule!(@fix $($fix)?),
                explanation: concat!($($doc, "\n"),+),
            },
            check: $check,
        };
    };
    (@fix) => { None };
    (@fix $fix:ident) => { Some(pkgtool_base::diagnostic::Applicability::$fix) };
}

mod mismatch;

/// Declares the rule modules and lists their rules in the order of the codes.
macro_rules! rules {
    ($($module:ident),+ $(,)?) => {
        $(mod $module;)+

        /// All rules in the order of their codes.
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

/// Advice that ends every suggestion: how to list all rules.
const LIST: &str = "`pkgtool rules` lists them";
/// Maximum number of rules suggested for an unknown name.
const MAX_SUGGESTIONS: usize = 5;

/// Returns the rule with this code or name, or a suggestion as the error.
pub fn find_rule(text: &str) -> Result<&'static RuleMeta, String> {
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
            near[..near.len().min(MAX_SUGGESTIONS)].join(", ")
        ),
    })
}

/// Returns whether this is the rule that reports duplicate keys.
pub(super) fn reports_duplicate_keys(rule: &Rule) -> bool {
    std::ptr::eq(rule, &raw const json_duplicate_key::RULE)
}

/// Returns whether this is the rule that checks the name of a config's directory.
pub(super) fn checks_directory_name(rule: &RuleMeta) -> bool {
    rule.code == backend_directory::RULE.meta.code
}
