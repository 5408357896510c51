//! Checks that kernels on bytes support the windows of a pool.

use tract_onnx::pb::NodeProto;

use crate::frontends::onnx::graph::{attribute, text};
use pkgtool_kernels::bytes::pool::MAX_TAPS;

/// Maximum stride and dilation.
const MAX_STEP: i64 = 1 << 20;

/// Returns `true` if the windows of a pool have one or two dimensions, and attributes that the
/// standard defines and kernels support. Windows that may cover only padding are unsupported.
pub(super) fn are_supported(node: &NodeProto) -> bool {
    let ints = |name: &str| attribute(node, name).map_or(&[][..], |found| &found.ints);
    let kernel = ints("kernel_shape");
    let rank = kernel.len();
    let taps = kernel.iter().try_fold(1, |all: usize, size| {
        all.checked_mul(usize::try_from(*size).ok()?)
    });
    let steps_fit = ["strides", "dilations"].iter().all(|name| {
        let steps = ints(name);
        let known = steps.iter().all(|step| (1..=MAX_STEP).contains(step));
        known && (steps.is_empty() || steps.len() == rank)
    });
    let pads = ints("pads");
    let known = pads.iter().zip(kernel.iter().cycle());
    let pads_fit = known.fold(true, |all, (pad, size)| all && (0..*size).contains(pad));
    (1..=2).contains(&rank)
        && kernel.iter().all(|size| *size > 0)
        && taps.is_some_and(|taps| taps <= MAX_TAPS)
        && steps_fit
        && pads_fit
        && (pads.is_empty() || pads.len() == 2 * rank)
        && matches!(
            text(node, "auto_pad"),
            b"" | b"NOTSET" | b"VALID" | b"SAME_UPPER" | b"SAME_LOWER"
        )
}
