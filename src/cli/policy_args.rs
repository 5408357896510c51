//! Command line options for settings, rules and baselines, and the output of `--show-settings`.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::json;

use super::exit::{Exit, Failure};
use super::output;
use pkgtool_base::package::{Backend, PrecisionList};
use pkgtool_check::policy::{
    Glob, Origin, Overrides, Policy, PolicyError, PolicyOutcome, PolicySettings, RuleLevel,
    Selector,
};
use pkgtool_check::validate;

/// Options that choose the settings file.
#[derive(Debug, clap::Args)]
pub(super) struct SettingsArgs {
    /// Use this settings file for all files, instead of each pkgtool.toml from a file's directory
    /// up to the root of its checkout
    #[arg(long, value_name = "FILE", conflicts_with = "no_config")]
    config: Option<PathBuf>,

    /// Ignore every pkgtool.toml
    #[arg(long)]
    no_config: bool,
}

/// Options for settings, rules and baselines.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rules and settings")]
pub(super) struct PolicyArgs {
    #[command(flatten)]
    settings: SettingsArgs,

    /// Print the settings in force for each PATH instead of checking it
    #[arg(long)]
    show_settings: bool,

    /// Enable only these rules, overriding the `select` and `ignore` settings: codes, names,
    /// prefixes of them (PKG03, tensor), or all
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = selector)]
    select: Vec<Selector>,

    /// Disable these rules
    #[arg(long, value_name = "RULES", value_delimiter = ',', value_parser = selector)]
    ignore: Vec<Selector>,

    /// Set the severity of a rule: error, warning, note or off
    #[arg(long, value_name = "RULE=LEVEL", value_delimiter = ',', value_parser = severity)]
    severity: Vec<(Selector, RuleLevel)>,

    /// Exclude paths that match this glob when walking directories. The syntax is that of
    /// .gitignore, relative to the working directory
    #[arg(long, value_name = "GLOB", value_parser = glob)]
    exclude: Vec<Glob>,

    /// Also walk into paths that Git ignores
    #[arg(long)]
    no_gitignore: bool,

    /// Allow this licence. If given, all other licences are rejected
    #[arg(long = "allow-license", value_name = "SPDX", value_delimiter = ',')]
    licenses: Vec<String>,

    /// Require every model to have this backend
    #[arg(long = "require-backend", value_name = "BACKEND", value_delimiter = ',', value_parser = backend)]
    backends: Vec<Backend>,

    /// Require every model to have this capability
    #[arg(long = "require-capability", value_name = "WORD", value_delimiter = ',', value_parser = capability)]
    capabilities: Vec<String>,

    /// Add a precision token to the precision list, with its meaning: int2=quantized,
    /// tf32=non-quantized
    #[arg(long = "extra-precision", value_name = "TOKEN=KIND", value_delimiter = ',', value_parser = precision)]
    extra: Vec<(String, PrecisionKind)>,

    /// Report only findings that this baseline file does not list
    #[arg(long, value_name = "FILE", conflicts_with = "write_baseline")]
    baseline: Option<PathBuf>,

    /// Write all findings to this baseline file, and report only errors in settings
    #[arg(long, value_name = "FILE")]
    write_baseline: Option<PathBuf>,
}

/// The meaning of a precision token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PrecisionKind {
    /// The variant is quantized
    Quantized,
    /// The variant is not quantized
    NonQuantized,
}

impl SettingsArgs {
    /// Returns the policy of these settings, overridden by the command line.
    pub(super) fn policy(&self, overrides: Overrides) -> Result<Policy, Failure> {
        let origin = match &self.config {
            Some(file) => Origin::File(file.clone()),
            None if self.no_config => Origin::Nothing,
            None => Origin::Nearest,
        };
        Policy::new(origin, overrides).map_err(|error| failure(&error))
    }
}

