//! Applies settings, exceptions and baselines to findings: decides which ones are reported, and
//! with which severity.
//!
//! Invariant: findings are only removed or given another severity. The only added findings are
//! about the settings themselves.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use toml::value::Date;

use super::baseline::{self, BaselineEntry, KnownFindings};
use super::contradiction::Contradictions;
use super::lookup::Lookup;
use super::selector::RuleLevel;
use super::settings::{Exception, PolicySettings};
use crate::validate::{baseline_stale, exception_stale, rule_metas, settings_invalid};
use pkgtool_base::diagnostic::{Anchor, Diagnostic, IdentityCache, Report, Severity, SourceText};
use pkgtool_base::source::{JsonPath, Span};

/// Maximum number of baseline entries that a message lists.
const MAX_LISTED_ENTRIES: usize = 3;

/// The baselines of a run.
#[derive(Debug, Default)]
pub(super) struct Baselines {
    /// The baseline from the command line, which overrides those in settings.
    pub(super) given: Option<(PathBuf, KnownFindings)>,
    /// Set if baselines in settings are ignored.
    pub(super) ignores_settings: bool,
}

/// The result of a judgement besides the report.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    /// Number of warnings that count as errors because of settings.
    pub(super) denied_warnings: usize,
    /// Number of findings that baselines list.
    pub(super) known: usize,
    /// Absolute paths of the checked files; empty if they are not needed.
    pub(super) checked: BTreeSet<OsString>,
}

/// The judgement of one report.
pub(super) struct Judge<'p> {
    pub(super) lookup: &'p Lookup,
    pub(super) baselines: &'p Baselines,
    /// Set if all rules could run. Without models, a missing finding may still exist.
    pub(super) is_complete: bool,
    /// Set if a baseline is being written.
    pub(super) writes: bool,
    /// Contradictions in settings that were found while files were checked.
    pub(super) contradictions: Option<&'p Contradictions>,
    pub(super) today: Date,
    identities: RefCell<IdentityCache>,
    used: RefCell<BTreeSet<(PathBuf, JsonPath)>>,
    known: RefCell<BTreeMap<PathBuf, OpenBaseline>>,
}

/// A baseline and the entries that no finding has matched yet.
struct OpenBaseline {
    left: KnownFindings,
    /// The settings that name the baseline, and the location in their file.
    named: Option<(Arc<PolicySettings>, Span)>,
    problem: Option<String>,
}

impl<'p> Judge<'p> {
    pub(super) fn new(lookup: &'p Lookup, baselines: &'p Baselines, is_complete: bool) -> Self {
        let mut known = BTreeMap::new();
        if let Some((file, entries)) = &baselines.given {
            let room = OpenBaseline {
                left: entries.clone(),
                named: None,
                problem: None,
            };
            known.insert(file.clone(), room);
        }
        Self {
            lookup,
            baselines,
            is_complete,
            writes: false,
            contradictions: None,
            today: today(),
            identities: RefCell::default(),
            used: RefCell::default(),
            known: RefCell::new(known),
        }
    }

    pub(super) fn judge(&self, report: &mut Report) -> Judgement {
        let mut judgement = Judgement::default();
        let roots = self.lookup.roots();
        let absolute = |path: &String| roots.absolute(Path::new(path));
        // Sort in the order of the report, so that the first of several equal findings count as
        // known.
        report.diagnostics.sort_by(|a, b| {
            let key = |it: &Diagnostic| (it.span.start, it.span.end, it.rule.code);
            a.source
                .path
                .cmp(&b.source.path)
                .then_with(|| key(a).cmp(&key(b)))
        });
        let mut settings_of: HashMap<String, (PathBuf, Option<Arc<PolicySettings>>)> =
            HashMap::new();
        for diagnostic in &report.diagnostics {
            let shown = &diagnostic.source.path;
            if !settings_of.contains_key(shown) {
                let file = absolute(shown);
                let settings = self.lookup.of(file.parent().unwrap_or(&file));
                settings_of.insert(shown.clone(), (file, settings));
            }
        }
        self.read_baselines();
        // The checked files are needed only with settings or baselines.
        let is_settled = !self.lookup.all_read().is_empty() || !self.known.borrow().is_empty();
        if is_settled || self.writes {
            let checked = report.files.iter().map(|path| absolute(path).into());
            judgement.checked = checked.collect();
        }
        for mut diagnostic in std::mem::take(&mut report.diagnostics) {
            let shown = &diagnostic.source.path;
            let (file, settings) = &settings_of[shown];
            let settings = settings.as_ref();
            if settings.is_some_and(|settings| !self.lets_through(settings, file, &mut diagnostic))
            {
                continue;
            }
            if self.is_known(settings, &diagnostic) {
                judgement.known += 1;
                continue;
            }
            let denies = settings.is_some_and(|settings| settings.deny_warnings);
            if denies && diagnostic.severity == Severity::Warning {
                judgement.denied_warnings += 1;
                report.denied.insert(diagnostic.source.path.clone());
            }
            report.diagnostics.push(diagnostic);
        }
        self.report_settings(report, &judgement.checked);
        self.report_baselines(report, &judgement.checked);
        judgement
    }

