//! The one ExecuTorch that a process can have: found, opened, and kept to the end.
//!
//! Invariant: libraries of one directory only, of the version that this was built for; what the user
//! named is used or is an error, never passed over. Knows nothing of programs.

use std::io::Write as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::ffi::{self, Library};
use super::search::{self, VARIABLE, VERSION};
use crate::engine::library::Installation;
use crate::engine::surroundings::Surroundings;
use crate::engine::{EngineError, Needs};

/// What `build_shim.rs` made of `shim.cpp`.
const SHIM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/executorch-shim"));

static OPENED: Mutex<Option<&'static Library>> = Mutex::new(None);

/// The search that ran before this process was confined; a confined process cannot search.
static PREPARED: OnceLock<Vec<Installation>> = OnceLock::new();

/// Looks for the libraries, and tells what opening them reads.
pub(super) fn prepare() -> Needs {
    let surroundings = Surroundings::of_this_process();
    let found = PREPARED.get_or_init(|| search::installations_in(&surroundings));
    surroundings.needs(found.iter().map(|installation| &*installation.path))
}

/// ExecuTorch, opened now if it was not before.
pub(super) fn library() -> Result<&'static Library, EngineError> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(library) = *opened {
        return Ok(library);
    }
    let surroundings = Surroundings::of_this_process();
    let prepared = PREPARED.get().cloned();
    let found = prepared.unwrap_or_else(|| search::installations_in(&surroundings));
    let chosen = choose(found)?;
    let library = open(&surroundings, &chosen)
        .map_err(|problem| unavailable(&format!("{}: {problem}", chosen.path.display())))?;
    Ok(*opened.insert(Box::leak(Box::new(library))))
}

/// The first that can be used; what the user named is not passed over.
fn choose(found: Vec<Installation>) -> Result<Installation, EngineError> {
    let mut problems = Vec::new();
    for installation in found {
        let Some(problem) = &installation.problem else {
            return Ok(installation);
        };
        let path = installation.path.display();
        let origin = installation.origin.describe();
        problems.push(format!("{path} ({origin}): {problem}"));
        if installation.origin.is_wish() {
            break;
        }
    }
    Err(if problems.is_empty() {
        unavailable("its libraries were not found")
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
             package's directory in {VARIABLE}"
        ),
    }
}

fn open(surroundings: &Surroundings, chosen: &Installation) -> Result<Library, String> {
    let libraries = search::libraries(surroundings, &chosen.path);
    for path in &libraries.runtime {
        ffi::open_for_all(path)?;
    }
    for path in &libraries.backends {
        // A backend may need what its vendor has not put here. Programs for it are refused by name.
        let _ = ffi::open_for_all(path);
    }
    // What is open stays when its file goes.
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