impl PolicyArgs {
    /// Returns the policy that these options describe.
    pub(super) fn policy(&self) -> Result<Policy, Failure> {
        let both = |(token, kind): &(String, PrecisionKind)| {
            let mut others = self.extra.iter();
            others.any(|(other, is)| other == token && is != kind)
        };
        if let Some((token, _)) = self.extra.iter().find(|one| both(one)) {
            return Err(Failure::Other(format!(
                "--extra-precision: `{token}` is given as quantized and as non-quantized: remove one of them"
            )));
        }
        let policy = self.settings.policy(self.overrides())?;
        match (&self.baseline, &self.write_baseline) {
            (Some(file), _) => policy.with_baseline(file).map_err(|error| failure(&error)),
            (_, Some(file)) => Ok(policy.writing_baseline(file)),
            _ => Ok(policy),
        }
    }

    fn overrides(&self) -> Overrides {
        let tokens = |kind| {
            let of_kind = self.extra.iter().filter(move |(_, it)| *it == kind);
            of_kind.map(|(token, _)| token.clone()).collect()
        };
        Overrides {
            select: self.select.clone(),
            ignore: self.ignore.clone(),
            severity: self.severity.clone(),
            exclude: self.exclude.clone(),
            no_gitignore: self.no_gitignore,
            extra: PrecisionList {
                quantized: tokens(PrecisionKind::Quantized),
                non_quantized: tokens(PrecisionKind::NonQuantized),
            },
            licenses: self.licenses.clone(),
            backends: self.backends.clone(),
            capabilities: self.capabilities.clone(),
        }
    }

    /// Returns whether to print the settings instead of checking.
    pub(super) fn shows_settings(&self) -> bool {
        self.show_settings
    }

    /// Returns the directory that the settings make report paths relative to, if any.
    pub(super) fn root(policy: &Policy, paths: &[PathBuf]) -> Option<PathBuf> {
        let settings = policy.settings_for(paths.first()?)?;
        settings.has_root.then(|| settings.root.clone())
    }

    /// Prints a note about a written baseline file.
    pub(super) fn note_baseline(ruled: &PolicyOutcome) {
        if let Some(written) = &ruled.written {
            let file = &written.file;
            let count = count(written.findings, "known finding");
            let (new, gone) = (written.new, written.gone);
            output::note(&format!("{file} has {count}: {new} new, {gone} gone"));
        }
    }

    /// Prints the settings in force for each path.
    pub(super) fn show(policy: &Policy, paths: &[PathBuf]) -> Result<Exit, Failure> {
        let mut text = String::new();
        for path in paths {
            let settings = policy.settings_for(path);
            let shown = path.display();
            if !text.is_empty() {
                text.push('\n');
            }
            match settings {
                None => text.extend(["# ", &shown.to_string(), ": no settings\n"]),
                Some(settings) => describe(&mut text, path, &settings, policy),
            }
        }
        output::print(&text)?;
        Ok(Exit::Clean)
    }
}

fn failure(error: &PolicyError) -> Failure {
    Failure::Other(error.to_string())
}