    /// Returns whether settings let a finding through, and sets its severity to theirs.
    fn lets_through(
        &self,
        settings: &PolicySettings,
        file: &Path,
        diagnostic: &mut Diagnostic,
    ) -> bool {
        if !settings.is_enabled_for(diagnostic.rule, file) {
            return false;
        }
        if let Some(relative) = settings.relative(file)
            && !settings.exceptions.is_empty()
        {
            let relative = relative
                .to_string_lossy()
                .replace(std::path::MAIN_SEPARATOR, "/");
            if self.is_excepted(settings, &relative, diagnostic) {
                return false;
            }
        }
        if let Some(RuleLevel::At(severity)) = settings.level(diagnostic.rule) {
            diagnostic.severity = severity;
        }
        true
    }

    fn is_excepted(&self, settings: &PolicySettings, file: &str, diagnostic: &Diagnostic) -> bool {
        let of_rule = |one: &&Exception| {
            one.rule.code == diagnostic.rule.code && one.file == file && one.holds_on(self.today)
        };
        let mut candidates = settings.exceptions.iter().filter(of_rule).peekable();
        if candidates.peek().is_none() {
            return false;
        }
        let stable = self.identities.borrow_mut().pointer(diagnostic);
        let pointers = [diagnostic.pointer.as_str(), stable.as_str()];
        let mut is_excepted = false;
        // Every matching exception counts as used, since none is better than the others.
        for one in candidates.filter(|one| one.is_at(file, pointers)) {
            is_excepted = true;
            if let Some((path, _)) = &settings.file {
                self.used
                    .borrow_mut()
                    .insert((path.clone(), one.place.0.clone()));
            }
        }
        is_excepted
    }

