//! Lowers a method by following its instructions in order.
//!
//! A conditional jump lowers both branches and selects between their results, since instructions
//! have no side effects.

use std::collections::{BTreeSet, HashMap};

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::logic::Iff;

use super::{InputShapes, KeptTensor, Lowered, delegates};
use crate::Rounding;
use crate::graph::builder::Wire;
use crate::graph::frame::{FrameSlot, MethodFrame, dtype_of};
use crate::graph::guard::{LibraryFailure, guarded};
use crate::graph::operators;
use crate::graph::weights::ProgramWeights;
use crate::tensor::DType;
use pkgtool_model::executorch::body::{BodyValue, Instruction, MethodBody};

/// Maximum depth of nested branches. Each level doubles the work.
const MAX_BRANCHES: usize = 6;

/// A walk over a method's instructions.
struct MethodWalk<'a> {
    frame: MethodFrame<'a>,
}

/// Lowers a method for inputs of these shapes.
pub(crate) fn lower(
    method: &MethodBody,
    shapes: &InputShapes,
    weights: &ProgramWeights,
    rounding: Rounding,
) -> Result<Lowered, LibraryFailure> {
    let mut frame = MethodFrame::new(method, weights);
    frame.rounding = rounding;
    let mut walk = MethodWalk { frame };
    let given = walk.inputs(shapes)?;
    walk.run(0, 0)?;
    walk.finish(given)
}

