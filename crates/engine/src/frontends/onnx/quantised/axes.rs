//! The axes of a mean.

use tract_onnx::pb::NodeProto;

use super::constants::StoredConstants;
use crate::frontends::onnx::graph::{attribute, has_input};

/// Returns the axes of a `ReduceMean`, in order; `None` if they are unknown or not adjacent.
pub(super) fn axes_of(constants: &StoredConstants, node: &NodeProto) -> Option<Vec<i64>> {
    let mut axes = if has_input(node, 1) {
        constants.integers(&node.input[1])?
    } else {
        attribute(node, "axes")?.ints.clone()
    };
    axes.sort_unstable();
    let adjoin = axes
        .windows(2)
        .all(|two| two[0].checked_add(1) == Some(two[1]));
    // -1 and 0 are the last and the first axis, which are not adjacent.
    let mixed = axes.contains(&-1) && axes.contains(&0);
    (!axes.is_empty() && adjoin && !mixed).then_some(axes)
}

/// Returns the axes of a tensor of this rank, counted from the start. Without axes, all after the
/// channels.
pub(super) fn within(axes: &[i64], rank: usize) -> Result<std::ops::Range<usize>, String> {
    let Some((first, last)) = axes.first().zip(axes.last()) else {
        return Ok(2.min(rank)..rank);
    };
    let place = |axis: i64| {
        let from_end = usize::try_from(axis.unsigned_abs()).ok();
        let place = if axis < 0 {
            rank.checked_sub(from_end?)
        } else {
            from_end
        };
        place.filter(|place| *place < rank)
    };
    let places = place(*first).zip(place(*last));
    let places = places.map(|(first, last)| first..last + 1);
    places.ok_or_else(|| format!("axes {axes:?} do not fit a tensor of {rank} dimensions"))
}
