//! Fuses connected elementwise operators of the same shape into one operator ([`StepChain`]), such as
//! the dozen operators of an LSTM cell.
//!
//! Their intermediate results need neither tensors nor separate steps of the plan. The rule matches
//! the graph after the library has simplified it and before it chooses kernels.
//!
//! Invariant: every result equals that of the separate operators.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Slice;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::cnn::Conv;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;

use crate::graph::kernel::Kernel;
use crate::graph::pool::computed_together;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::{BinaryOperation, ChainStep, InPlace, StepChain, StepOperand};

/// Maximum number of operators in a region: that many blocks of elements stay in the nearest cache.
const MAX_REGION_OPERATORS: usize = 64;

/// The operation of an elementwise operator.
#[derive(Clone, Copy)]
enum RegionOperation {
    Pair(BinaryOperation),
    Function(InPlace),
}

/// Replaces each region by one operator.
pub(super) fn join(
    model: &mut TypedModel,
    cpu: Cpu,
    functions: fn(&str) -> Option<InPlace>,
) -> TractResult<()> {
    let order = model.eval_order()?;
    let kinds = kinds(model, functions)?;
    let regions = regions(model, &order, &kinds)?;
    let mut joined = false;
    for members in regions {
        if let Some(patch) = FusedRegion::of(model, &members, &kinds)?.patch(model, cpu)? {
            patch.apply(model)?;
            joined = true;
        }
    }
    if joined {
        model.compact()?;
    }
    Ok(())
}

/// Returns connected elementwise operators, each region in the order of evaluation.
///
/// An operator's level is one more than that of its inputs. Elementwise inputs of the same shape do
/// not raise it. A path out of a region never leads back into it, because levels only grow along
/// it.
fn regions(
    model: &TypedModel,
    order: &[usize],
    kinds: &ElementOperations,
) -> TractResult<Vec<Vec<usize>>> {
    let mut levels: HashMap<usize, usize> = HashMap::new();
    // Maps each operator in a region to the region.
    let mut of: HashMap<usize, usize> = HashMap::new();
    let mut regions: Vec<Vec<usize>> = Vec::new();
    for &id in order {
        let node = model.node(id);
        let mut level = 0;
        // Regions of the same shape that the operator reads, and their levels.
        let mut beside = Vec::new();
        for input in &node.inputs {
            let of_input = levels.get(&input.node).copied().unwrap_or_default();
            let is_same = kinds.contains_key(&id)
                && model.outlet_fact(*input)?.shape == node.outputs[0].fact.shape;
            match of.get(&input.node).filter(|_| is_same) {
                Some(region) => {
                    level = level.max(of_input);
                    beside.push((*region, of_input));
                }
                None => level = level.max(of_input + 1),
            }
        }
        levels.insert(id, level);
        if !kinds.contains_key(&id) {
            continue;
        }
        beside.retain(|(_, of_region)| *of_region == level);
        // Smaller regions are merged into the largest.
        let largest = beside.iter().map(|(region, _)| *region);
        let home = largest.max_by_key(|region| regions[*region].len());
        let home = home.unwrap_or_else(|| {
            regions.push(Vec::new());
            regions.len() - 1
        });
        for (region, _) in beside.iter().filter(|(region, _)| *region != home) {
            let members = mem::take(&mut regions[*region]);
            of.extend(members.iter().map(|member| (*member, home)));
            regions[home].extend(members);
        }
        of.insert(id, home);
        regions[home].push(id);
    }
    let places: HashMap<usize, usize> =
        order.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    for region in &mut regions {
        region.sort_by_key(|id| places[id]);
    }
    regions.retain(|region| (2..=MAX_REGION_OPERATORS).contains(&region.len()));
    Ok(regions)
}

/// The operations of elementwise operators, by their nodes.
type ElementOperations = HashMap<usize, RegionOperation>;

fn kinds(
    model: &TypedModel,
    functions: fn(&str) -> Option<InPlace>,
) -> TractResult<ElementOperations> {
    let mut kinds = ElementOperations::new();
    for node in model.nodes() {
        if let Some(kind) = kind(model, node, functions)? {
            kinds.insert(node.id, kind);
        }
    }
    Ok(kinds)
}

