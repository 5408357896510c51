//! The form of nodes of ours: what is known of a group before the library reads the graph, as attributes.

use tract_onnx::pb::{AttributeProto, NodeProto};
use tract_onnx::prelude::{DatumType, TractResult};
use tract_onnx::tract_core::internal::TractErrorContext as _;

use crate::engine::tract::graph::{attribute, integer, step};
use crate::kernels::bytes::Sign;
use crate::kernels::bytes::elementwise::{Grid, Range};

/// Operators of these nodes. A name with a space is no model's.
pub(super) const CONVOLUTION: &str = "Conv on bytes";
pub(super) const PRODUCT: &str = "MatMul on bytes";
pub(super) const SUMS: &str = "MatMulInteger on bytes";
pub(super) const ELEMENTS: &str = "QuantizeLinear on bytes";
pub(super) const ROUNDED: &str = "QuantizeLinear to bytes";
pub(super) const PAIR: &str = "Add, Sub or Mul on bytes";
pub(super) const LARGEST: &str = "MaxPool on bytes";
pub(super) const MEAN: &str = "ReduceMean on bytes";
pub(super) const AVERAGE: &str = "AveragePool on bytes";
pub(super) const TABLE: &str = "Function on bytes";

/// The attribute of an `AveragePool` whose windows are divided by all of their taps, also by those beyond the padding.
pub(super) const WHOLE: &str = "counts_whole_windows";

/// ONNX's codes of attribute types.
const FLOAT: i32 = 1;
const INT: i32 = 2;
const FLOATS: i32 = 6;
const INTS: i32 = 7;

/// A node of these inputs, which becomes `output`.
pub(super) fn new(operator: &str, name: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        name: name.to_owned(),
        ..step(operator, inputs, output)
    }
}

fn named(name: String, kind: i32) -> AttributeProto {
    AttributeProto {
        name,
        r#type: kind,
        ..AttributeProto::default()
    }
}

/// Adds a list of numbers.
pub(super) fn put_floats(node: &mut NodeProto, name: &str, floats: &[f32]) {
    node.attribute.push(AttributeProto {
        floats: floats.to_vec(),
        ..named(name.to_owned(), FLOATS)
    });
}

/// Adds a list of whole numbers.
pub(super) fn put_integers(node: &mut NodeProto, name: &str, integers: Vec<i64>) {
    node.attribute.push(AttributeProto {
        ints: integers,
        ..named(name.to_owned(), INTS)
    });
}

/// Adds a whole number.
pub(super) fn put_integer(node: &mut NodeProto, name: &str, integer: i64) {
    node.attribute.push(AttributeProto {
        i: integer,
        ..named(name.to_owned(), INT)
    });
}

/// Adds the grid of a tensor.
pub(super) fn put_grid(node: &mut NodeProto, of: &str, grid: Grid) {
    node.attribute.push(AttributeProto {
        f: grid.scale,
        ..named(format!("{of}_scale"), FLOAT)
    });
    put_integer(node, &format!("{of}_zero_point"), grid.zero_point.into());
    put_sign(node, of, grid.sign);
}

/// A node that makes of bytes on one grid those of another, held to a range.
pub(super) fn rounded(
    name: &str,
    bytes: &str,
    [from, to]: [Grid; 2],
    range: Range,
    output: &str,
) -> NodeProto {
    let mut made = new(ELEMENTS, name, &[bytes], output);
    put_grid(&mut made, "x", from);
    put_grid(&mut made, "y", to);
    put_range(&mut made, range);
    made
}

/// Adds the sizes of a stored tensor of weights; `None` where they are too large to be told.
pub(super) fn put_shape(node: &mut NodeProto, shape: &[usize]) -> Option<()> {
    let sizes = shape.iter().map(|size| i64::try_from(*size).ok());
    put_integers(node, "w_shape", sizes.collect::<Option<_>>()?);
    Some(())
}

/// The sizes of the stored weights.
pub(super) fn shape(node: &NodeProto) -> TractResult<Vec<usize>> {
    integers(node, "w_shape")?.context("no shape of weights")
}

/// Adds what the bytes of a tensor stand for.
pub(super) fn put_sign(node: &mut NodeProto, of: &str, sign: Sign) {
    let is_signed = i64::from(sign == Sign::Signed);
    put_integer(node, &format!("{of}_is_signed"), is_signed);
}

/// Adds what the output is held to, or puts it in the place of what is there.
pub(super) fn put_range(node: &mut NodeProto, range: Range) {
    node.attribute
        .retain(|it| it.name != "least" && it.name != "most");
    put_integer(node, "least", range.least.into());
    put_integer(node, "most", range.most.into());
}

/// The grid of a tensor.
pub(super) fn grid(node: &NodeProto, of: &str) -> TractResult<Grid> {
    let scale = attribute(node, &format!("{of}_scale"));
    Ok(Grid {
        sign: sign(node, of),
        scale: scale.with_context(|| format!("no scale of {of}"))?.f,
        zero_point: i32::try_from(integer(node, &format!("{of}_zero_point"), 0))?,
    })
}

/// What the bytes of a tensor stand for.
pub(super) fn sign(node: &NodeProto, of: &str) -> Sign {
    match integer(node, &format!("{of}_is_signed"), 0) {
        0 => Sign::Unsigned,
        _ => Sign::Signed,
    }
}

/// What the output is held to.
pub(super) fn range(node: &NodeProto) -> TractResult<Range> {
    Ok(Range {
        least: i32::try_from(integer(node, "least", 0))?,
        most: i32::try_from(integer(node, "most", 0))?,
    })
}

/// A list of numbers.
pub(super) fn floats(node: &NodeProto, name: &str) -> Vec<f32> {
    attribute(node, name).map_or(Vec::new(), |found| found.floats.clone())
}

/// A list of whole numbers, if the node has it.
pub(super) fn integers<T: TryFrom<i64>>(
    node: &NodeProto,
    name: &str,
) -> TractResult<Option<Vec<T>>> {
    let Some(found) = attribute(node, name) else {
        return Ok(None);
    };
    let integers = found.ints.iter().map(|int| T::try_from(*int).ok());
    let integers: Option<Vec<T>> = integers.collect();
    let integers = integers.with_context(|| {
        let ints = &found.ints;
        format!("{name} {ints:?}: numbers that are negative, or too large, are not supported")
    })?;
    Ok(Some(integers))
}

/// The type of tensors of such bytes.
pub(super) const fn datum_type(sign: Sign) -> DatumType {
    match sign {
        Sign::Signed => DatumType::I8,
        Sign::Unsigned => DatumType::U8,
    }
}
