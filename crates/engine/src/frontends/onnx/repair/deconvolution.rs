//! Rewrites `ConvTranspose` nodes whose padding depends on the output size: the library ignores
//! `output_padding` there.

use tract_onnx::pb::{AttributeProto, GraphProto, NodeProto};

use super::super::graph::{AttributeKind, Shapes, attribute, named, text};

/// Writes explicit padding if `auto_pad` requests an output of stride times the input.
pub(super) fn repair(graph: &mut GraphProto, shapes: &Shapes) {
    for node in graph
        .node
        .iter_mut()
        .filter(|node| node.op_type == "ConvTranspose")
    {
        let mode = text(node, "auto_pad").to_vec();
        if !mode.starts_with(b"SAME") || attribute(node, "output_shape").is_some() {
            continue;
        }
        let weights = node.input.get(1).and_then(|name| shapes.of_tensor(name));
        let Some(kernel) =
            ints(node, "kernel_shape").or_else(|| weights?.get(2..).map(<[i64]>::to_vec))
        else {
            continue;
        };
        let rank = kernel.len();
        let of = |name: &str, usual: i64| {
            let values = ints(node, name).unwrap_or_else(|| vec![usual; rank]);
            (values.len() == rank).then_some(values)
        };
        let (Some(strides), Some(dilations), Some(mut adjustments)) = (
            of("strides", 1),
            of("dilations", 1),
            of("output_padding", 0),
        ) else {
            continue;
        };
        let mut begins = Vec::new();
        let mut ends = Vec::new();
        for axis in 0..rank {
            let window = (kernel[axis] - 1).saturating_mul(dilations[axis]);
            let total = adjustments[axis]
                .saturating_add(window)
                .saturating_add(1)
                .saturating_sub(strides[axis]);
            if total < 0 {
                // The window is smaller than the stride, so the missing elements are added at the
                // end.
                adjustments[axis] -= total;
            }
            let total = total.max(0);
            let less = total / 2;
            let is_upper = mode == b"SAME_UPPER";
            begins.push(if is_upper { less } else { total - less });
            ends.push(if is_upper { total - less } else { less });
        }
        node.attribute
            .retain(|found| !["auto_pad", "pads", "output_padding"].contains(&found.name.as_str()));
        begins.extend(ends);
        for (name, ints) in [("pads", begins), ("output_padding", adjustments)] {
            node.attribute.push(AttributeProto {
                ints,
                ..named(name, AttributeKind::Ints)
            });
        }
    }
}

fn ints(node: &NodeProto, name: &str) -> Option<Vec<i64>> {
    attribute(node, name).map(|found| found.ints.clone())
}
