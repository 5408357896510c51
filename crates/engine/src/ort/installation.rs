//! Identifies a file as an ONNX Runtime library without loading it: its version and its providers.
//!
//! Loading would run the library's code, and a process can load only one.
//!
//! Invariant: a file is read in pieces, at most once, and only when its contents are needed.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use memchr::memmem::Finder;

use super::search::{self, FoundLibrary};
use crate::Provider;
use crate::library::{Installation, Installations};
use crate::surroundings::{Surroundings, sorted_entries};

/// The first usable minor version of ONNX Runtime 1: the API version that this tool is built for.
const MIN_MINOR_VERSION: u64 = ort::MINOR_VERSION as u64;

/// Returns the installations on this machine. `named` is the library that the user named.
pub fn installations(named: Option<&Path>) -> Installations {
    installations_in(&Surroundings::of_this_process(), named)
}

/// Returns the installations in these surroundings.
pub fn installations_in(surroundings: &Surroundings, named: Option<&Path>) -> Installations {
    let found = search::libraries(surroundings, named);
    Installations {
        libraries: found.iter().map(inspect).collect(),
        plugins: search::plugins(surroundings),
    }
}

/// Describes a file. Reads all of it.
pub(super) fn inspect(found: &FoundLibrary) -> Installation {
    let (marks, problem) = match scan(&found.path) {
        Ok(marks) => (marks, None),
        Err(error) => (LibraryMarks::default(), Some(error.to_string())),
    };
    let version = version_by_name(&found.path).or_else(|| marks.version.clone());
    let problem = problem
        .or_else(|| (!marks.entry).then(|| "not an ONNX Runtime library".to_owned()))
        .or_else(|| too_old(version.as_deref()?));
    let providers = match problem {
        Some(_) => Vec::new(),
        None => [Provider::Cpu].into_iter().chain(marks.providers).collect(),
    };
    Installation {
        path: found.path.clone(),
        origin: found.origin,
        version,
        providers,
        problem,
    }
}

/// Returns the reason why a library of this version is unusable; `None` if it is usable.
pub(super) fn too_old(version: &str) -> Option<String> {
    let mut numbers = version.split('.').map(str::parse::<u64>);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    (major == 1 && minor < MIN_MINOR_VERSION)
        .then(|| format!("unsupported version {version}: expected 1.{MIN_MINOR_VERSION} or later"))
}

/// Returns the version in the name of the file, or of its Python package.
pub(super) fn version_by_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let after = name
        .strip_prefix("libonnxruntime.so.")
        .or_else(|| name.strip_prefix("libonnxruntime.")?.strip_suffix(".dylib"));
    if let Some(version) = after.filter(|version| is_version(version)) {
        return Some(version.to_owned());
    }
    let capi = path.parent()?;
    let packages = capi.parent()?.parent()?;
    if !capi.ends_with("onnxruntime/capi") {
        return None;
    }
    let mut versions = sorted_entries(packages).into_iter().filter_map(|entry| {
        let name = entry.file_name()?.to_str()?;
        let (package, version) = name.strip_suffix(".dist-info")?.split_once('-')?;
        let belongs = package == "onnxruntime"
            || ["onnxruntime_webgpu", "onnxruntime_directml"].contains(&package);
        (belongs && is_version(version)).then(|| version.to_owned())
    });
    // Two of these packages in one folder overwrite each other's files.
    let version = versions.next();
    version.filter(|_| versions.next().is_none())
}

fn is_version(text: &str) -> bool {
    let mut parts = text.split('.');
    let number = |part: &str| !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
    text.contains('.') && parts.all(number)
}

/// The facts found in a library's bytes.
#[derive(Debug, Default)]
struct LibraryMarks {
    /// The file has the symbol that every use of ONNX Runtime starts with.
    entry: bool,
    version: Option<String>,
    providers: Vec<Provider>,
}

/// Texts that a library contains only if it has the code of a provider. The names of the providers
/// are in every library.
const PROVIDER_TEXTS: &[(Provider, &str)] = &[
    (
        Provider::Xnnpack,
        "XNNPACK initialization failed with status",
    ),
    (
        Provider::CoreMl,
        "/System/Library/Frameworks/CoreML.framework",
    ),
    (Provider::Qnn, "QnnInterface_getProviders"),
    (Provider::WebGpu, "Invalid Dawn backend type: "),
];

/// The start of the symbol version in a library on Linux.
const SYMBOL_VERSION_PREFIX: &str = "VERS_1.";
/// Size of a piece that is read at once, in bytes.
const PIECE_BYTES: usize = 1 << 20;
/// Overlap of two pieces, in bytes: more than the longest text.
const OVERLAP_BYTES: usize = 64;

fn scan(path: &Path) -> io::Result<LibraryMarks> {
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let entry = Finder::new("OrtGetApiBase");
    let version = Finder::new(SYMBOL_VERSION_PREFIX);
    let mut sought: Vec<(Provider, Finder<'_>)> = PROVIDER_TEXTS
        .iter()
        .map(|(provider, text)| (*provider, Finder::new(text)))
        .collect();
    let mut marks = LibraryMarks::default();
    let mut piece = vec![0; OVERLAP_BYTES + PIECE_BYTES];
    let mut kept = 0;
    loop {
        let read = file.read(&mut piece[kept..])?;
        if read == 0 {
            break;
        }
        let bytes = &piece[..kept + read];
        marks.entry = marks.entry || entry.find(bytes).is_some();
        if marks.version.is_none() {
            marks.version = version.find(bytes).and_then(|at| version_at(&bytes[at..]));
        }
        sought.retain(|(provider, text)| {
            let found = text.find(bytes).is_some();
            if found {
                marks.providers.push(*provider);
            }
            !found
        });
        let end = kept + read;
        kept = end.min(OVERLAP_BYTES);
        piece.copy_within(end - kept..end, 0);
    }
    marks.providers.sort_by_key(|provider| provider.name());
    Ok(marks)
}

fn version_at(bytes: &[u8]) -> Option<String> {
    let rest = &bytes["VERS_".len()..];
    let length = rest
        .iter()
        .position(|byte| *byte != b'.' && !byte.is_ascii_digit())?;
    let version = std::str::from_utf8(&rest[..length]).ok()?;
    is_version(version).then(|| version.to_owned())
}
