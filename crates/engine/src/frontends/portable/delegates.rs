//! The table of delegates whose payloads can be lowered, and the runtimes that run the other ones.

use std::collections::BTreeSet;

use crate::frontends::payload::PayloadCall;
use crate::frontends::{coreml, mlx, vulkan, xnnpack};
use crate::graph::frame::MethodFrame;
use crate::graph::guard::LibraryFailure;
use crate::graph::weights::ProgramWeights;
use pkgtool_base::package::Backend;
use pkgtool_model::executorch::body::{ByteRange, DelegateBody};

/// The id of Core ML's delegates.
pub(crate) const CORE_ML: &str = Backend::CoreMl.delegate_id();

/// A backend whose graphs can be lowered.
struct PortableBackend {
    backend: Backend,
    /// Whether results match the backend's own code, bit for bit where it is quantised.
    exact: bool,
    lower: LowerCall,
    /// Finds unsupported operators in a payload, for backends that are only partly supported.
    missing: Option<FindUnsupported>,
}

/// Reads a payload and lowers the call of its graph.
type LowerCall = fn(&mut MethodFrame<'_>, PayloadCall<'_>) -> Result<(), LibraryFailure>;

/// Returns the names of the operators in a payload that cannot be lowered.
type FindUnsupported = fn(&ProgramWeights, ByteRange) -> Result<BTreeSet<String>, LibraryFailure>;

/// All backends whose graphs can be lowered.
static PORTABLE_BACKENDS: &[PortableBackend] = &[
    PortableBackend {
        backend: Backend::Xnnpack,
        exact: true,
        lower: xnnpack::lower,
        missing: None,
    },
    PortableBackend {
        backend: Backend::CoreMl,
        exact: false,
        lower: coreml::lower,
        missing: Some(coreml::missing),
    },
    PortableBackend {
        backend: Backend::Mlx,
        exact: false,
        lower: mlx::lower,
        missing: Some(mlx::missing),
    },
    PortableBackend {
        backend: Backend::Vulkan,
        exact: false,
        lower: vulkan::lower,
        missing: Some(vulkan::missing),
    },
];

fn find(id: &str) -> Option<&'static PortableBackend> {
    PORTABLE_BACKENDS
        .iter()
        .find(|portable| portable.backend.delegate_id() == id)
}

/// Returns the delegate ids of all backends in the table.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PORTABLE_BACKENDS
        .iter()
        .map(|portable| portable.backend.delegate_id())
}

/// Returns whether graphs of a delegate can be lowered.
pub(crate) fn is_supported(id: &str) -> bool {
    find(id).is_some()
}

/// Returns the backend of a delegate whose graphs are computed differently from the backend's
/// hardware.
pub(crate) fn reading(id: &str) -> Option<Backend> {
    let portable = find(id).filter(|portable| !portable.exact);
    portable.map(|portable| portable.backend)
}

/// Returns whether payloads of a delegate may contain unsupported operators.
pub(crate) fn may_miss(id: &str) -> bool {
    find(id).is_some_and(|portable| portable.missing.is_some())
}

/// Returns the unsupported operators of the first delegate payload that has any, with the reason.
pub(crate) fn first_unsupported(
    delegates: &[DelegateBody],
    weights: &ProgramWeights,
) -> Result<Option<(BTreeSet<String>, String)>, LibraryFailure> {
    for delegate in delegates {
        let portable = find(&delegate.id).and_then(|portable| portable.missing);
        let (Some(missing), Some(payload)) = (portable, delegate.payload) else {
            continue;
        };
        let names = missing(weights, payload)?;
        if !names.is_empty() {
            let reason = unsupported_reason(&delegate.id, &names);
            return Ok(Some((names, reason)));
        }
    }
    Ok(None)
}

/// Explains why a payload with these operators cannot be lowered, and names the runtime that
/// supports them.
fn unsupported_reason(id: &str, missing: &BTreeSet<String>) -> String {
    let names: Vec<String> = missing.iter().map(|name| format!("`{name}`")).collect();
    let (names, runner) = (names.join(", "), runner(id));
    format!("operators of {id} not implemented: {names}; {runner} runs them")
}

/// Lowers a call of a delegate's graph.
pub(crate) fn call(
    frame: &mut MethodFrame<'_>,
    (id, scope): (&str, &str),
    payload: Option<ByteRange>,
    args: &[usize],
) -> Result<(), LibraryFailure> {
    let Some(portable) = find(id) else {
        let reason = format!("delegate {id} has no portable form");
        return Err(LibraryFailure::new(reason));
    };
    let Some(payload) = payload else {
        return Err(LibraryFailure::new("the delegate has no payload"));
    };
    let call = PayloadCall {
        scope,
        payload,
        args,
    };
    (portable.lower)(frame, call).map_err(|failure| failure.at(Some(scope.to_owned())))
}

/// Names the runtime for a delegate that cannot be lowered.
pub(crate) fn runner(id: &str) -> &'static str {
    match Backend::of_delegate(id) {
        Some(Backend::CoreMl) => "ExecuTorch with Core ML, on Apple's systems",
        Some(Backend::Mlx) => "ExecuTorch with MLX, on Apple's processors",
        Some(Backend::Vulkan) => "ExecuTorch with Vulkan, on a machine with a GPU",
        Some(Backend::Qnn) => "ExecuTorch with Qualcomm's runtime, on the device it was made for",
        Some(Backend::Xnnpack) | None => "ExecuTorch with that backend",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use pkgtool_base::source::FileSource;
    use pkgtool_model::executorch::body::ProgramBody;

    /// Returns the names of the operators in a payload.
    type Met = fn(&ProgramWeights, ByteRange) -> Vec<String>;

    /// Collects the names of all operators in a backend's fixture payloads, read with `read`.
    fn met(backend: Backend, read: Met) -> BTreeSet<String> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/payloads");
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(folder).expect("fixtures can be read") {
            let path = entry.expect("fixtures can be read").path();
            if path.extension().is_none_or(|extension| extension != "pte") {
                continue;
            }
            let source = FileSource::open(&path).expect("fixtures can be read");
            let body = ProgramBody::read(&source).expect("fixtures can be read");
            let weights = ProgramWeights::open(&path, body.named).expect("fixtures can be read");
            let delegates = body.methods.iter().flat_map(|method| &method.delegates);
            for delegate in delegates.filter(|found| found.id == backend.delegate_id()) {
                names.extend(read(&weights, delegate.payload.expect("a payload")));
            }
        }
        names
    }

    #[test]
    fn every_operator_of_payloads_that_is_lowered_is_in_a_program() {
        let tried: [(Backend, Vec<&str>, Met); 3] = [
            (Backend::CoreMl, coreml::names(), coreml::met),
            (Backend::Mlx, mlx::names(), mlx::met),
            (Backend::Vulkan, vulkan::names(), vulkan::met),
        ];
        let mut failures = Vec::new();
        for (backend, known, read) in tried {
            let mut met = met(backend, read);
            // Only models that stand by themselves classify; tests of the command line run them.
            met.insert("classify".to_owned());
            let untried: Vec<&str> = known
                .into_iter()
                .filter(|name| !met.contains(*name))
                .collect();
            failures.extend(
                untried
                    .into_iter()
                    .map(|name| format!("{backend:?} {name}")),
            );
        }
        assert!(failures.is_empty(), "{failures:?}");
    }
}