    fn is_known(&self, settings: Option<&Arc<PolicySettings>>, diagnostic: &Diagnostic) -> bool {
        let named = settings.and_then(|settings| settings.baseline.as_ref());
        let file = match (&self.baselines.given, named) {
            (Some((file, _)), _) => file.clone(),
            (None, Some((file, _))) if !self.baselines.ignores_settings => file.clone(),
            _ => return false,
        };
        let entry = self.entry(&file, diagnostic);
        let mut known = self.known.borrow_mut();
        match known
            .get_mut(&file)
            .and_then(|room| room.left.get_mut(&entry))
        {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Reads the baselines named in settings.
    fn read_baselines(&self) {
        if self.baselines.given.is_some() || self.baselines.ignores_settings {
            return;
        }
        let mut known = self.known.borrow_mut();
        for settings in self.lookup.all_read() {
            let Some((file, span)) = settings.baseline.clone() else {
                continue;
            };
            known.entry(file.clone()).or_insert_with(|| {
                let (left, problem) = match baseline::read(&file) {
                    Ok(entries) => (entries, None),
                    Err(reason) => (KnownFindings::new(), Some(reason)),
                };
                OpenBaseline {
                    left,
                    named: Some((settings, span)),
                    problem,
                }
            });
        }
    }

    /// Returns the baseline entry of a finding.
    fn entry(&self, baseline: &Path, diagnostic: &Diagnostic) -> BaselineEntry {
        let directory = baseline.parent().unwrap_or(baseline);
        let path = baseline::relative(self.lookup.roots(), directory, &diagnostic.source.path);
        let identity = self.identities.borrow_mut().of(diagnostic, &path);
        BaselineEntry::new(identity, diagnostic.rule.name)
    }

    /// Returns the entries of all findings of a report, for a new baseline.
    pub(super) fn entries(&self, baseline: &Path, report: &Report) -> KnownFindings {
        let mut known = KnownFindings::new();
        for diagnostic in &report.diagnostics {
            *known.entry(self.entry(baseline, diagnostic)).or_default() += 1;
        }
        known
    }

    fn report_settings(&self, report: &mut Report, checked: &BTreeSet<OsString>) {
        for settings in self.lookup.all_read() {
            let Some((file, source)) = &settings.file else {
                continue;
            };
            let before = report.diagnostics.len();
            report.diagnostics.extend(settings.findings.iter().cloned());
            let contradictions = self.contradictions.map(|all| all.of(&settings));
            for finding in contradictions.into_iter().flatten() {
                report.diagnostics.push(finding.locate(source, None));
            }
            for one in &settings.exceptions {
                if let Some(message) = self.stale_reason(&settings, file, one, checked) {
                    let (path, span) = one.place.clone();
                    let finding = exception_stale(Anchor::At(path, span), message);
                    let help = "remove it, or correct its rule, file or pointer";
                    add_finding(report, &settings, finding.help(help).locate(source, None));
                }
            }
            if report.diagnostics.len() > before && !report.files.contains(&source.path) {
                report.files.push(source.path.clone());
            }
        }
    }

    fn stale_reason(
        &self,
        settings: &PolicySettings,
        file: &Path,
        one: &Exception,
        checked: &BTreeSet<OsString>,
    ) -> Option<String> {
        let Exception { rule, until, .. } = one;
        let name = rule.name;
        if let Some(until) = until.filter(|_| !one.holds_on(self.today)) {
            return Some(format!(
                "the exception for `{name}` in {} expired on {until}",
                one.file
            ));
        }
        let target = settings.root.join(&one.file);
        if self
            .used
            .borrow()
            .contains(&(file.to_owned(), one.place.0.clone()))
            || !self.is_complete
            || !settings.is_enabled_for(rule, &target)
        {
            return None;
        }
        if checked.contains(target.as_os_str()) {
            let place = if one.pointer.is_empty() { "" } else { " at " };
            let pointer = &one.pointer;
            return Some(format!(
                "unused exception: `{name}` has no findings in {}{place}{pointer}",
                one.file
            ));
        }
        let is_gone = target.symlink_metadata().is_err();
        is_gone.then(|| {
            format!(
                "the exception for `{name}` names a missing file: {}",
                one.file
            )
        })
    }

    fn report_baselines(&self, report: &mut Report, checked: &BTreeSet<OsString>) {
        for (file, room) in self.known.borrow().iter() {
            if let (Some(problem), Some((settings, span))) = (&room.problem, &room.named) {
                if let Some((_, source)) = &settings.file {
                    let anchor = Anchor::At(JsonPath::root().key("baseline"), *span);
                    let shown = self.lookup.roots().shown(file);
                    let message = format!("unusable baseline {shown}: {problem}");
                    let help = format!("write it with `pkgtool validate --write-baseline {shown}`");
                    let finding = settings_invalid(anchor, message).help(help);
                    report.diagnostics.push(finding.locate(source, None));
                    report.files.push(source.path.clone());
                }
                continue;
            }
            let stale = self.stale(file, &room.left, checked);
            if stale.is_empty() {
                continue;
            }
            let shown = self.lookup.roots().shown(file);
            let count: usize = stale.values().sum();
            let named = stale.keys().take(MAX_LISTED_ENTRIES);
            let named: Vec<String> = named.map(place_of).collect();
            let more = match stale.len().saturating_sub(MAX_LISTED_ENTRIES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let plural = if count == 1 { " is" } else { "s are" };
            let message = format!(
                "{count} known finding{plural} gone: {}{more}",
                named.join(", ")
            );
            let finding = baseline_stale(Anchor::File, message).help(format!(
                "update it with `pkgtool validate --write-baseline {shown}`"
            ));
            let source = Arc::new(SourceText::new(shown.clone(), String::new()));
            let settings = self.lookup.of(file.parent().unwrap_or(file));
            let before = report.diagnostics.len();
            match settings {
                Some(settings) => add_finding(report, &settings, finding.locate(&source, None)),
                None => report.diagnostics.push(finding.locate(&source, None)),
            }
            if report.diagnostics.len() > before {
                report.files.push(shown);
            }
        }
        report.files.sort();
        report.files.dedup();
    }

    /// Returns the unmatched entries of a baseline whose findings are certain to be gone.
    pub(super) fn stale(
        &self,
        file: &Path,
        left: &KnownFindings,
        checked: &BTreeSet<OsString>,
    ) -> KnownFindings {
        let directory = file.parent().unwrap_or(file);
        let roots = self.lookup.roots();
        let is_gone = |entry: &BaselineEntry| {
            let file = roots.absolute(&directory.join(&entry.file));
            let settings = self.lookup.of(file.parent().unwrap_or(&file));
            let rule = rule_metas()
                .into_iter()
                .find(|rule| rule.name == entry.rule);
            // Entries of rules that this version lacks are kept for other versions.
            let is_looked_at = rule.is_some_and(|rule| {
                settings.is_none_or(|settings| settings.is_enabled_for(rule, &file))
            });
            is_looked_at && (checked.contains(file.as_os_str()) || file.symlink_metadata().is_err())
        };
        if !self.is_complete {
            return KnownFindings::new();
        }
        let left = left.iter().filter(|(_, count)| **count > 0);
        let stale = left.filter(|(entry, _)| is_gone(entry));
        stale
            .map(|(entry, count)| (entry.clone(), *count))
            .collect()
    }
}

/// Adds a finding about settings, unless they disable its rule.
fn add_finding(report: &mut Report, settings: &PolicySettings, mut diagnostic: Diagnostic) {
    if !settings.is_enabled(diagnostic.rule) {
        return;
    }
    if let Some(RuleLevel::At(severity)) = settings.level(diagnostic.rule) {
        diagnostic.severity = severity;
    }
    report.diagnostics.push(diagnostic);
}

fn place_of(entry: &BaselineEntry) -> String {
    let BaselineEntry {
        file,
        rule,
        pointer,
        ..
    } = entry;
    format!("`{rule}` at {file}#{pointer}")
}

/// Returns today's date in UTC, in the proleptic Gregorian calendar.
fn today() -> Date {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut days = since.as_secs() / 86_400;
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    let february = 28 + u64::from(is_leap(year));
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    Date {
        year: u16::try_from(year).unwrap_or(u16::MAX),
        month,
        day: u8::try_from(days + 1).unwrap_or(u8::MAX),
    }
}
