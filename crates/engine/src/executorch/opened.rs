//! The one ExecuTorch of a process: found, opened, and kept open until the process ends.
//!
//! Invariant: all libraries come from one directory and have the version that this crate was built
//! for. A directory that the user named is used or is an error; it is never skipped. Knows nothing
//! of programs.

use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::ffi::{self, Library};
use super::search::{self, DIRECTORY_VARIABLE, VERSION};
use crate::library::Installation;
use crate::surroundings::Surroundings;
use crate::{EngineError, RequiredFiles};

/// The compiled `shim.cpp`, built by `build_shim.rs`.
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/executorch-shim"));

static OPENED_LIBRARY: Mutex<Option<&'static Library>> = Mutex::new(None);

/// The result of the search before this process was sandboxed. A sandboxed process cannot search.
static SEARCH_RESULT: OnceLock<Vec<Installation>> = OnceLock::new();

/// Searches for the libraries and returns the files that opening them reads.
pub(super) fn prepare() -> RequiredFiles {
    let surroundings = Surroundings::of_this_process();
    let found = SEARCH_RESULT.get_or_init(|| search::installations_in(&surroundings));
    surroundings.needs(found.iter().map(|installation| &*installation.path))
}

/// Returns ExecuTorch, and opens it on the first call.
pub(super) fn library() -> Result<&'static Library, EngineError> {
    let mut opened = OPENED_LIBRARY
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = *opened {
        return Ok(library);
    }
    let surroundings = Surroundings::of_this_process();
    let prepared = SEARCH_RESULT.get().cloned();
    let found = prepared.unwrap_or_else(|| search::installations_in(&surroundings));
    let chosen = choose(found)?;
    let library = open(&surroundings, &chosen)
        .map_err(|problem| unavailable(&format!("{}: {problem}", chosen.path.display())))?;
    Ok(*opened.insert(Box::leak(Box::new(library))))
}

/// Returns the first usable installation. An unusable one that the user named is an error.
fn choose(found: Vec<Installation>) -> Result<Installation, EngineError> {
    let mut problems = Vec::new();
    for installation in found {
        let Some(problem) = &installation.problem else {
            return Ok(installation);
        };
        let path = installation.path.display();
        let origin = installation.origin.describe();
        problems.push(format!("{path} ({origin}): {problem}"));
        if installation.origin.is_user_choice() {
            break;
        }
    }
    Err(if problems.is_empty() {
        unavailable("its libraries are missing")
    } else {
        unavailable(&problems.join("; "))
    })
}

fn unavailable(reason: &str) -> EngineError {
    EngineError::Unavailable {
        what: "ExecuTorch".to_owned(),
        reason: reason.to_owned(),
        help: format!(
            "install it with `pip install --no-deps executorch=={VERSION}`, or name its Python \
             package's directory in {DIRECTORY_VARIABLE}"
        ),
    }
}

fn open(surroundings: &Surroundings, chosen: &Installation) -> Result<Library, String> {
    let libraries = search::libraries(surroundings, &chosen.path);
    for path in &libraries.runtime {
        ffi::open_global(path)?;
    }
    for path in &libraries.backends {
        // A backend may need a vendor's library that is missing here. Programs for it are rejected
        // by name.
        let _ = ffi::open_global(path);
    }
    // An open library stays usable after its file is deleted.
    let written = tempfile::Builder::new()
        .prefix("pkgtool-")
        .suffix(".so")
        .tempfile()
        .and_then(|mut file| {
            file.write_all(SHIM)?;
            Ok(file.into_temp_path())
        });
    let shim = written.map_err(|error| format!("a temporary file cannot be written: {error}"))?;
    Library::open(&shim).map_err(|error| format!("{}: {error}", shim.display()))
}
