//! Converts groups around quantised operators to the nodes of this module.

use std::collections::HashMap;

use tract_onnx::pb::NodeProto;

use super::axes::axes_of;
use super::constants::{Element, StoredConstants};
use super::node;
use super::windows::are_supported;
use crate::frontends::onnx::graph::{attribute, has_input, integer};
use pkgtool_kernels::bytes::elementwise::{Grid, IntegerRange};

/// Operators that only move elements, with one such input.
const MOVES: [&str; 12] = [
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// A dequantised tensor whose bytes are known.
#[derive(Debug, Clone)]
pub(super) struct QuantisedTensor {
    /// The name of the bytes.
    pub(super) bytes: String,
    pub(super) element: Element,
    /// The scale, or one scale per position along `axis`.
    pub(super) scales: Vec<f32>,
    /// The zero point, or one per scale.
    pub(super) zeros: Vec<i32>,
    pub(super) axis: i64,
}

impl QuantisedTensor {
    /// Returns the grid of all elements, if they share one.
    pub(super) fn grid(&self) -> Option<Grid> {
        let ([scale], [zero_point]) = (&*self.scales, &*self.zeros) else {
            return None;
        };
        let (scale, zero_point) = (*scale, *zero_point);
        let known = scale.is_normal() && scale > 0.0;
        let sign = self.element.sign().filter(|_| known)?;
        Some(Grid {
            sign,
            scale,
            zero_point,
        })
    }
}

/// The quantised output of a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupTarget<'a> {
    pub(super) grid: Grid,
    /// The range to which it is clamped.
    pub(super) range: IntegerRange,
    /// The name of its bytes.
    pub(super) output: &'a str,
}

/// The bias that a product adds to its sums.
enum Bias {
    None,
    /// In steps of the sums.
    Steps(Vec<i64>),
    /// As real numbers.
    Real(Vec<f64>),
}

/// Returns the nodes that replace an operator with the dequantised inputs `held` and a quantised
/// output.
pub(super) fn group(
    constants: &StoredConstants,
    held: &HashMap<String, QuantisedTensor>,
    operator: &NodeProto,
    target: GroupTarget<'_>,
) -> Option<Vec<NodeProto>> {
    let group = QuantisedGroup {
        constants,
        held,
        operator,
        target,
    };
    match operator.op_type.as_str() {
        "Conv" => {
            let weights = group.input(1)?;
            let bias = group.bias(2, weights)?;
            Some(vec![group.convolution(group.input(0)?, weights, &bias)?])
        }
        "Gemm" => group.gemm(),
        "MatMul" => {
            let (rows, matrix) = (group.input(0)?, group.input(1)?);
            Some(vec![group.product(rows, matrix, false, &Bias::None)?])
        }
        "Add" => group.pair("add"),
        "Sub" => group.pair("subtract"),
        "Mul" => group.pair("multiply"),
        "MaxPool" => group.largest(),
        "AveragePool" => group.average(),
        "GlobalAveragePool" => group.mean(&[], true),
        "ReduceMean" => {
            let axes = axes_of(constants, operator)?;
            group.mean(&axes, integer(operator, "keepdims", 1) != 0)
        }
        "Concat" => group.joined(),
        name if MOVES.contains(&name) => group.moved(),
        _ => None,
    }
}

/// Returns the nodes that replace a `QLinearConv` or `QLinearMatMul` with stored weights.
pub(super) fn group_of_qlinear(
    constants: &StoredConstants,
    word: &NodeProto,
) -> Option<Vec<NodeProto>> {
    let [x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, ..] = word.input.as_slice()
    else {
        return None;
    };
    let is_convolution = word.op_type == "QLinearConv";
    let held = |bytes: &String, scale: &String, zero: &String| {
        let scales = constants.list(scale, Element::Float)?;
        let zeros = constants.get(zero)?;
        #[expect(clippy::cast_possible_truncation, reason = "float32, and bytes")]
        Some(QuantisedTensor {
            bytes: bytes.clone(),
            element: zeros.element,
            scales: scales.iter().map(|scale| *scale as f32).collect(),
            zeros: zeros.values.as_ref()?.iter().map(|it| *it as i32).collect(),
            axis: i64::from(!is_convolution),
        })
    };
    let input = held(x, x_scale, x_zero)?;
    let weights = held(w, w_scale, w_zero)?;
    let output = word.output.first()?;
    let grid = held(output, y_scale, y_zero)?.grid()?;
    let group = QuantisedGroup {
        constants,
        held: &HashMap::new(),
        operator: word,
        target: GroupTarget {
            grid,
            range: IntegerRange::whole(grid.sign),
            output,
        },
    };
    if !is_convolution {
        return Some(vec![group.product(&input, &weights, false, &Bias::None)?]);
    }
    let bias = if has_input(word, 8) {
        let steps = constants.list(&word.input[8], Element::Int32)?;
        #[expect(clippy::cast_possible_truncation, reason = "int32 values")]
        Bias::Steps(steps.iter().map(|step| *step as i64).collect())
    } else {
        Bias::None
    };
    Some(vec![group.convolution(&input, &weights, &bias)?])
}

