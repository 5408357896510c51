//! Access to files: text and bytes with positions, JSON trees, and safe opening and replacing of
//! files.
//!
//! This module owns byte spans, lines and columns, JSON trees whose nodes know their range, and
//! bounded random access to binary files. Packages, models and findings are handled elsewhere.

pub mod bounds;
pub mod edit;
mod editor;
pub mod elsewhere;
mod file_source;
pub mod hashed;
pub mod json;
mod key;
pub mod lfs;
pub mod lines;
mod node;
pub mod normal;
mod opener;
pub mod pages;
pub mod path_set;
mod positions;
pub mod pretty;
pub mod read_at;
pub mod redact;
pub mod replace;
pub mod same_bytes;
pub mod same_file;
mod slips;
mod sound;
pub mod span;
pub mod spread;
mod strict;
pub mod suggest;
mod syntax;
pub mod text;
pub mod trail;

pub use editor::Editor;
pub use file_source::{FileReader, FileSource, open, read, read_text};
pub use json::{Document, JsonPath};
pub use lines::{LineIndex, TextPosition};
pub use node::Members;
pub use opener::metadata;
pub use pages::Pages;
pub use path_set::PathSet;
pub use read_at::ReadAt;
pub use slips::detect_cause;
pub use span::Span;
pub use strict::{StrictEdits, strict};
pub use trail::Trail;