/// Returns the operation of a float32 elementwise operator whose inputs have its shape, or its last
/// dimensions and else size 1.
fn kind(
    model: &TypedModel,
    node: &TypedNode,
    functions: fn(&str) -> Option<InPlace>,
) -> TractResult<Option<RegionOperation>> {
    let kind = if let Some(op) = node.op_as::<TypedBinOp>().filter(|op| op.1.is_none()) {
        match op.0.name() {
            "Add" => RegionOperation::Pair(BinaryOperation::Add),
            "Sub" => RegionOperation::Pair(BinaryOperation::Subtract),
            "Mul" => RegionOperation::Pair(BinaryOperation::Multiply),
            "Div" => RegionOperation::Pair(BinaryOperation::Divide),
            "Min" => RegionOperation::Pair(BinaryOperation::Minimum),
            "Max" => RegionOperation::Pair(BinaryOperation::Maximum),
            _ => return Ok(None),
        }
    } else if let Some(function) = node.op_as::<ElementWiseOp>().filter(|op| op.1.is_none()) {
        match functions(&function.0.name()) {
            Some(function) => RegionOperation::Function(function),
            None => return Ok(None),
        }
    } else {
        return Ok(None);
    };
    let output = &node.outputs[0].fact;
    let mut fits = output.datum_type == DatumType::F32;
    for input in &node.inputs {
        let fact = model.outlet_fact(*input)?;
        let before = model.node(input.node);
        // The library fuses the next operator into these.
        let is_product = before.op_is::<EinSum>() || before.op_is::<Conv>();
        fits &= fact.datum_type == DatumType::F32
            && !is_product
            && is_repeated(&fact.shape, &output.shape);
    }
    Ok(fits.then_some(kind))
}

/// Returns whether tensors of a shape are whole, or the same elements for all first dimensions.
fn is_repeated(part: &ShapeFact, whole: &ShapeFact) -> bool {
    let pairs = part.iter().zip(whole.iter());
    part.len() == whole.len()
        && pairs
            .skip_while(|(part, _)| part.is_one())
            .all(|(part, whole)| part == whole)
}

/// The inputs and computations of a region.
struct FusedRegion {
    members: Vec<usize>,
    shape: ShapeFact,
    /// Tensors, with the range of elements that are read, unless it is all.
    inputs: Vec<(OutletId, Option<Range<usize>>)>,
    steps: Vec<ChainStep>,
    /// The steps that operators outside read.
    outputs: Vec<usize>,
}

impl FusedRegion {
    fn of(model: &TypedModel, members: &[usize], kinds: &ElementOperations) -> TractResult<Self> {
        let mut region = Self {
            members: members.to_vec(),
            shape: model.node(members[0]).outputs[0].fact.shape.clone(),
            inputs: Vec::new(),
            steps: Vec::new(),
            outputs: Vec::new(),
        };
        for (at, id) in members.iter().enumerate() {
            let node = model.node(*id);
            let operand = |outlet: OutletId, region: &mut Self| match members[..at]
                .iter()
                .position(|member| *member == outlet.node)
            {
                Some(step) => Ok(StepOperand::Step(step)),
                None => region.input(model, outlet).map(StepOperand::Input),
            };
            let step = match (kinds.get(id).copied(), &*node.inputs) {
                (Some(RegionOperation::Pair(operation)), &[a, b]) => ChainStep::Pair(
                    operation,
                    [operand(a, &mut region)?, operand(b, &mut region)?],
                ),
                (Some(RegionOperation::Function(function)), &[from]) => {
                    ChainStep::Function(function, operand(from, &mut region)?)
                }
                _ => bail!("{node} is not an elementwise operator"),
            };
            region.steps.push(step);
            let mut readers = node.outputs[0].successors.iter();
            let is_read = readers.any(|reader| !members.contains(&reader.node));
            if is_read || model.outputs.contains(&OutletId::new(*id, 0)) {
                region.outputs.push(at);
            }
        }
        Ok(region)
    }

