//! The nodes of this module: attributes that describe a fused group before the library reads the
//! graph.

use tract_onnx::pb::{AttributeProto, NodeProto};
use tract_onnx::prelude::{DatumType, TractResult};
use tract_onnx::tract_core::internal::TractErrorContext as _;
use tract_onnx::tract_hir::infer::Solver;

use crate::frontends::onnx::graph::{AttributeKind, attribute, integer, named, step};
use crate::frontends::onnx::node_operator::Tensors;
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::elementwise::{Grid, IntegerRange};

/// Operators of these nodes. Their names contain spaces, which no model uses.
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

/// The attribute of an `AveragePool` that divides windows by all their taps, including those beyond
/// the padding.
pub(super) const COUNTS_WHOLE_WINDOWS: &str = "counts_whole_windows";

/// Creates a node with these inputs and the output `output`.
pub(super) fn new(operator: &str, name: &str, inputs: &[&str], output: &str) -> NodeProto {
    NodeProto {
        name: name.to_owned(),
        ..step(operator, inputs, output)
    }
}

/// Adds a list of floats.
pub(super) fn put_floats(node: &mut NodeProto, name: &str, floats: &[f32]) {
    node.attribute.push(AttributeProto {
        floats: floats.to_vec(),
        ..named(name, AttributeKind::Floats)
    });
}

/// Adds a list of integers.
pub(super) fn put_integers(node: &mut NodeProto, name: &str, integers: Vec<i64>) {
    node.attribute.push(AttributeProto {
        ints: integers,
        ..named(name, AttributeKind::Ints)
    });
}

/// Adds an integer.
pub(super) fn put_integer(node: &mut NodeProto, name: &str, integer: i64) {
    node.attribute.push(AttributeProto {
        i: integer,
        ..named(name, AttributeKind::Int)
    });
}

/// Adds the grid of a tensor.
pub(super) fn put_grid(node: &mut NodeProto, of: &str, grid: Grid) {
    node.attribute.push(AttributeProto {
        f: grid.scale,
        ..named(&format!("{of}_scale"), AttributeKind::Float)
    });
    put_integer(node, &format!("{of}_zero_point"), grid.zero_point.into());
    put_sign(node, of, grid.sign);
}

/// Creates a node that converts bytes of one grid to another one and clamps them to a range.
pub(super) fn rounded(
    name: &str,
    bytes: &str,
    [from, to]: [Grid; 2],
    range: IntegerRange,
    output: &str,
) -> NodeProto {
    let mut made = new(ELEMENTS, name, &[bytes], output);
    put_grid(&mut made, "x", from);
    put_grid(&mut made, "y", to);
    put_range(&mut made, range);
    made
}

/// Adds the sizes of a stored tensor of weights; `None` if they exceed int64.
pub(super) fn put_shape(node: &mut NodeProto, shape: &[usize]) -> Option<()> {
    let sizes = shape.iter().map(|size| i64::try_from(*size).ok());
    put_integers(node, "w_shape", sizes.collect::<Option<_>>()?);
    Some(())
}

/// Returns the sizes of the stored weights.
pub(super) fn shape(node: &NodeProto) -> TractResult<Vec<usize>> {
    integers(node, "w_shape")?.context("the shape of weights is missing")
}

/// Adds the signedness of a tensor's bytes.
pub(super) fn put_sign(node: &mut NodeProto, of: &str, sign: Sign) {
    let is_signed = i64::from(sign == Sign::Signed);
    put_integer(node, &format!("{of}_is_signed"), is_signed);
}

/// Sets the range to which the output is clamped.
pub(super) fn put_range(node: &mut NodeProto, range: IntegerRange) {
    node.attribute
        .retain(|it| it.name != "least" && it.name != "most");
    put_integer(node, "least", range.least.into());
    put_integer(node, "most", range.most.into());
}

/// Returns the grid of a tensor.
pub(super) fn grid(node: &NodeProto, of: &str) -> TractResult<Grid> {
    let scale = attribute(node, &format!("{of}_scale"));
    Ok(Grid {
        sign: sign(node, of),
        scale: scale
            .with_context(|| format!("the scale of {of} is missing"))?
            .f,
        zero_point: i32::try_from(integer(node, &format!("{of}_zero_point"), 0))?,
    })
}

/// Returns the signedness of a tensor's bytes.
pub(super) fn sign(node: &NodeProto, of: &str) -> Sign {
    match integer(node, &format!("{of}_is_signed"), 0) {
        0 => Sign::Unsigned,
        _ => Sign::Signed,
    }
}

/// Returns the range to which the output is clamped.
pub(super) fn range(node: &NodeProto) -> TractResult<IntegerRange> {
    Ok(IntegerRange {
        least: i32::try_from(integer(node, "least", 0))?,
        most: i32::try_from(integer(node, "most", 0))?,
    })
}

/// Returns a list of floats.
pub(super) fn floats(node: &NodeProto, name: &str) -> Vec<f32> {
    attribute(node, name).map_or(Vec::new(), |found| found.floats.clone())
}

/// Returns a list of integers, if the node has it.
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
        format!("{name} {ints:?}: negative or too large numbers are not supported")
    })?;
    Ok(Some(integers))
}

/// Returns the library's type of bytes of this signedness.
pub(super) const fn datum_type(sign: Sign) -> DatumType {
    match sign {
        Sign::Signed => DatumType::I8,
        Sign::Unsigned => DatumType::U8,
    }
}

/// Adds the rules for the dtypes of bytes: those of the first input and of the output.
pub(super) fn byte_dtypes<'r>(
    s: &mut Solver<'r>,
    [from, to]: [Sign; 2],
    [inputs, outputs]: Tensors<'r>,
) -> TractResult<()> {
    s.equals(&inputs[0].datum_type, datum_type(from))?;
    s.equals(&outputs[0].datum_type, datum_type(to))
}
