//! The documents that are open in the client.
//!
//! Invariant: a text above the maximum size of configs is not kept, and all texts together have at
//! most [`MAX_TOTAL_BYTES`] bytes. The server reports texts that it does not have, and never guesses
//! their content.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::lost::UnknownTexts;
use super::text::{PositionEncoding, Range, Text};
use pkgtool_base::diagnostic::Diagnostic;
use pkgtool_base::package::config::{self, SCHEMA_ID};
use pkgtool_base::package::load::MAX_SIZE;
use pkgtool_base::package::{Backend, FoundFile, FoundKind, precision};

/// Maximum total size of all open texts, in bytes.
const MAX_TOTAL_BYTES: usize = 256 * 1024 * 1024;
/// Maximum number of open documents.
const MAX_DOCUMENTS: usize = 10_000;

/// An open document.
#[derive(Debug)]
pub(super) struct OpenDocument {
    pub(super) path: PathBuf,
    pub(super) version: i64,
    pub(super) content: DocumentText,
    /// Number of changes of the text and of the files it refers to.
    pub(super) revision: u64,
    /// Findings of the last check.
    pub(super) findings: Vec<Diagnostic>,
    /// The revision of the last check.
    pub(super) checked: Option<u64>,
    /// Set if the client shows findings of this document.
    pub(super) shown: bool,
}

/// The text of a document, if the server has it.
#[derive(Debug)]
pub(super) enum DocumentText {
    Text(Text),
    /// The text was too large to keep; its size in bytes.
    TooLarge(u64),
    /// The text is unknown, because a message that may have changed it was unreadable.
    Lost,
}

/// A change of a range, or of the whole text.
#[derive(Debug, Deserialize)]
pub(super) struct TextChange {
    range: Option<Range>,
    text: String,
}

impl DocumentText {
    fn changed(self, change: TextChange, encoding: PositionEncoding) -> Self {
        match (self, change.range) {
            (_, None) => Self::Text(Text::new(change.text, encoding)),
            (Self::Text(mut text), Some(range)) => {
                text.edit(range, &change.text);
                Self::Text(text)
            }
            // A change of a range cannot be applied to an unknown text.
            (unknown, Some(_)) => unknown,
        }
    }
}

/// All open documents by their URIs.
#[derive(Debug, Default)]
pub(super) struct Documents {
    by_uri: HashMap<String, OpenDocument>,
    revision: u64,
}

impl Documents {
    /// Opens a document, or replaces its text.
    pub(super) fn open(&mut self, uri: &str, path: PathBuf, version: i64, text: Text) {
        if self.by_uri.len() >= MAX_DOCUMENTS && !self.by_uri.contains_key(uri) {
            return;
        }
        self.revision += 1;
        let before = self.by_uri.remove(uri);
        let content = self.bounded(text);
        let document = OpenDocument {
            path,
            version,
            content,
            revision: self.revision,
            findings: Vec::new(),
            checked: None,
            shown: before.is_some_and(|before| before.shown),
        };
        self.by_uri.insert(uri.to_owned(), document);
    }

    /// Applies changes to the text of a document.
    pub(super) fn change(
        &mut self,
        uri: &str,
        version: i64,
        changes: Vec<TextChange>,
        encoding: PositionEncoding,
    ) {
        let Some(mut document) = self.by_uri.remove(uri) else {
            return;
        };
        self.revision += 1;
        let content = changes
            .into_iter()
            .fold(document.content, |content, change| {
                content.changed(change, encoding)
            });
        document.content = match content {
            DocumentText::Text(text) => self.bounded(text),
            unknown => unknown,
        };
        document.version = version;
        document.revision = self.revision;
        self.by_uri.insert(uri.to_owned(), document);
    }

    /// Discards texts that no longer match the client's, and returns the URIs of their documents.
    pub(super) fn discard_texts(&mut self, lost: &UnknownTexts) -> Vec<String> {
        let mut uris = Vec::new();
        for (uri, document) in &mut self.by_uri {
            if lost.has(uri) {
                self.revision += 1;
                document.revision = self.revision;
                document.content = DocumentText::Lost;
                uris.push(uri.clone());
            }
        }
        uris.sort();
        uris
    }

    /// Records a change of a file that the document refers to.
    pub(super) fn touch(&mut self, uri: &str) {
        self.revision += 1;
        if let Some(document) = self.by_uri.get_mut(uri) {
            document.revision = self.revision;
        }
    }

    pub(super) fn close(&mut self, uri: &str) -> Option<OpenDocument> {
        self.by_uri.remove(uri)
    }

    pub(super) fn get(&self, uri: &str) -> Option<&OpenDocument> {
        self.by_uri.get(uri)
    }

    pub(super) fn get_mut(&mut self, uri: &str) -> Option<&mut OpenDocument> {
        self.by_uri.get_mut(uri)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &OpenDocument)> {
        self.by_uri.iter()
    }

    fn bounded(&self, text: Text) -> DocumentText {
        let size = text.as_str().len();
        let lengths = self
            .by_uri
            .values()
            .map(|document| match &document.content {
                DocumentText::Text(text) => text.as_str().len(),
                DocumentText::TooLarge(_) | DocumentText::Lost => 0,
            });
        if size as u64 > MAX_SIZE || lengths.sum::<usize>() + size > MAX_TOTAL_BYTES {
            return DocumentText::TooLarge(size as u64);
        }
        DocumentText::Text(text)
    }
}

impl OpenDocument {
    /// Returns the text, if the server has it.
    pub(super) fn text(&self) -> Option<&Text> {
        match &self.content {
            DocumentText::Text(text) => Some(text),
            DocumentText::TooLarge(_) | DocumentText::Lost => None,
        }
    }

    /// Returns the findings of the current text, or none if it has not been checked.
    pub(super) fn current_findings(&self) -> &[Diagnostic] {
        if self.checked == Some(self.revision) {
            &self.findings
        } else {
            &[]
        }
    }

    /// Classifies the document as discovery from its folder would. Returns `None` if it is not a
    /// file of a package.
    pub(super) fn found(&self, folders: &[PathBuf]) -> Option<FoundFile> {
        let text = self.text().map_or("", Text::as_str);
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let name = self.path.file_name();
        let kind = if name == Some(OsStr::new(precision::FILE_NAME)) {
            FoundKind::PrecisionList
        } else if name == Some(OsStr::new(config::FILE_NAME)) && is_backend(directory) {
            FoundKind::Config
        } else if name == Some(OsStr::new(config::FILE_NAME)) || text.contains(SCHEMA_ID) {
            FoundKind::MaybeConfig
        } else {
            return None;
        };
        let within = folders
            .iter()
            .filter(|folder| self.path.starts_with(folder));
        let folder = within.max_by_key(|folder| folder.as_os_str().len());
        Some(FoundFile {
            path: self.path.clone(),
            kind,
            walked_from: Some(folder.map_or(directory, PathBuf::as_path).to_owned()),
            size: None,
        })
    }
}

fn is_backend(directory: &Path) -> bool {
    let name = directory.file_name().and_then(OsStr::to_str);
    name.and_then(Backend::from_name).is_some()
}