    /// Returns the number of an input. A slice of contiguous elements is read in place.
    fn input(&mut self, model: &TypedModel, outlet: OutletId) -> TractResult<usize> {
        let node = model.node(outlet.node);
        let slice = node.op_as::<Slice>().filter(|_| {
            model
                .outlet_fact(outlet)
                .is_ok_and(|fact| fact.shape == self.shape)
        });
        let range = match slice {
            Some(slice) => elements(slice, &model.outlet_fact(node.inputs[0])?.shape),
            None => None,
        };
        let input = match range {
            Some(range) => (node.inputs[0], Some(range)),
            None => (outlet, None),
        };
        let known = self.inputs.iter().position(|known| *known == input);
        Ok(known.unwrap_or_else(|| {
            self.inputs.push(input);
            self.inputs.len() - 1
        }))
    }

    /// Returns the operator that replaces the region, if anything reads its results.
    fn patch(self, model: &TypedModel, cpu: Cpu) -> TractResult<Option<TypedModelPatch>> {
        let Some(last) = self.outputs.last() else {
            return Ok(None);
        };
        let name = &model.node(self.members[*last]).name;
        let steps = StepChain::new(cpu, self.inputs.len(), &self.steps, &self.outputs);
        let steps = steps.map_err(TractError::msg)?;
        let facts = self
            .outputs
            .iter()
            .map(|_| DatumType::F32.fact(self.shape.clone()));
        let (views, shape) = (
            self.inputs.iter(),
            self.shape.as_concrete().map(<[usize]>::to_vec),
        );
        let views: Vec<_> = views.map(|(_, view)| view.clone()).collect();
        let outputs = self.outputs.len();
        let kernel = Kernel::new("Steps", facts.collect(), move |inputs| {
            let pairs = inputs.iter().zip(&views);
            let whole = pairs
                .filter(|(_, view)| view.is_none())
                .map(|(input, _)| input);
            // Inputs may be repeated. All may be empty.
            let like = match whole.clone().find(|input| input.len() == 0) {
                Some(empty) => Some(empty),
                None => whole.max_by_key(|input| input.len()),
            };
            let shape = match (&shape, like) {
                (Some(shape), _) => shape,
                (None, Some(input)) => input.shape(),
                (None, None) => bail!("elementwise steps without a sized tensor"),
            };
            computed_together(shape, outputs, inputs, |from, to, split| {
                let from = from.iter().zip(&views).map(|(from, view)| match view {
                    None => Ok(*from),
                    Some(view) => from.get(view.clone()).ok_or_else(|| {
                        format!("elements {view:?} exceed a tensor of {}", from.len())
                    }),
                });
                let from: Vec<&[f32]> = from.collect::<Result<_, _>>()?;
                steps.run(shape.iter().product(), &from, to, split)
            })
        });
        let mut patch = TypedModelPatch::new("fused elementwise operators");
        let inputs: Vec<OutletId> = self.inputs.iter().map(|(outlet, _)| *outlet).collect();
        let inputs = patch.taps(model, &inputs)?;
        let wires = patch.wire_node(name, kernel, &inputs)?;
        for (step, wire) in self.outputs.iter().zip(wires) {
            patch.shunt_outside(model, OutletId::new(self.members[*step], 0), wire)?;
        }
        Ok(Some(patch))
    }
}

