//! Rule `variant-duplicate`: reports two variants with the same precision.

use std::collections::HashSet;
use std::path::Path;

use serde_json::{Map as Object, Value, json};

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding, Fix};
use pkgtool_base::package::{Config, Variant, naming};
use pkgtool_base::source::hashed::Map;
use pkgtool_base::source::{Editor, JsonPath};
use crate::validate::context::Context;
use crate::validate::listing::listed;
use crate::validate::mend::ValueChange;

/// Maximum number of variants that are compared pairwise.
const MAX_PAIRWISE_VARIANTS: usize = 8;

rule! {
    /// # What it checks
    /// No two variants of a config have the same precision.
    ///
    /// # Why
    /// Callers choose a variant by its precision. If two have the same one, the second cannot be
    /// selected.
    ///
    /// # Example
    /// Two variants with `"precision": "fp32"`.
    ///
    /// # Fix
    /// Correct the precision of one, or publish it as a model or size of its own. If the files are
    /// parts of one model (`encoder`, `decoder`), write one variant with `components`; `pkgtool fix
    /// --unsafe` does this. It also writes the precision in the file's name, if no other variant
    /// has it.
    ///
    /// # What it does not see
    /// Two tokens with the same meaning (`w4` and `4w` of a custom list).
    PKG009 "variant-duplicate" Warning fix Unsafe "Two variants have the same precision." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if !has_repetition(context.variants()) {
        return;
    }
    let merged = parts_of_one_model(context);
    let mut first = Map::default();
    for variant in context.variants() {
        let Some(precision) = &variant.precision else {
            continue;
        };
        let earlier = *first.entry(precision).or_insert(variant.position);
        if let Some(parts) = merged.iter().find(|parts| parts.precision == precision) {
            if parts.variants[1].1.position == variant.position {
                findings.push(parts.finding(context));
            }
        } else if earlier != variant.position {
            let anchor = Anchor::Value(variant.path.key("precision"));
            let message = format!("variant {earlier} already has the precision `{precision}`");
            let finding = RULE.meta.finding(anchor, message);
            let help = "callers choose a variant by its precision";
            let said = precision_in_name(context, variant, precision);
            let is_free = |token: &&str| {
                let mut variants = context.variants().iter();
                variants.all(|other| other.precision.as_deref() != Some(*token))
            };
            let fix = said.filter(is_free).and_then(|token| {
                let mend = ValueChange::replace(variant.path.key("precision"), token);
                context.fix(Applicability::Unsafe, &mend)
            });
            findings.push(finding.fix(fix).help(match said {
                Some(token) => format!("{help}; the file's name contains `{token}`"),
                None => help.to_owned(),
            }));
        }
    }
}

/// Variants of one precision whose files are the components of one model.
struct ModelParts<'a> {
    precision: &'a str,
    /// Component names and variants, in the order of the config.
    variants: Vec<(&'a str, &'a Variant)>,
}

/// Finds the precisions whose variants are all named after different components.
fn parts_of_one_model<'a>(context: &'a Context<'_>) -> Vec<ModelParts<'a>> {
    let Some(config) = &context.config else {
        return Vec::new();
    };
    let mut groups: Map<&str, Vec<&Variant>> = Map::default();
    for variant in &config.variants {
        if let Some(precision) = &variant.precision {
            groups.entry(precision).or_default().push(variant);
        }
    }
    let groups = groups.into_iter().filter(|(_, variants)| variants.len() > 1);
    let parts = groups.filter_map(|(precision, variants)| {
        let with_components = variants.into_iter().map(|variant| {
            context.names_all_files(variant).then_some(())?;
            Some((component(config, variant)?, variant))
        });
        let variants: Vec<(&str, &Variant)> = with_components.collect::<Option<_>>()?;
        let names: HashSet<&str> = variants.iter().map(|(name, _)| *name).collect();
        (names.len() == variants.len()).then_some(ModelParts { precision, variants })
    });
    parts.collect()
}

/// Returns the component in the name of a variant's file, between the model and the backend.
fn component<'v>(config: &Config, variant: &'v Variant) -> Option<&'v str> {
    let file = variant.files.first().filter(|_| !variant.has_components)?;
    let stem = Path::new(&file.reference).file_stem()?.to_str()?;
    let rest = stem.strip_prefix(config.model.as_deref()?)?.strip_prefix('_')?;
    let sized = config.size.as_deref().and_then(|size| rest.strip_prefix(size)?.strip_prefix('_'));
    let (name, _) = sized.unwrap_or(rest).split_once(&format!("_{}_", config.backend?.name()))?;
    let is_part = name.split('_').any(|word| naming::PARTS.contains(&word));
    is_part.then_some(name)
}

