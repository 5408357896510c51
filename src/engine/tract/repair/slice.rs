//! Bounds of `Slice` that the library takes for others: it reads numbers through 32 bits, and the
//! least and the greatest of 64 as "to the end" in either direction.

use tract_onnx::pb::{GraphProto, TensorProto, ValueInfoProto, type_proto};

use super::super::graph::{Integers, step};
use super::INT64;

/// Larger than any axis, and no number that means something else.
const FAR: i64 = 1 << 30;

/// Rewrites the stored bounds of every `Slice` of a graph.
pub(super) fn repair(graph: &mut GraphProto, stored: &Integers) {
    let mut added = Vec::new();
    bound_inputs(graph, stored);
    for node in graph.node.iter_mut().filter(|node| node.op_type == "Slice") {
        let values = |at: usize| stored.of_tensor(node.input.get(at)?);
        let (starts, ends) = (values(1), values(2));
        let Some(length) = starts.or(ends).map(<[i64]>::len) else {
            continue;
        };
        let steps = match node.input.get(4).filter(|name| !name.is_empty()) {
            Some(_) => match values(4) {
                Some(steps) => steps.to_vec(),
                None => continue,
            },
            None => vec![1; length],
        };
        let near_starts = starts.map(|starts| {
            let starts = starts.iter().map(|start| (*start).clamp(-FAR, FAR));
            starts.collect::<Vec<i64>>()
        });
        let near_ends = ends.map(|ends| {
            let pairs = ends.iter().zip(&steps);
            pairs.map(|(end, step)| near(*end, *step)).collect()
        });
        let bounds = [(1, starts, near_starts), (2, ends, near_ends)];
        let replaced = bounds.map(|(at, old, new)| (at, new.filter(|new| old != Some(new))));
        for (at, new) in replaced {
            let Some(new) = new else {
                continue;
            };
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

/// An end that is the model's input, on the way upwards, is cut off before it says "to the end".
fn bound_inputs(graph: &mut GraphProto, stored: &Integers) {
    let is_whole = |value: &ValueInfoProto| {
        let element = value.r#type.as_ref().and_then(|kind| kind.value.as_ref());
        matches!(element, Some(type_proto::Value::TensorType(tensor)) if tensor.elem_type == INT64)
    };
    let inputs = graph.input.iter().filter(|value| is_whole(value));
    let inputs: Vec<String> = inputs.map(|value| value.name.clone()).collect();
    let mut nodes = Vec::with_capacity(graph.node.len());
    for (place, mut node) in std::mem::take(&mut graph.node).into_iter().enumerate() {
        let is_given = node.input.get(2).is_some_and(|end| inputs.contains(end));
        let steps = node.input.get(4).filter(|name| !name.is_empty());
        let steps = steps.map(|name| stored.of_tensor(name));
        let is_upwards =
            steps.is_none_or(|steps| steps.is_some_and(|steps| steps.iter().all(|step| *step > 0)));
        if node.op_type == "Slice"
            && is_given
            && is_upwards
            && stored.of_tensor(&node.input[2]).is_none()
        {
            let (least, bound) = (
                format!("{}.slice.least.{place}", node.input[2]),
                format!("{}.slice.bound.{place}", node.input[2]),
            );
            graph.initializer.push(TensorProto {
                name: least.clone(),
                dims: vec![1],
                data_type: INT64,
                int64_data: vec![-FAR],
                ..TensorProto::default()
            });
            nodes.push(step("Max", &[&node.input[2], &least], &bound));
            node.input[2] = bound;
        }
        nodes.push(node);
    }
    graph.node = nodes;
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