/// Writes settings as TOML without unset keys, and the resulting level of each rule.
fn describe(text: &mut String, path: &Path, settings: &PolicySettings, policy: &Policy) {
    let from = match &settings.file {
        Some((_, source)) => source.path.as_str(),
        None => "the command line",
    };
    let tighter: Vec<String> = settings
        .tightened_by
        .iter()
        .map(|file| format!(", tightened by {file}"))
        .collect();
    let mut lines = vec![format!(
        "# {}: settings of {from}{}",
        path.display(),
        tighter.concat()
    )];
    let names = |list: &[Selector]| -> Vec<String> {
        list.iter().map(|one| one.text().to_owned()).collect()
    };
    lines.push(format!("root = {}", json!(policy.shown(&settings.root))));
    if let Some(select) = &settings.select {
        lines.push(format!("select = {}", json!(names(select))));
    }
    let globs = settings.exclude.iter().map(Glob::text);
    let mut list = |key: &str, words: Vec<String>| {
        if !words.is_empty() {
            lines.push(format!("{key} = {}", json!(words)));
        }
    };
    list("ignore", names(&settings.ignore));
    list("exclude", globs.map(str::to_owned).collect());
    list(
        "allow-licenses",
        settings.licenses.clone().unwrap_or_default(),
    );
    let backends = settings
        .backends
        .iter()
        .map(|backend| backend.name().to_owned());
    list("require-backends", backends.collect());
    list("require-capabilities", settings.capabilities.clone());
    let respects = settings.respect_gitignore.unwrap_or(true);
    lines.push(format!("respect-gitignore = {respects}"));
    lines.push(format!("deny-warnings = {}", settings.deny_warnings));
    for (number, overlay) in settings.overlays.iter().enumerate() {
        let mark = if number == 0 { "" } else { "# also " };
        lines.push(format!("{mark}schema = {}", json!(overlay.file())));
    }
    if let Some(id) = &settings.schema_id {
        lines.push(format!("schema-id = {}", json!(id)));
    }
    if let Some((file, _)) = &settings.baseline {
        lines.push(format!("baseline = {}", json!(policy.shown(file))));
    }
    let extra = &settings.extra;
    if extra.tokens().next().is_some() {
        let (quantized, others) = (json!(extra.quantized), json!(extra.non_quantized));
        lines.push(format!(
            "extra-precisions = {{ quantized = {quantized}, non-quantized = {others} }}"
        ));
    }
    if !settings.per_path_ignores.is_empty() {
        lines.push("\n[per-path-ignores]".to_owned());
        for (glob, rules) in &settings.per_path_ignores {
            lines.push(format!("{} = {}", json!(glob.text()), json!(names(rules))));
        }
    }
    let levels = validate::rule_metas().into_iter().filter_map(|rule| {
        let level = match (settings.is_enabled(rule), settings.level(rule)) {
            (false, _) => RuleLevel::Off,
            (true, level) => level.filter(|level| *level != RuleLevel::At(rule.severity))?,
        };
        Some(format!("{} = \"{}\"", rule.name, level.name()))
    });
    let levels: Vec<String> = levels.collect();
    if !levels.is_empty() {
        lines.push("\n[severity]".to_owned());
        lines.extend(levels);
    }
    for one in &settings.exceptions {
        lines.push("\n[[exception]]".to_owned());
        lines.push(format!("file = {}", json!(one.file)));
        lines.push(format!("pointer = {}", json!(one.pointer)));
        lines.push(format!("rule = {}", json!(one.rule.name)));
        lines.push(format!("reason = {}", json!(one.reason)));
        lines.extend(one.until.map(|until| format!("until = {until}")));
    }
    let wrong = settings.findings.len();
    if wrong > 0 {
        lines.push(format!(
            "\n# {} in this file; run `pkgtool validate {from}` to show them",
            count(wrong, "error")
        ));
    }
    for line in lines {
        let written = writeln!(text, "{line}");
        debug_assert!(written.is_ok(), "writing to a string cannot fail");
    }
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

fn selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|help| format!("unknown rule `{text}`: {help}"))
}

fn severity(text: &str) -> Result<(Selector, RuleLevel), String> {
    let (rule, level) = text
        .split_once('=')
        .ok_or("expected RULE=LEVEL, for example size-mismatch=warning")?;
    let level = RuleLevel::from_name(level).ok_or_else(|| {
        format!(
            "unknown level `{level}`: expected one of {}",
            RuleLevel::NAMES.join(", ")
        )
    })?;
    Ok((selector(rule)?, level))
}

fn glob(text: &str) -> Result<Glob, String> {
    Glob::parse(text).map_err(|(message, help)| format!("{message}: {help}"))
}

fn backend(text: &str) -> Result<Backend, String> {
    let names = Backend::ALL.map(Backend::name).join(", ");
    Backend::from_name(text)
        .ok_or_else(|| format!("unknown backend `{text}`: expected one of {names}"))
}

fn capability(text: &str) -> Result<String, String> {
    let known = pkgtool_check::policy::capabilities();
    if known.iter().any(|word| word == text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "unknown capability `{text}`: expected one of {}",
        known.join(", ")
    ))
}

fn precision(text: &str) -> Result<(String, PrecisionKind), String> {
    let expected =
        || "expected TOKEN=KIND, for example int2=quantized or tf32=non-quantized".to_owned();
    let (token, kind) = text.split_once('=').ok_or_else(expected)?;
    let is_token = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    if token.is_empty() || !token.bytes().all(is_token) {
        return Err(format!(
            "invalid token `{token}`: expected only `a`–`z`, `0`–`9` and `_`"
        ));
    }
    let kind = PrecisionKind::from_str(kind, false).map_err(|_| expected())?;
    Ok((token.to_owned(), kind))
}
