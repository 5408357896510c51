//! Derives the attention head size and the maximum number of positions from rotary embedding
//! tables.
//!
//! The ONNX operator `GroupQueryAttention` takes cosines as a table [max positions, head size / 2].
//! Invariant: a file without such a table yields nothing.

use std::collections::HashMap;
use std::path::Path;

use pkgtool_base::source::{FileSource, Pages};
use pkgtool_model::onnx::{ModelItem, each_item};

const ATTENTION_OPERATOR: &str = "com.microsoft::GroupQueryAttention";
/// Index of the input `cos_cache`.
const COS_CACHE_INPUT: usize = 7;

/// Returns the size of an attention head.
pub(super) fn size(model: &Path) -> Option<u64> {
    rotary_table(model).and_then(|[_, half]| half.checked_mul(2))
}

/// Returns the maximum number of positions.
pub(super) fn max_positions(model: &Path) -> Option<usize> {
    rotary_table(model).and_then(|[most, _]| usize::try_from(most).ok())
}

/// Returns the dimensions of the smallest table.
fn rotary_table(model: &Path) -> Option<[u64; 2]> {
    let source = FileSource::open(model).ok()?;
    let mut names = Vec::new();
    let mut stored = HashMap::new();
    let walked = each_item(&Pages::new(&source), &mut |part| match part {
        ModelItem::Node(node)
            if node.operator == ATTENTION_OPERATOR && node.has_input(COS_CACHE_INPUT) =>
        {
            names.push(node.inputs[COS_CACHE_INPUT].clone());
        }
        ModelItem::Stored(name, tensor) => {
            if let [most, half] = tensor.dims[..] {
                stored.insert(name, [most, half]);
            }
        }
        _ => {}
    });
    walked.ok()?;
    let tables = names.iter().filter_map(|name| stored.get(name).copied());
    tables.min()
}
