//! The package format: config, variants, tensor specs, precision list, file references and the
//! naming convention.
//!
//! This module knows the vocabulary of the format. It contains no validation rules and opens no
//! model files.

pub mod backend;
mod bare;
pub mod card;
pub mod config;
pub mod discover;
pub mod dtype;
pub mod foreign;
pub mod leftover;
pub mod license;
pub mod listing;
pub mod load;
pub mod mentions;
pub mod model_file;
pub mod naming;
pub mod precision;
pub mod reference;
pub mod roots;
pub mod schema_id;
pub mod sieve;
pub mod size;
pub mod steps;
pub mod walked;

pub use backend::Backend;
pub use bare::BareDirectory;
pub use config::{Config, DeclaredTensor, FileRef, MethodGroup, MethodSignature, Methods, Variant};
pub use discover::{Discovery, FoundFile, FoundKind, Skipped, is_inspected, is_package_config};
pub use dtype::DType;
pub use listing::{DirectoryListing, MarkerSet};
pub use load::{LoadFault, LoadedFile};
pub use mentions::{Mention, ReferenceSearch};
pub use precision::PrecisionList;
pub use roots::Roots;
pub use sieve::WalkFilter;
pub use walked::{RecordedDirectories, WalkRecord};