impl ModelParts<'_> {
    fn finding(&self, context: &Context<'_>) -> Finding {
        let positions: Vec<String> = self.variants.iter().map(|(_, one)| one.position.to_string()).collect();
        let names: Vec<String> = self.variants.iter().map(|(name, _)| format!("`{name}`")).collect();
        let message = format!(
            "the variants {} have the precision `{}`, and their files are parts of one model: {}",
            listed(&positions),
            self.precision,
            listed(&names)
        );
        let anchor = Anchor::Value(self.variants[1].1.path.key("precision"));
        let fix = self.merged(context).and_then(|mend| context.fix(Applicability::Unsafe, &mend));
        let fix = fix.map(|fix| Fix {
            title: format!("write {} as components of one variant", listed(&names)),
            ..fix
        });
        let finding = RULE.meta.finding(anchor, message).fix(fix);
        finding.help("these are components: write one variant with `components`, and `\"file\": null`")
    }

    /// Returns all variants, with one variant in place of the parts.
    fn merged(&self, context: &Context<'_>) -> Option<ValueChange> {
        let editor = context.editor().filter(|_| context.may_fix())?;
        let path = JsonPath::root().key("variants");
        let nodes = editor.document().node(&path)?.elements();
        let is_part = |position: usize| self.variants.iter().any(|(_, one)| one.position == position);
        let first = self.variants[0].1.position;
        let all = nodes.iter().enumerate().filter(|(at, _)| *at == first || !is_part(*at));
        let all = all.map(|(at, node)| if at == first { self.variant(&editor) } else { editor.value_of(node) });
        Some(ValueChange::replace(path, Value::Array(all.collect())))
    }

    fn variant(&self, editor: &Editor<'_>) -> Value {
        let (mut components, mut methods) = (Object::new(), Object::new());
        let mut size = Some(0_u64);
        for (name, variant) in &self.variants {
            let reference = variant.files.first().map(|file| file.reference.as_str());
            components.insert((*name).to_owned(), json!(reference));
            size = size.zip(variant.size_bytes).and_then(|(sum, size)| sum.checked_add(size));
            if let Some(declared) = editor.document().node(&variant.path.key("methods")) {
                methods.insert((*name).to_owned(), editor.value_of(declared));
            }
        }
        let mut variant = Object::new();
        variant.insert("precision".to_owned(), json!(self.precision));
        variant.insert("file".to_owned(), Value::Null);
        variant.insert("components".to_owned(), Value::Object(components));
        if let Some(size) = size {
            variant.insert("size_bytes".to_owned(), json!(size));
        }
        if !methods.is_empty() {
            variant.insert("methods".to_owned(), Value::Object(methods));
        }
        Value::Object(variant)
    }
}

/// Returns whether two variants look like components of one model.
pub(super) fn are_parts(context: &Context<'_>, one: usize, other: usize) -> bool {
    let variants = context.variants();
    let has = |parts: &ModelParts<'_>, at: usize| {
        parts.variants.iter().any(|(_, variant)| variant.position == variants[at].position)
    };
    variants[one].precision == variants[other].precision
        && parts_of_one_model(context).iter().any(|parts| has(parts, one) && has(parts, other))
}

/// Returns whether a precision may occur twice: compared for a few variants, assumed for many.
fn has_repetition(variants: &[Variant]) -> bool {
    let known = |variant: &Variant| variants.iter().filter(|other| other.precision == variant.precision).count();
    variants.len() > MAX_PAIRWISE_VARIANTS || variants.iter().any(|variant| known(variant) > 1)
}

/// Returns the other precision that the names of a variant's files contain.
fn precision_in_name<'a>(context: &'a Context<'_>, variant: &Variant, precision: &str) -> Option<&'a str> {
    let stems = variant.files.iter().filter_map(|file| Path::new(&file.reference).file_stem()?.to_str());
    let says = |token: &str| stems.clone().any(|stem| naming::has_token(stem, token));
    if says(precision) {
        return None;
    }
    let tokens = context.precisions.list.tokens().filter(|token| says(token));
    tokens.max_by_key(|token| token.len())
}
