//! Fuses clamp nodes of an XNNPACK graph into the nodes before them, as XNNPACK itself does.

use std::collections::HashMap;

use pkgtool_model::executorch::xnnpack::{Conv, NodeKind, UnaryKind, XnnpackGraph, XnnpackNode};

/// Returns the graph with clamp nodes fused.
///
/// A clamp stays separate if other nodes also read its input, or if its output has another
/// quantisation.
pub(super) fn fuse_clamps(mut graph: XnnpackGraph) -> XnnpackGraph {
    let mut readers: HashMap<u32, usize> = HashMap::new();
    for id in graph.nodes.iter().flat_map(|node| node.kind.inputs()) {
        *readers.entry(id).or_default() += 1;
    }
    for id in &graph.outputs {
        *readers.entry(*id).or_default() += 1;
    }
    let mut nodes: Vec<XnnpackNode> = Vec::with_capacity(graph.nodes.len());
    // Index of the node that computes each value.
    let mut given: HashMap<u32, usize> = HashMap::new();
    for node in graph.nodes {
        if let NodeKind::Unary {
            kind: UnaryKind::Clamp,
            input,
            output,
        } = node.kind
        {
            let is_alone = readers.get(&input) == Some(&1);
            let [from, to] = [input, output].map(|id| graph.values.get(&id));
            let is_same = from.zip(to).is_some_and(|(from, to)| {
                from.datatype == to.datatype && from.quantization == to.quantization
            });
            let before = given.get(&input).filter(|_| is_alone && is_same);
            if let Some(&at) = before
                && let Some(range) = combined_range(nodes[at].clamp, node.clamp)
                && let Some(place) = clampable_output(&mut nodes[at].kind)
            {
                *place = output;
                nodes[at].clamp = range;
                given.insert(output, at);
                continue;
            }
        }
        let mut node = node;
        if let Some(output) = clampable_output(&mut node.kind) {
            given.insert(*output, nodes.len());
        }
        nodes.push(node);
    }
    graph.nodes = nodes;
    graph
}

/// Returns the output of a node that can clamp its result at no cost.
fn clampable_output(kind: &mut NodeKind) -> Option<&mut u32> {
    match kind {
        NodeKind::Binary { output, .. }
        | NodeKind::FullyConnected { output, .. }
        | NodeKind::Conv(Conv { output, .. }) => Some(output),
        _ => None,
    }
}

type Clamp = Option<(f32, f32)>;

/// Returns one range that has the effect of two ranges in sequence, if it exists.
fn combined_range(first: Clamp, second: Clamp) -> Option<Clamp> {
    let (Some(first), Some(second)) = (first, second) else {
        return Some(first.or(second));
    };
    // Ranges with a NaN bound are not fused.
    let is_known = [first.0, first.1, second.0, second.1]
        .iter()
        .all(|end| !end.is_nan());
    let (least, most) = (first.0.max(second.0), first.1.min(second.1));
    (is_known && least <= most).then_some(Some((least, most)))
}

#[cfg(test)]
mod tests {
    use super::combined_range;

    #[test]
    fn two_ranges_are_one_where_they_meet() {
        assert_eq!(combined_range(None, None), Some(None));
        assert_eq!(
            combined_range(Some((0.0, 6.0)), None),
            Some(Some((0.0, 6.0)))
        );
        assert_eq!(
            combined_range(None, Some((0.0, 6.0))),
            Some(Some((0.0, 6.0)))
        );
        let infinite = (f32::NEG_INFINITY, f32::INFINITY);
        assert_eq!(
            combined_range(Some(infinite), Some((0.0, 6.0))),
            Some(Some((0.0, 6.0)))
        );
        assert_eq!(
            combined_range(Some((0.0, 6.0)), Some((-1.0, 2.0))),
            Some(Some((0.0, 2.0)))
        );
        assert_eq!(
            combined_range(Some((0.0, 6.0)), Some((6.0, 9.0))),
            Some(Some((6.0, 6.0)))
        );
        // The last range decides, which no combined range can express.
        assert_eq!(combined_range(Some((0.0, 6.0)), Some((7.0, 9.0))), None);
        assert_eq!(
            combined_range(Some((f32::NAN, 6.0)), Some((0.0, 9.0))),
            None
        );
        assert_eq!(
            combined_range(Some((0.0, 6.0)), Some((0.0, f32::NAN))),
            None
        );
    }
}
