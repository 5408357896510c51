//! A change, where it is, how much it matters; all changes of one comparison.

use serde::Serialize;

use super::{Kind, Level};

/// Where in a package; what is absent was not narrowed down.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Place {
    /// The package: model, size and backend.
    pub package: String,
    /// Path of the config, below what was compared; the newer one where both have it.
    pub config: String,
    /// The variant, by its precision.
    pub variant: Option<String>,
    /// The component.
    pub component: Option<String>,
    /// The method.
    pub method: Option<String>,
}

/// Something that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What kind of change.
    pub kind: &'static Kind,
    /// Where.
    pub place: Place,
    /// What of it, in two or three words (`input 0`, `license`).
    pub subject: String,
    /// How it was; `None` where there was nothing.
    pub old: Option<String>,
    /// How it is; `None` where nothing is.
    pub new: Option<String>,
    /// Anything else worth knowing.
    pub note: Option<String>,
}

/// All changes, those that matter most first.
#[derive(Debug, Default)]
pub struct Difference {
    /// The changes, by package, then by level, then in the order of the package.
    pub changes: Vec<Change>,
    /// How many packages were held against each other.
    pub compared: usize,
    /// What could not be compared, and why.
    pub notes: Vec<String>,
}

/// How many changes of each level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Breaking ones.
    pub breaking: usize,
    /// Compatible ones.
    pub compatible: usize,
    /// Cosmetic ones.
    pub cosmetic: usize,
}

impl Place {
    /// The same place, at a variant.
    pub(super) fn variant(&self, variant: &str) -> Self {
        Self {
            variant: Some(variant.to_owned()),
            ..self.clone()
        }
    }

    /// The same place, at a component.
    pub(super) fn component(&self, component: Option<&str>) -> Self {
        Self {
            component: component.map(str::to_owned),
            ..self.clone()
        }
    }

    /// The same place, at a method.
    pub(super) fn method(&self, method: &str) -> Self {
        Self {
            method: Some(method.to_owned()),
            ..self.clone()
        }
    }

    /// Variant, component and method in one line; empty for the package as a whole.
    pub fn inside(&self) -> String {
        let parts = [&self.variant, &self.component, &self.method];
        let parts: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        parts.join(" ")
    }
}

impl Change {
    /// A change of something from one thing to another.
    pub(super) fn new(
        kind: &'static Kind,
        place: &Place,
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

    /// Says more.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// What changed, in one line.
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
    /// Counts.
    pub fn summary(&self) -> Summary {
        let count = |level| {
            let changes = self.changes.iter();
            changes.filter(|one| one.kind.level == level).count()
        };
        Summary {
            breaking: count(Level::Breaking),
            compatible: count(Level::Compatible),
            cosmetic: count(Level::Cosmetic),
        }
    }

    /// Puts the changes of each package together, the worst first.
    pub(super) fn sort(&mut self) {
        self.changes.sort_by(|a, b| {
            let key = |change: &Change| (change.place.package.clone(), change.place.config.clone());
            let packages = key(a).cmp(&key(b));
            packages.then_with(|| a.kind.level.cmp(&b.kind.level))
        });
    }
}
