//! Bounds of `Slice` that the library takes for others: it reads numbers through 32 bits, and the
//! least and the greatest of 64 as "to the end" in either direction.

use tract_onnx::pb::{GraphProto, TensorProto};

use super::super::graph::Integers;
use super::INT64;

/// Larger than any axis, and no number that means something else.
const FAR: i64 = 1 << 30;

/// Rewrites the stored bounds of every `Slice` of a graph.
pub(super) fn repair(graph: &mut GraphProto, stored: &Integers) {
    let mut added = Vec::new();
    for node in graph.node.iter_mut().filter(|node| node.op_type == "Slice") {
        let values = |at: usize| stored.of_tensor(node.input.get(at)?);
        let (Some(starts), Some(ends)) = (values(1), values(2)) else {
            continue;
        };
        let steps = match node.input.get(4).filter(|name| !name.is_empty()) {
            Some(_) => match values(4) {
                Some(steps) => steps.to_vec(),
                None => continue,
            },
            None => vec![1; ends.len()],
        };
        let near_starts: Vec<i64> = starts
            .iter()
            .map(|start| (*start).clamp(-FAR, FAR))
            .collect();
        let near_ends: Vec<i64> = ends
            .iter()
            .zip(&steps)
            .map(|(end, step)| near(*end, *step))
            .collect();
        for (at, old, new) in [
            (1, starts.to_vec(), near_starts),
            (2, ends.to_vec(), near_ends),
        ] {
            if old == new {
                continue;
            }
            let name = format!("{}.slice.{at}.{}", node.input[at], added.len());
            added.push(TensorProto {
                name: name.clone(),
                dims: vec![i64::try_from(new.len()).unwrap_or_default()],
                data_type: INT64,
                int64_data: new,
                ..TensorProto::default()
            });
            node.input[at] = name;
        }
    }
    graph.initializer.extend(added);
}

/// An end that means the same; going to the end of the axis keeps the number that says so.
fn near(end: i64, step: i64) -> i64 {
    let is_to_the_end = if step > 0 {
        end == i64::MAX || end == i64::from(i32::MAX)
    } else {
        end <= i64::MIN + 1
    };
    if is_to_the_end {
        end
    } else {
        end.clamp(-FAR, FAR)
    }
}
