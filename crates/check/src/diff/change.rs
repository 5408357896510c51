//! A single change with its location, and the set of all changes of one comparison.

use serde::Serialize;

use super::{ChangeKind, ChangeLevel};

/// The location of a change in a package. Fields are `None` for a change at a higher level.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ChangeLocation {
    /// The package: model, size and backend.
    pub package: String,
    /// Path of the config relative to the compared tree; the newer one if it moved.
    pub config: String,
    /// The variant, by its precision.
    pub variant: Option<String>,
    /// The component.
    pub component: Option<String>,
    /// The method.
    pub method: Option<String>,
}

/// A difference between two versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The kind of change.
    pub kind: &'static ChangeKind,
    /// The location.
    pub place: ChangeLocation,
    /// The changed part, in two or three words (`input 0`, `license`).
    pub subject: String,
    /// The old value; `None` if it did not exist.
    pub old: Option<String>,
    /// The new value; `None` if it no longer exists.
    pub new: Option<String>,
    /// Additional information.
    pub note: Option<String>,
}

/// All changes, the most important first.
#[derive(Debug, Default)]
pub struct Difference {
    /// The changes, by package, then by level, then in the order of the package.
    pub changes: Vec<Change>,
    /// Number of compared packages.
    pub compared: usize,
    /// Files that could not be compared, with the reason.
    pub notes: Vec<String>,
}

/// Number of changes at each level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ChangeSummary {
    /// Breaking changes.
    pub breaking: usize,
    /// Compatible changes.
    pub compatible: usize,
    /// Cosmetic changes.
    pub cosmetic: usize,
}

impl ChangeLocation {
    /// Returns this location narrowed to a variant.
    pub(super) fn variant(&self, variant: &str) -> Self {
        Self {
            variant: Some(variant.to_owned()),
            ..self.clone()
        }
    }

    /// Returns this location narrowed to a component.
    pub(super) fn component(&self, component: Option<&str>) -> Self {
        Self {
            component: component.map(str::to_owned),
            ..self.clone()
        }
    }

    /// Returns this location narrowed to a method.
    pub(super) fn method(&self, method: &str) -> Self {
        Self {
            method: Some(method.to_owned()),
            ..self.clone()
        }
    }

    /// Returns variant, component and method in one line; empty for the package as a whole.
    pub fn inside(&self) -> String {
        let parts = [&self.variant, &self.component, &self.method];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        parts.join(" ")
    }
}

impl Change {
    /// Creates a change from an old to a new value.
    pub(super) fn new(
        kind: &'static ChangeKind,
        place: &ChangeLocation,
        subject: impl Into<String>,
        old: impl Into<Option<String>>,
        new: impl Into<Option<String>>,
    ) -> Self {
        Self {
            kind,
            place: place.clone(),
            subject: subject.into(),
            old: old.into(),
            new: new.into(),
            note: None,
        }
    }

    /// Adds a note.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Describes the change in one line.
    pub fn message(&self) -> String {
        let what = match (&self.old, &self.new) {
            (Some(old), Some(new)) => format!("{}: {old} → {new}", self.subject),
            (Some(old), None) => format!("{} is gone: {old}", self.subject),
            (None, Some(new)) => format!("{} is new: {new}", self.subject),
            (None, None) => self.subject.clone(),
        };
        match &self.note {
            Some(note) => format!("{what} ({note})"),
            None => what,
        }
    }
}

impl Difference {
    /// Counts the changes at each level.
    pub fn summary(&self) -> ChangeSummary {
        let count = |level| {
            let changes = self.changes.iter();
            changes.filter(|one| one.kind.level == level).count()
        };
        ChangeSummary {
            breaking: count(ChangeLevel::Breaking),
            compatible: count(ChangeLevel::Compatible),
            cosmetic: count(ChangeLevel::Cosmetic),
        }
    }

    /// Groups the changes by package, the most severe first.
    pub(super) fn sort(&mut self) {
        self.changes.sort_by(|a, b| {
            let key = |change: &Change| (change.place.package.clone(), change.place.config.clone());
            let packages = key(a).cmp(&key(b));
            packages.then_with(|| a.kind.level.cmp(&b.kind.level))
        });
    }
}
