//! The delegates whose payloads are graphs that can be lowered, and what runs the others.

use super::super::guard::Failure;
use super::frame::Frame;
use super::xnnpack;
use crate::model::executorch::body::ByteRange;
use crate::package::Backend;

/// A backend whose graphs are lowered.
struct Portable {
    backend: Backend,
    lower: Lower,
}

/// Reads a payload and lowers the call of its graph: the frame, where in the program the call stands, the
/// payload, the call's arguments.
type Lower = fn(&mut Frame<'_>, &str, ByteRange, &[usize]) -> Result<(), Failure>;

/// All of them.
static PORTABLE: &[Portable] = &[Portable {
    backend: Backend::Xnnpack,
    lower: xnnpack::lower,
}];

fn find(id: &str) -> Option<&'static Portable> {
    PORTABLE
        .iter()
        .find(|portable| portable.backend.delegate_id() == id)
}

/// The ids of all of them.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PORTABLE
        .iter()
        .map(|portable| portable.backend.delegate_id())
}

/// Whether graphs of a delegate are lowered.
pub(super) fn is_known(id: &str) -> bool {
    find(id).is_some()
}

/// Lowers a call of a delegate's graph.
pub(super) fn call(
    frame: &mut Frame<'_>,
    (id, scope): (&str, &str),
    payload: Option<ByteRange>,
    args: &[usize],
) -> Result<(), Failure> {
    let Some(portable) = find(id) else {
        let reason = format!("the delegate {id} has no portable form");
        return Err(Failure::new(reason));
    };
    let Some(payload) = payload else {
        return Err(Failure::new("the delegate has no payload"));
    };
    (portable.lower)(frame, scope, payload, args)
        .map_err(|failure| failure.at(Some(scope.to_owned())))
}

/// What runs a delegate that is not lowered.
pub(super) fn runner(id: &str) -> &'static str {
    match Backend::of_delegate(id) {
        Some(Backend::CoreMl) => "ExecuTorch with Core ML, on Apple's systems",
        Some(Backend::Mlx) => "ExecuTorch with MLX, on Apple's processors",
        Some(Backend::Vulkan) => "ExecuTorch with Vulkan, on a machine with a GPU",
        Some(Backend::Qnn) => "ExecuTorch with Qualcomm's runtime, on the device it was made for",
        Some(Backend::Xnnpack) | None => "ExecuTorch with that backend",
    }
}
