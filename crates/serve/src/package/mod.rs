//! Packages by the hashes of their files: sent to machines without packages, and published for the servers that share a
//! database.
//!
//! A published package is a manifest and its files in object storage, and a row that says what is to be served. Each
//! server keeps copies of the published packages ([`PackageMirror`]).
//!
//! Invariant: a copy has exactly the files of one manifest, each with its hash.

mod cache;
mod error;
mod manifest;
mod mirror;
mod objects;
mod published;
mod publisher;
mod replace;

pub use cache::{CacheError, PackageCache};
pub(crate) use cache::{FileBytes, PackageSource};
pub use error::PublishError;
pub(crate) use manifest::{FileHashes, LocalPackage, PackageFile, PackageManifest};
pub use mirror::{MirrorLook, MirrorOptions, PackageMirror};
pub use objects::PackageObjects;
pub use published::{PackageKind, PublishedPackage, PublishedPackages};
pub use publisher::{NewPackage, PackagePublisher, PublishOutcome};
pub(crate) use replace::replace_directory;