/// Returns the node that replaces a `MatMulInteger` with a stored matrix.
pub(super) fn sums(
    constants: &StoredConstants,
    product: &NodeProto,
    [rows, matrix]: [&str; 2],
) -> Option<NodeProto> {
    let stored = constants.get(matrix)?;
    let sign = stored.element.sign()?;
    let &[inputs, outputs] = stored.dims.as_slice() else {
        return None;
    };
    let zeros = if has_input(product, 3) {
        let zeros = constants.get(&product.input[3])?;
        let zeros = zeros
            .values
            .as_ref()
            .filter(|_| zeros.element == stored.element)?;
        #[expect(clippy::cast_possible_truncation, reason = "bytes")]
        zeros.iter().map(|zero| *zero as i64).collect()
    } else {
        vec![0]
    };
    if inputs == 0 || outputs == 0 || zeros.len() != 1 && zeros.len() != outputs {
        return None;
    }
    let output = product.output.first()?;
    let mut made = node::new(node::SUMS, &product.name, &[rows, matrix], output);
    if has_input(product, 2) {
        made.input.push(product.input[2].clone());
    }
    node::put_sign(&mut made, "w", sign);
    node::put_integers(&mut made, "w_zero_points", zeros);
    node::put_shape(&mut made, &[inputs, outputs])?;
    Some(made)
}

struct QuantisedGroup<'a> {
    constants: &'a StoredConstants,
    held: &'a HashMap<String, QuantisedTensor>,
    operator: &'a NodeProto,
    target: GroupTarget<'a>,
}

