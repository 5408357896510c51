//! The part of `pkgtool backends` about ExecuTorch: the libraries on this machine, and the backends
//! registered in the library in use.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use pkgtool_base::package::Backend;
use pkgtool_engine::library::{Installation, NativeBackend};
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::{EngineError, gaps_without_library};
use pkgtool_model::{Delegate, Method};

/// The ExecuTorch installations on this machine.
pub(super) struct ExecutorchInstallations {
    installations: Vec<Installation>,
    /// Backends registered in the first usable installation.
    backends: Result<Vec<NativeBackend>, EngineError>,
}

impl ExecutorchInstallations {
    /// Searches for installations, and opens the library in a worker process.
    pub(super) fn look(launcher: &Launcher) -> Self {
        Self {
            installations: super::find_installations("executorch", None).libraries,
            backends: launcher.backends("executorch"),
        }
    }

    /// Returns the installation in use: the one that the user named, otherwise the first usable
    /// one.
    fn installation_in_use(&self) -> Option<&Installation> {
        let mut all = self.installations.iter();
        all.find(|it| it.problem.is_none() || it.origin.is_user_choice())
    }

    /// Writes the installations as text.
    pub(super) fn write(&self, text: &mut String) -> std::fmt::Result {
        if let (true, Err(error)) = (self.installations.is_empty(), &self.backends) {
            return writeln!(text, "  executorch  {error}");
        }
        let used = self.installation_in_use();
        for installation in &self.installations {
            let version = installation
                .version
                .as_deref()
                .unwrap_or("(unknown version)");
            let what = match (&installation.problem, &self.backends) {
                (Some(problem), _) => format!(" cannot be used: {problem}"),
                (None, _) if used != Some(installation) => " is not used".to_owned(),
                (None, Ok(backends)) => format!(": {}", listed(backends)),
                (None, Err(error)) => format!(" does not work: {error}"),
            };
            let path = installation.path.display();
            let origin = installation.origin.describe();
            writeln!(text, "  executorch  ExecuTorch {version}{what}")?;
            writeln!(text, "         {path} ({origin})")?;
        }
        Ok(())
    }

    /// Writes the engine that runs programs of each backend as text.
    pub(super) fn write_programs(&self, text: &mut String) -> std::fmt::Result {
        let available: Vec<&str> = match &self.backends {
            Ok(backends) => {
                let available = backends.iter().filter(|it| it.available);
                available.map(|it| it.name.as_str()).collect()
            }
            Err(_) => Vec::new(),
        };
        for backend in Backend::ALL {
            let on = if available.contains(&backend.delegate_id()) {
                "executorch".to_owned()
            } else {
                match gaps_without_library("executorch", &delegated(backend)) {
                    None => "tract (cpu), a fallback".to_owned(),
                    Some(gaps) => format!("no engine: {}", gaps.reason),
                }
            };
            writeln!(text, "  {:8} {on}", backend.name())?;
        }
        let plain = if self.backends.is_ok() {
            "executorch (cpu)"
        } else {
            "tract (cpu)"
        };
        writeln!(text, "  (none)   {plain}")
    }

    /// Returns one object per installation.
    pub(super) fn to_json(&self) -> Vec<Json> {
        let used = self.installation_in_use();
        let all = self.installations.iter();
        all.map(|installation| {
            let providers = installation.providers.iter().map(|one| one.name());
            let is_used = used == Some(installation);
            let backends = self.backends.as_ref().ok().filter(|_| is_used);
            let failure = self.backends.as_ref().err().filter(|_| is_used);
            json!({
                "engine": "executorch",
                "path": installation.path.display().to_string(),
                "origin": installation.origin.describe(),
                "version": installation.version,
                "providers": providers.collect::<Vec<_>>(),
                "problem": installation.problem.clone().or(failure.map(ToString::to_string)),
                "backends": backends,
            })
        })
        .collect()
    }
}

/// Returns a method that is completely delegated to a backend.
fn delegated(backend: Backend) -> Method {
    Method {
        delegates: vec![Delegate {
            id: backend.delegate_id().to_owned(),
            payload_bytes: None,
        }],
        ..Method::default()
    }
}

fn listed(backends: &[NativeBackend]) -> String {
    let those = |available: bool| {
        let those = backends.iter().filter(|it| it.available == available);
        let names: Vec<&str> = those.map(|it| it.name.as_str()).collect();
        names.join(", ")
    };
    let (here, absent) = (those(true), those(false));
    let here = if here.is_empty() {
        "no backends".to_owned()
    } else {
        format!("backends {here}")
    };
    if absent.is_empty() {
        return here;
    }
    format!("{here}; registered but not available {absent}")
}