/// Returns the elements of a slice, if they are contiguous and all sizes are known.
fn elements(slice: &Slice, shape: &ShapeFact) -> Option<Range<usize>> {
    let shape = shape.as_concrete()?;
    let (start, end) = (slice.start.as_usize()?, slice.end.as_usize()?);
    let (before, behind) = (&shape[..slice.axis], &shape[slice.axis + 1..]);
    let row: usize = behind.iter().product();
    (before.iter().all(|size| *size == 1) && start <= end).then(|| start * row..end * row)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tract_onnx::tract_core::internal::*;
    use tract_onnx::tract_core::ops::array::Slice;
    use tract_onnx::tract_core::ops::binary::{BinMiniOp, TypedBinOp};
    use tract_onnx::tract_core::ops::math::{self, Add, Div, Max, Min, Mul, Sub};
    use tract_onnx::tract_core::ops::nn::{Reduce, Reducer, sigmoid};

    use super::join;
    use crate::graph::corrections;
    use pkgtool_kernels::Cpu;

    /// Sizes of the results. The input has twice as many rows.
    const SHAPE: [usize; 3] = [1, 4, 4];

    /// A graph of elementwise operators with others in between.
    fn graph(drawn: &[(usize, u16, u16)]) -> TractResult<TypedModel> {
        let mut model = TypedModel::default();
        let input = model.add_source("x", f32::fact([1, 8, 4]))?;
        let first = model.wire_node("first", Slice::new(1, 0, 4), &[input])?[0];
        let mut wires = vec![first];
        for (at, (kind, a, b)) in drawn.iter().enumerate() {
            let name = format!("node{at}");
            let [a, b] = [*a, *b].map(usize::from);
            let [left, right] = [a, b].map(|drawn| wires[drawn % wires.len()]);
            let binary = |op: Box<dyn BinMiniOp>| TypedBinOp(op, None);
            let is_full = |wire| {
                let fact = model.outlet_fact(wire)?;
                TractResult::Ok(fact.shape.iter().any(|size| !size.is_one()))
            };
            let wire = match kind {
                0 => model.wire_node(name, binary(Box::new(Add)), &[left, right])?,
                1 => model.wire_node(name, binary(Box::new(Sub)), &[left, right])?,
                2 => model.wire_node(name, binary(Box::new(Mul)), &[left, right])?,
                3 => model.wire_node(name, binary(Box::new(Div)), &[left, right])?,
                4 => model.wire_node(name, sigmoid(), &[left])?,
                5 => model.wire_node(name, math::tanh(), &[left])?,
                6 => model.wire_node(name, math::neg(), &[left])?,
                10 => model.wire_node(name, binary(Box::new(Max)), &[left, right])?,
                11 => model.wire_node(name, binary(Box::new(Min)), &[left, right])?,
                12 => {
                    let row = Tensor::from_shape(&[1, 1, 4], &[-1.0_f32, 0.0, 0.5, 2.0])?;
                    let row = model.add_const(format!("{name}.row"), row)?;
                    model.wire_node(name, binary(Box::new(Mul)), &[left, row])?
                }
                7 => model.wire_node(name, Slice::new(1, a % 5, a % 5 + 4), &[input])?,
                8 => model.wire_node(name, Reduce::new(tvec![1, 2], Reducer::Sum), &[left])?,
                _ if is_full(left)? => model.wire_node(name, AxisOp::Move(1, 2), &[left])?,
                _ => model.wire_node(name, math::abs(), &[left])?,
            };
            wires.extend(wire);
        }
        let outputs: Vec<OutletId> = wires.iter().rev().step_by(3).copied().collect();
        model.select_output_outlets(&outputs)?;
        model.compact()?;
        Ok(model)
    }

    fn results(mut model: TypedModel) -> TractResult<Vec<Vec<f32>>> {
        (corrections::CORRECTIONS.finalise)(&mut model);
        let values: Vec<f32> = (0..32_u8)
            .map(|at| f32::from(at * 7 % 32) / 4.0 - 4.0)
            .collect();
        let input = Tensor::from_shape(&[1, 8, 4], &values)?;
        let outputs = model.into_runnable()?.run(tvec![input.into_tvalue()])?;
        let numbers = outputs.iter().map(|output| {
            let view = output.try_as_plain_ram()?;
            Ok(view.as_slice::<f32>()?.to_vec())
        });
        numbers.collect()
    }

    fn count(model: &TypedModel, name: &str) -> usize {
        model
            .nodes()
            .iter()
            .filter(|node| node.op.name() == name)
            .count()
    }

    proptest! {
        #[test]
        fn together_they_give_what_they_give_one_by_one(
            drawn in prop::collection::vec((0..13_usize, any::<u16>(), any::<u16>()), 2..40),
        ) {
            let mut model = graph(&drawn).expect("a graph");
            let wanted = results(model.clone()).expect("results");
            join(&mut model, Cpu::chosen(), corrections::CORRECTIONS.functions).expect("regions");
            let found = results(model).expect("results of regions");
            for (found, wanted) in found.iter().flatten().zip(wanted.iter().flatten()) {
                let is_same = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
                prop_assert!(is_same, "{found} {wanted}");
            }
        }
    }

    /// The cell of an LSTM, whose gates are slices of one tensor.
    #[test]
    fn a_cell_is_one_operator() -> TractResult<()> {
        let mut model = TypedModel::default();
        let gates = model.add_source("gates", f32::fact([1, 16]))?;
        let before = model.add_source("before", f32::fact([1, 4]))?;
        let mut wire = |name: &str, op: Box<dyn TypedOp>, inputs: &[OutletId]| {
            model.wire_node(name, op, inputs).map(|wires| wires[0])
        };
        let binary = |op: Box<dyn BinMiniOp>| Box::new(TypedBinOp(op, None));
        let mut gate = Vec::new();
        for at in 0..4 {
            let slice = Slice::new(1, at * 4, at * 4 + 4);
            let slice = wire(&format!("slice{at}"), Box::new(slice), &[gates])?;
            let function = if at == 2 { math::tanh() } else { sigmoid() };
            gate.push(wire(&format!("gate{at}"), Box::new(function), &[slice])?);
        }
        let kept = wire("kept", binary(Box::new(Mul)), &[gate[1], before])?;
        let new = wire("new", binary(Box::new(Mul)), &[gate[0], gate[2]])?;
        let cell = wire("cell", binary(Box::new(Add)), &[kept, new])?;
        let squashed = wire("squashed", Box::new(math::tanh()), &[cell])?;
        let hidden = wire("hidden", binary(Box::new(Mul)), &[gate[3], squashed])?;
        model.select_output_outlets(&[hidden, cell])?;
        join(
            &mut model,
            Cpu::chosen(),
            corrections::CORRECTIONS.functions,
        )?;
        assert_eq!(count(&model, "Steps"), 1);
        assert_eq!(model.nodes().len(), 3, "{model}");
        Ok(())
    }

    /// A path that leaves a region and returns must not be merged with it.
    #[test]
    fn a_way_out_does_not_lead_back() -> TractResult<()> {
        let mut model = TypedModel::default();
        let input = model.add_source("x", f32::fact(SHAPE))?;
        let one = model.wire_node("one", math::neg(), &[input])?[0];
        let two = model.wire_node("two", math::abs(), &[one])?[0];
        let total = model.wire_node("total", Reduce::new(tvec![1, 2], Reducer::Sum), &[two])?[0];
        let three = model.wire_node("three", TypedBinOp(Box::new(Mul), None), &[one, total])?[0];
        let four = model.wire_node("four", math::neg(), &[three])?[0];
        model.select_output_outlets(&[four])?;
        join(
            &mut model,
            Cpu::chosen(),
            corrections::CORRECTIONS.functions,
        )?;
        assert_eq!(count(&model, "Steps"), 2);
        Ok(())
    }

    /// Sizes that are known only during a run.
    #[test]
    fn sizes_may_be_symbols() -> TractResult<()> {
        let mut model = TypedModel::default();
        let size = model.symbols.sym("n");
        let input = model.add_source("x", f32::fact(&[size.to_dim(), 3.to_dim()]))?;
        let one = model.wire_node("one", math::neg(), &[input])?[0];
        let two = model.wire_node("two", TypedBinOp(Box::new(Add), None), &[one, input])?[0];
        let factor = model.add_const("factor", Tensor::from_shape(&[1, 1], &[2.0_f32])?)?;
        let three = model.wire_node("three", TypedBinOp(Box::new(Mul), None), &[factor, two])?[0];
        model.select_output_outlets(&[three])?;
        join(
            &mut model,
            Cpu::chosen(),
            corrections::CORRECTIONS.functions,
        )?;
        assert_eq!(count(&model, "Steps"), 1);
        let plan = model.into_runnable()?;
        for rows in [1, 5, 0, 2] {
            let input = Tensor::from_shape(&[rows, 3], &vec![2.0_f32; rows * 3])?;
            let output = plan.run(tvec![input.into_tvalue()])?;
            assert_eq!(output[0].shape(), [rows, 3]);
            assert_eq!(
                output[0].try_as_plain_ram()?.as_slice::<f32>()?,
                vec![0.0; rows * 3]
            );
        }
        Ok(())
    }
}