impl MethodWalk<'_> {
    fn inputs(&mut self, shapes: &InputShapes) -> Result<Vec<usize>, LibraryFailure> {
        let mut given = Vec::new();
        let inputs = self.frame.method.inputs.iter().zip(shapes);
        for (place, (&value, shape)) in inputs.enumerate() {
            let BodyValue::Tensor(tensor) = &self.frame.method.values[value] else {
                continue;
            };
            let dtype = dtype_of(tensor)?;
            let name = format!("input {place}");
            let wire = guarded(|| {
                let shape = shape.iter().map(|size| self.frame.builder.dim(size));
                let shape = shape.collect::<TractResult<Vec<_>>>()?;
                self.frame.builder.source(name, dtype, &shape)
            })?;
            self.frame.write(value, FrameSlot::Tensor(wire));
            given.push(place);
        }
        Ok(given)
    }

    /// Follows the instructions from `at` to the end.
    fn run(&mut self, at: usize, branches: usize) -> Result<(), LibraryFailure> {
        let method = self.frame.method;
        let mut at = at;
        while let Some(instruction) = method.instructions.get(at) {
            let next = self.step(at, instruction, branches)?;
            let Some(next) = next else { return Ok(()) };
            if next <= at {
                return Err(LibraryFailure::new(format!(
                    "instruction {at} jumps backwards: loops are not supported"
                )));
            }
            at = next;
        }
        Ok(())
    }

    /// Lowers one instruction. Returns the next one, unless both branches were already followed to
    /// the end.
    fn step(
        &mut self,
        at: usize,
        instruction: &Instruction,
        branches: usize,
    ) -> Result<Option<usize>, LibraryFailure> {
        match instruction {
            Instruction::Kernel { operator, args } => {
                let name = &self.frame.method.operators[*operator];
                self.frame
                    .builder
                    .set_scope(format!("{name} (instruction {at})"));
                operators::call(&mut self.frame, name, args)
                    .map_err(|failure| failure.at(Some(format!("{name} (instruction {at})"))))?;
            }
            Instruction::Delegate { delegate, args } => {
                self.delegate(at, *delegate, args)?;
            }
            Instruction::Move { from, to } => {
                let slot = guarded(|| self.frame.slot(*from))?;
                self.frame.write(*to, slot);
            }
            Instruction::Free { .. } => {}
            Instruction::JumpFalse {
                condition,
                destination,
            } => return self.branch(at, *condition, *destination, branches),
        }
        Ok(Some(at + 1))
    }

    fn delegate(
        &mut self,
        at: usize,
        delegate: usize,
        args: &[usize],
    ) -> Result<(), LibraryFailure> {
        let found = &self.frame.method.delegates[delegate];
        let scope = format!("{} (instruction {at})", found.id);
        delegates::call(&mut self.frame, (&found.id, &scope), found.payload, args)
    }

    fn branch(
        &mut self,
        at: usize,
        condition: usize,
        destination: usize,
        branches: usize,
    ) -> Result<Option<usize>, LibraryFailure> {
        let condition = match guarded(|| self.frame.slot(condition))? {
            FrameSlot::Bool(true) => return Ok(Some(at + 1)),
            FrameSlot::Bool(false) => return Ok(Some(destination)),
            FrameSlot::Tensor(wire) => wire,
            FrameSlot::Number(number) => guarded(|| self.frame.number_as_tensor(&number))?,
            _ => {
                return Err(LibraryFailure::new(format!(
                    "condition of the jump at instruction {at} is not a boolean"
                )));
            }
        };
        if branches >= MAX_BRANCHES {
            let reason = format!("too many nested branches: at most {MAX_BRANCHES} are supported");
            return Err(LibraryFailure::new(reason));
        }
        let before = self.frame.now.clone();
        self.run(at + 1, branches + 1)?;
        let then = std::mem::replace(&mut self.frame.now, before);
        self.run(destination, branches + 1)?;
        self.frame
            .builder
            .set_scope(format!("branch (instruction {at})"));
        guarded(|| self.join(condition, &then.slots))?;
        Ok(None)
    }

    /// Selects the method's outputs and states from one branch or the other.
    fn join(&mut self, condition: Wire, then: &HashMap<usize, FrameSlot>) -> TractResult<()> {
        let states: HashMap<usize, Wire> = self
            .frame
            .states
            .iter()
            .map(|(value, wire, _)| (*value, *wire))
            .collect();
        let condition = self.frame.builder.cast(condition, DType::Bool)?;
        let rank = self.frame.builder.rank(condition.outlet)?;
        let axes: Vec<usize> = (0..rank).collect();
        let condition = self.frame.builder.remove(condition.outlet, &axes)?;
        let outputs = self.frame.method.outputs.iter().copied();
        let values: BTreeSet<usize> = outputs.chain(states.keys().copied()).collect();
        for value in values {
            // A value that a branch does not write keeps its content from before.
            let before = || states.get(&value).copied().map(FrameSlot::Tensor);
            let yes = then.get(&value).cloned().or_else(before);
            let no = self.frame.now.slots.get(&value).cloned().or_else(before);
            match (yes, no) {
                (Some(FrameSlot::Tensor(yes)), Some(FrameSlot::Tensor(no))) => {
                    if yes != no {
                        let chosen = self.choose(condition, yes, no)?;
                        self.frame
                            .now
                            .slots
                            .insert(value, FrameSlot::Tensor(chosen));
                    }
                }
                (None, None) => {}
                _ => bail!("value {value} is written in one branch only, or is not a tensor"),
            }
        }
        Ok(())
    }

    fn choose(&mut self, condition: OutletId, yes: Wire, no: Wire) -> TractResult<Wire> {
        ensure!(
            yes.dtype == no.dtype,
            "dtypes of the branches' results differ"
        );
        let [condition, a, b] = self
            .frame
            .builder
            .same_rank([condition, yes.outlet, no.outlet])?;
        let outlet = self.frame.builder.wire(Iff, &[condition, a, b])?;
        Ok(Wire::new(outlet, yes.dtype))
    }

    fn finish(mut self, given: Vec<usize>) -> Result<Lowered, LibraryFailure> {
        self.frame.builder.set_scope("outputs".to_owned());
        let mut outlets = Vec::new();
        let mut outputs = Vec::new();
        for value in self.frame.method.outputs.clone() {
            let wire = guarded(|| self.output(value))?;
            outlets.push(wire.outlet);
            outputs.push(wire.dtype);
        }
        let mut states = Vec::new();
        for (value, source, initial) in std::mem::take(&mut self.frame.states) {
            let last = match self.frame.now.slots.get(&value) {
                Some(FrameSlot::Tensor(wire)) => *wire,
                _ => source,
            };
            outlets.push(last.outlet);
            states.push(KeptTensor { value, initial });
        }
        let mut model = self.frame.builder.model;
        guarded(|| model.select_output_outlets(&outlets))?;
        Ok(Lowered {
            model,
            given,
            outputs,
            states,
        })
    }

    fn output(&mut self, value: usize) -> TractResult<Wire> {
        Ok(match self.frame.slot(value)? {
            FrameSlot::Tensor(wire) => wire,
            FrameSlot::Number(number) => self.frame.number_as_tensor(&number)?,
            FrameSlot::Int(value) => {
                Wire::new(self.frame.builder.size(&value, DType::Int64)?, DType::Int64)
            }
            FrameSlot::Double(value) => self.frame.builder.scalar(value, DType::Float64, 0)?,
            FrameSlot::Bool(value) => {
                self.frame
                    .builder
                    .scalar(f64::from(u8::from(value)), DType::Bool, 0)?
            }
            FrameSlot::Null | FrameSlot::Text(_) => {
                bail!("an output is neither a tensor nor a number")
            }
        })
    }
}
