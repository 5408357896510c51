//! Reads the schema that the key `schema` names.
//!
//! Invariant: the file is below the directory of the settings file, and its size is limited.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::{SettingsReader, SettingsValue};
use crate::policy::words;
use crate::validate::{MAX_OVERLAY_BYTES, Overlay};
use pkgtool_base::source::{self, JsonPath};

impl SettingsReader<'_> {
    pub(super) fn schema(&mut self, path: &JsonPath, value: &SettingsValue<'_>) {
        let Some(text) = self.file_name(path, value) else {
            return;
        };
        let span = value.span().into();
        let Some(text) = self.below(path, span, text, "put the schema beside this file") else {
            return;
        };
        let beside = Path::new(self.shown).parent().unwrap_or(Path::new(""));
        let shown = beside.join(text).to_string_lossy().into_owned();
        match read(&self.directory.join(text)) {
            Err(reason) => {
                let message = format!("`{}` {reason}", words::cut(text));
                let help = "`schema` names a JSON Schema of draft 2020-12, relative to this file";
                self.wrong(path, span, message, help);
            }
            Ok(content) => match Overlay::parse(&content, shown) {
                Ok(overlay) => self.settings.overlays = vec![Arc::new(overlay)],
                Err(flaw) => {
                    let message = format!("{}:{}: {}", words::cut(text), flaw.place, flaw.message);
                    self.wrong(path, span, message, flaw.help);
                }
            },
        }
    }
}

/// Returns the text of a file, or the end of a message about the reason.
fn read(file: &Path) -> Result<String, String> {
    if file.is_dir() {
        return Err("is not a file: expected a JSON Schema, found a directory".to_owned());
    }
    source::read_text(file, MAX_OVERLAY_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "does not exist".to_owned(),
        io::ErrorKind::FileTooLarge => format!(
            "is too large: expected at most {} KiB",
            MAX_OVERLAY_BYTES / 1024
        ),
        io::ErrorKind::InvalidData => "is not UTF-8".to_owned(),
        _ => format!("cannot be read: {error}"),
    })
}
