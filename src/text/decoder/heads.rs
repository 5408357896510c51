//! The size of an attention head, and the most positions, as the tables of rotary embeddings tell them.
//!
//! `GroupQueryAttention` takes cosines in a table [most positions, half the size of a head]. Invariant: a
//! file that does not tell gives nothing.

use std::collections::HashMap;
use std::path::Path;

use crate::model::onnx::{Part, each_part};
use crate::source::{FileSource, Pages};

const ATTENTION: &str = "com.microsoft::GroupQueryAttention";
/// The input `cos_cache`.
const COSINES: usize = 7;

/// The size of a head.
pub(super) fn size(model: &Path) -> Option<u64> {
    table(model).and_then(|[_, half]| half.checked_mul(2))
}

/// Most positions.
pub(super) fn positions(model: &Path) -> Option<usize> {
    table(model).and_then(|[most, _]| usize::try_from(most).ok())
}

/// The sizes of the smallest table.
fn table(model: &Path) -> Option<[u64; 2]> {
    let source = FileSource::open(model).ok()?;
    let mut names = Vec::new();
    let mut stored = HashMap::new();
    let walked = each_part(&Pages::new(&source), &mut |part| match part {
        Part::Node(node) if node.operator == ATTENTION && node.has_input(COSINES) => {
            names.push(node.inputs[COSINES].clone());
        }
        Part::Stored(name, tensor) => {
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