impl QuantisedGroup<'_> {
    fn input(&self, place: usize) -> Option<&QuantisedTensor> {
        self.held.get(self.operator.input.get(place)?)
    }

    /// Creates a node of this module with the common attributes.
    fn node(&self, kind: &str, inputs: &[&str], of: &[(&str, Grid)]) -> NodeProto {
        let mut made = node::new(kind, &self.operator.name, inputs, self.target.output);
        for (name, grid) in of {
            node::put_grid(&mut made, name, *grid);
        }
        node::put_grid(&mut made, "y", self.target.grid);
        node::put_range(&mut made, self.target.range);
        made
    }

    /// Returns the bias of products with these weights.
    fn bias(&self, place: usize, weights: &QuantisedTensor) -> Option<Bias> {
        if !has_input(self.operator, place) {
            return Some(Bias::None);
        }
        let name = &self.operator.input[place];
        let Some(held) = self.held.get(name) else {
            let numbers = self.constants.list(name, Element::Float)?;
            return Some(Bias::Real(numbers.to_vec()));
        };
        let steps = self.constants.list(&held.bytes, Element::Int32)?;
        let from = self.input(0)?.grid()?;
        let count = steps.len().max(held.scales.len());
        let scale = |list: &[f32], at: usize| list.get(at % list.len().max(1)).copied();
        let mut same = true;
        let mut numbers = Vec::new();
        for at in 0..count {
            let own = scale(&held.scales, at)?;
            let of_sums = from.scale * scale(&weights.scales, at)?;
            same &= (own - of_sums).abs() <= of_sums.abs() * 1e-5;
            let step = steps.get(at % steps.len().max(1))?;
            numbers.push(step * f64::from(own));
        }
        #[expect(clippy::cast_possible_truncation, reason = "int32 values")]
        let whole = || steps.iter().map(|step| *step as i64).collect();
        Some(if same {
            Bias::Steps(whole())
        } else {
            Bias::Real(numbers)
        })
    }

    /// Creates the node with the attributes of bias and weights, if a kernel supports them: output
    /// channels along `axis` of the stored weights.
    fn weighted(
        &self,
        kind: &str,
        (input, weights): (&QuantisedTensor, &QuantisedTensor),
        (outputs, axis): (usize, i64),
        bias: &Bias,
    ) -> Option<NodeProto> {
        let (from, sign) = (input.grid()?, weights.element.sign()?);
        let to = self.target.grid;
        let fits = |count: usize| count == 1 || count == outputs;
        let rank = i64::try_from(self.constants.get(&weights.bytes)?.dims.len()).ok()?;
        let along = weights.axis == axis || weights.axis + rank == axis;
        if !fits(weights.scales.len()) || !fits(weights.zeros.len()) {
            return None;
        }
        if (weights.scales.len() > 1 || weights.zeros.len() > 1) && !along {
            return None;
        }
        let factors: Vec<f32> = weights
            .scales
            .iter()
            .map(|scale| from.scale * scale / to.scale)
            .collect();
        if !factors.iter().all(|factor| factor.is_finite()) {
            return None;
        }
        let steps = match bias {
            Bias::None => None,
            Bias::Steps(steps) => Some(steps.clone()),
            Bias::Real(numbers) => Some(steps_of(numbers, from.scale, weights, &factors)?),
        };
        let inputs = [input.bytes.as_str(), weights.bytes.as_str()];
        let mut made = self.node(kind, &inputs, &[("x", from)]);
        node::put_sign(&mut made, "w", sign);
        node::put_floats(&mut made, "factors", &factors);
        let zeros = weights.zeros.iter().map(|zero| i64::from(*zero)).collect();
        node::put_integers(&mut made, "w_zero_points", zeros);
        if let Some(mut steps) = steps {
            if steps.len() == 1 {
                steps = vec![steps[0]; outputs];
            }
            if steps.len() != outputs {
                return None;
            }
            node::put_integers(&mut made, "bias", steps);
        }
        Some(made)
    }

    fn convolution(
        &self,
        input: &QuantisedTensor,
        weights: &QuantisedTensor,
        bias: &Bias,
    ) -> Option<NodeProto> {
        let stored = self.constants.get(&weights.bytes)?;
        let [outputs, inputs, window @ ..] = stored.dims.as_slice() else {
            return None;
        };
        let groups = usize::try_from(integer(self.operator, "group", 1)).ok()?;
        let sound = (1..=2).contains(&window.len())
            && stored.dims.iter().all(|size| *size > 0)
            && inputs.checked_mul(groups).is_some()
            && groups > 0
            && outputs.is_multiple_of(groups);
        let declared = attribute(self.operator, "kernel_shape");
        let same = declared.is_none_or(|declared| {
            let sizes = declared.ints.iter().map(|size| usize::try_from(*size).ok());
            sizes.eq(window.iter().map(|size| Some(*size)))
        });
        if !sound || !same {
            return None;
        }
        let mut made = self.weighted(node::CONVOLUTION, (input, weights), (*outputs, 0), bias)?;
        let attributes = self.operator.attribute.iter();
        let kept = attributes.filter(|it| it.name != "kernel_shape").cloned();
        made.attribute.extend(kept);
        node::put_shape(&mut made, &stored.dims)?;
        Some(made)
    }

    /// Returns the product of rows and a matrix; `turned` if each row of the matrix is an output.
    fn product(
        &self,
        rows: &QuantisedTensor,
        matrix: &QuantisedTensor,
        turned: bool,
        bias: &Bias,
    ) -> Option<NodeProto> {
        let &[first, second] = self.constants.get(&matrix.bytes)?.dims.as_slice() else {
            return None;
        };
        let (inputs, outputs, axis) = if turned {
            (second, first, 0)
        } else {
            (first, second, 1)
        };
        if inputs == 0 || outputs == 0 {
            return None;
        }
        let mut made = self.weighted(node::PRODUCT, (rows, matrix), (outputs, axis), bias)?;
        node::put_integer(&mut made, "is_turned", turned.into());
        node::put_shape(&mut made, &[inputs, outputs])?;
        Some(made)
    }

    fn gemm(&self) -> Option<Vec<NodeProto>> {
        let is_one = |name| {
            let factor = attribute(self.operator, name).map_or(1.0, |factor| factor.f);
            (factor - 1.0).abs() < f32::EPSILON
        };
        let plain = is_one("alpha") && integer(self.operator, "transA", 0) == 0;
        let has_bias = has_input(self.operator, 2);
        if !plain || has_bias && !is_one("beta") {
            return None;
        }
        let matrix = self.input(1)?;
        let bias = self.bias(2, matrix)?;
        if has_bias {
            // A column would add a different number to each row.
            let name = &self.operator.input[2];
            let name = self.held.get(name).map_or(name, |held| &held.bytes);
            let dims = &self.constants.get(name)?.dims;
            let lead = dims.len().saturating_sub(1);
            if !dims.iter().take(lead).all(|size| *size == 1) {
                return None;
            }
        }
        let turned = integer(self.operator, "transB", 0) != 0;
        Some(vec![self.product(self.input(0)?, matrix, turned, &bias)?])
    }

    fn pair(&self, operation: &str) -> Option<Vec<NodeProto>> {
        let [left, right] = [self.input(0)?, self.input(1)?];
        let grids = [("a", left.grid()?), ("b", right.grid()?)];
        let mut made = self.node(node::PAIR, &[&left.bytes, &right.bytes], &grids);
        node::put_integer(&mut made, operation, 1);
        Some(vec![made])
    }

    fn largest(&self) -> Option<Vec<NodeProto>> {
        let input = self.input(0)?;
        let sound = are_supported(self.operator)
            && integer(self.operator, "storage_order", 0) == 0
            && !self.operator.output.iter().skip(1).any(|it| !it.is_empty());
        if !sound {
            return None;
        }
        self.kept(input.grid()?, |output| {
            let name = &self.operator.name;
            let mut made = node::new(node::LARGEST, name, &[&input.bytes], output);
            made.attribute.clone_from(&self.operator.attribute);
            node::put_sign(&mut made, "x", input.element.sign()?);
            Some(made)
        })
    }

    fn average(&self) -> Option<Vec<NodeProto>> {
        let input = self.input(0)?;
        if !are_supported(self.operator) {
            return None;
        }
        let mut made = self.node(node::AVERAGE, &[&input.bytes], &[("x", input.grid()?)]);
        let attributes = self.operator.attribute.iter();
        made.attribute.extend(attributes.cloned());
        Some(vec![made])
    }

    fn mean(&self, axes: &[i64], keeps: bool) -> Option<Vec<NodeProto>> {
        let input = self.input(0)?;
        let grid = input.grid()?;
        let mut made = self.node(node::MEAN, &[&input.bytes], &[("x", grid)]);
        node::put_integers(&mut made, "axes", axes.to_vec());
        node::put_integer(&mut made, "keepdims", keeps.into());
        Some(vec![made])
    }

    /// Applies the operator to bytes instead of numbers.
    fn moved(&self) -> Option<Vec<NodeProto>> {
        let input = self.input(0)?;
        if self.operator.output.len() != 1 {
            return None;
        }
        self.kept(input.grid()?, |output| {
            let mut made = self.operator.clone();
            made.input[0].clone_from(&input.bytes);
            made.output = vec![output.to_owned()];
            Some(made)
        })
    }

    /// Concatenates tensors, each requantised to the grid of the result.
    fn joined(&self) -> Option<Vec<NodeProto>> {
        let mut nodes = Vec::new();
        let mut joined = self.operator.clone();
        joined.output = vec![self.target.output.to_owned()];
        let count = self.operator.input.len();
        for (at, name) in joined.input.iter_mut().enumerate() {
            let part = self.held.get(name)?;
            let grid = part.grid()?;
            if self.is_kept(grid) {
                name.clone_from(&part.bytes);
                continue;
            }
            *name = format!("{}.part.{at}.of.{count}", self.target.output);
            nodes.push(self.rounded(&part.bytes, grid, name));
        }
        nodes.push(joined);
        Some(nodes)
    }

    /// Returns `true` if bytes of this grid already have the target's grid and range.
    fn is_kept(&self, grid: Grid) -> bool {
        grid == self.target.grid && self.target.range == IntegerRange::whole(grid.sign)
    }

    /// Returns an operator that keeps the grid of its input, followed by the conversion to the
    /// target.
    fn kept(
        &self,
        grid: Grid,
        make: impl FnOnce(&str) -> Option<NodeProto>,
    ) -> Option<Vec<NodeProto>> {
        if self.is_kept(grid) {
            return Some(vec![make(self.target.output)?]);
        }
        let own = format!("{}.bytes", self.target.output);
        Some(vec![
            make(&own)?,
            self.rounded(&own, grid, self.target.output),
        ])
    }

    fn rounded(&self, bytes: &str, grid: Grid, output: &str) -> NodeProto {
        let grids = [grid, self.target.grid];
        node::rounded("", bytes, grids, self.target.range, output)
    }
}

/// Converts real numbers to steps of the sums of products, if the rounding error is a small part of
/// a step of the output.
fn steps_of(
    numbers: &[f64],
    scale: f32,
    weights: &QuantisedTensor,
    factors: &[f32],
) -> Option<Vec<i64>> {
    const MOST: f64 = 1e9;
    const FINE: f32 = 1.0 / 64.0;
    let count = numbers.len().max(weights.scales.len());
    let steps = (0..count).map(|at| {
        let number = numbers.get(at % numbers.len().max(1))?;
        let own = weights.scales.get(at % weights.scales.len().max(1))?;
        let step = f64::from(scale * own);
        let steps = number / step;
        let is_fine = factors.get(at % factors.len().max(1))?.abs() <= FINE;
        let is_exact = *number == 0.0;
        let known = is_exact || is_fine && steps.abs() <= MOST;
        #[expect(clippy::cast_possible_truncation, reason = "clamped to 30 bits")]
        let steps = steps.round_ties_even() as i64;
        known.then_some(if is_exact { 0 } else { steps })
    });
    steps.collect()
}
