//! Runs a chain of elementwise functions piece by piece, so that intermediate results stay in the
//! nearest cache.

use std::cell::RefCell;
use std::mem;
use std::sync::{Mutex, PoisonError};

use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

/// Number of elements computed at a time.
const PIECE_ELEMENTS: usize = 256;

/// Number of elements that a thread takes at a time.
const PART_ELEMENTS: usize = 16 * PIECE_ELEMENTS;

/// Cost of applying a function to a number, in multiplications of a product.
const FUNCTION_COST: usize = 32;

/// Cost of combining two numbers, in multiplications of a product.
const PAIR_COST: usize = 8;

thread_local! {
    /// Scratch memory for pieces, reused between runs.
    static SCRATCH: RefCell<Vec<StepPiece>> = const { RefCell::new(Vec::new()) };
}

/// The elements of a step in a piece.
type StepPiece = Vec<f32>;

/// A function that is applied in place.
pub type InPlace = fn(&mut [f32]) -> Result<(), String>;

/// An operation on two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinaryOperation {
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// `a * b`.
    Multiply,
    /// `a / b`.
    Divide,
    /// The smaller number, or NaN if one of them is NaN.
    Minimum,
    /// The larger number, or NaN if one of them is NaN.
    Maximum,
}

/// The source of a step's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepOperand {
    /// An input.
    Input(usize),
    /// The result of an earlier step.
    Step(usize),
}

/// A step of the chain.
#[derive(Debug, Clone, Copy)]
pub enum ChainStep {
    /// Combines two numbers.
    Pair(BinaryOperation, [StepOperand; 2]),
    /// Applies a function.
    Function(InPlace, StepOperand),
}

impl ChainStep {
    fn operands(&self) -> &[StepOperand] {
        match self {
            Self::Pair(_, operands) => operands,
            Self::Function(_, operand) => std::slice::from_ref(operand),
        }
    }

    const fn cost(&self) -> usize {
        match self {
            Self::Pair(..) => PAIR_COST,
            Self::Function(..) => FUNCTION_COST,
        }
    }
}

/// Steps that are run together.
#[derive(Debug)]
pub struct StepChain {
    cpu: Cpu,
    inputs: usize,
    outputs: usize,
    placed: Vec<ScheduledStep>,
    /// Number of pieces needed at the same time.
    pieces: usize,
}

/// A step with its assigned scratch piece.
#[derive(Debug)]
struct ScheduledStep {
    step: ChainStep,
    /// The piece that it writes.
    piece: usize,
    /// Index of the output, if the step is one.
    output: Option<usize>,
}

/// A part of each output, with its start position.
struct OutputPart<'a> {
    start: usize,
    outputs: Vec<&'a mut [f32]>,
}

impl StepChain {
    /// Creates steps with this number of inputs. Fails unless each step uses earlier results, and
    /// outputs are steps.
    pub fn new(
        cpu: Cpu,
        inputs: usize,
        steps: &[ChainStep],
        outputs: &[usize],
    ) -> Result<Self, String> {
        if let Some(output) = outputs.iter().find(|output| **output >= steps.len()) {
            return Err(format!(
                "output {output} is out of range: there are {} steps",
                steps.len()
            ));
        }
        // The last step that reads each step's result, or the step itself.
        let mut last: Vec<usize> = (0..steps.len()).collect();
        for (at, step) in steps.iter().enumerate() {
            for operand in step.operands() {
                match *operand {
                    StepOperand::Input(input) if input < inputs => {}
                    StepOperand::Step(before) if before < at => last[before] = at,
                    other => return Err(format!("step {at} uses {other:?}, which does not exist")),
                }
            }
        }
        let (mut free, mut pieces) = (Vec::new(), 0);
        let mut placed: Vec<ScheduledStep> = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter().enumerate() {
            let piece = free.pop().unwrap_or(pieces);
            pieces = pieces.max(piece + 1);
            placed.push(ScheduledStep {
                step: *step,
                piece,
                output: outputs.iter().position(|output| *output == at),
            });
            let read = placed.iter().zip(&last).filter(|(_, last)| **last == at);
            free.extend(read.map(|(placed, _)| placed.piece));
        }
        Ok(Self {
            cpu,
            inputs,
            outputs: outputs.len(),
            placed,
            pieces,
        })
    }

    /// Runs the steps for each of `length` positions. An input has `length` numbers, or a divisor of it, which are
    /// repeated; an output has `length`.
    pub fn run(
        &self,
        length: usize,
        inputs: &[&[f32]],
        outputs: &mut [&mut [f32]],
        split: Split,
    ) -> Result<(), String> {
        check_length("the inputs", inputs.len(), &[self.inputs])?;
        check_length("the outputs", outputs.len(), &[self.outputs])?;
        for input in inputs {
            if input.is_empty() || !length.is_multiple_of(input.len()) {
                check_length("an input", input.len(), &[length])?;
            }
        }
        let count = length.div_ceil(PART_ELEMENTS);
        let parts = (0..count).map(|part| OutputPart {
            start: part * PART_ELEMENTS,
            outputs: Vec::with_capacity(outputs.len()),
        });
        let mut parts: Vec<OutputPart<'_>> = parts.collect();
        for output in outputs {
            check_length("an output", output.len(), &[length])?;
            for (part, output) in parts.iter_mut().zip(output.chunks_mut(PART_ELEMENTS)) {
                part.outputs.push(output);
            }
        }
        let cost: usize = self.placed.iter().map(|placed| placed.step.cost()).sum();
        let failure = Mutex::new(Ok(()));
        split.rows(
            &mut parts,
            1,
            PART_ELEMENTS.min(length) * cost,
            |_, parts| {
                for part in parts {
                    let outcome = self.part(length, inputs, part);
                    if outcome.is_err() {
                        *failure.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
                    }
                }
            },
        );
        failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn part(
        &self,
        length: usize,
        inputs: &[&[f32]],
        part: &mut OutputPart<'_>,
    ) -> Result<(), String> {
        let mut room = SCRATCH.take();
        let pieces = self.pieces + inputs.len();
        if room.len() < pieces {
            room.resize_with(pieces, || vec![0.0; PIECE_ELEMENTS]);
        }
        for (piece, input) in room[self.pieces..].iter_mut().zip(inputs) {
            if let [one] = input {
                piece.fill(*one);
            }
        }
        let end = length.min(part.start + PART_ELEMENTS);
        for start in (part.start..end).step_by(PIECE_ELEMENTS) {
            let count = PIECE_ELEMENTS.min(end - start);
            for (piece, input) in room[self.pieces..].iter_mut().zip(inputs) {
                if (2..length).contains(&input.len()) {
                    repeat(input, start, &mut piece[..count]);
                }
            }
            for ScheduledStep {
                step,
                piece,
                output,
            } in &self.placed
            {
                let mut to = mem::take(&mut room[*piece]);
                let from = |operand: &StepOperand| match *operand {
                    StepOperand::Step(step) => &room[self.placed[step].piece][..count],
                    StepOperand::Input(input) if inputs[input].len() < length => {
                        &room[self.pieces + input][..count]
                    }
                    StepOperand::Input(input) => &inputs[input][start..start + count],
                };
                match step {
                    ChainStep::Pair(operation, [a, b]) => {
                        pair(self.cpu, *operation, from(a), from(b), &mut to[..count]);
                    }
                    ChainStep::Function(function, operand) => {
                        to[..count].copy_from_slice(from(operand));
                        function(&mut to[..count])?;
                    }
                }
                if let Some(output) = output {
                    let output = &mut part.outputs[*output][start - part.start..];
                    output[..count].copy_from_slice(&to[..count]);
                }
                room[*piece] = to;
            }
        }
        SCRATCH.set(room);
        Ok(())
    }
}

compiled! {
    fn pair(operation: BinaryOperation, a: &[f32], b: &[f32], to: &mut [f32]) {
        let all = to.iter_mut().zip(a.iter().zip(b));
        match operation {
            BinaryOperation::Add => all.for_each(|(to, (a, b))| *to = a + b),
            BinaryOperation::Subtract => all.for_each(|(to, (a, b))| *to = a - b),
            BinaryOperation::Multiply => all.for_each(|(to, (a, b))| *to = a * b),
            BinaryOperation::Divide => all.for_each(|(to, (a, b))| *to = a / b),
            // A comparison with NaN is false.
            BinaryOperation::Minimum => {
                all.for_each(|(to, (a, b))| *to = if *b < *a || b.is_nan() { *b } else { *a });
            }
            BinaryOperation::Maximum => {
                all.for_each(|(to, (a, b))| *to = if *b > *a || b.is_nan() { *b } else { *a });
            }
        }
    }
}

/// Writes the elements from `start` of endlessly repeated ones.
fn repeat(from: &[f32], start: usize, to: &mut [f32]) {
    let mut at = start % from.len();
    let mut to = to;
    while !to.is_empty() {
        let count = to.len().min(from.len() - at);
        let (head, rest) = to.split_at_mut(count);
        head.copy_from_slice(&from[at..at + count]);
        (to, at) = (rest, 0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{BinaryOperation, ChainStep, PART_ELEMENTS, StepChain, StepOperand};
    use crate::{Cpu, Split};

    const OPERATIONS: [BinaryOperation; 6] = [
        BinaryOperation::Add,
        BinaryOperation::Subtract,
        BinaryOperation::Multiply,
        BinaryOperation::Divide,
        BinaryOperation::Minimum,
        BinaryOperation::Maximum,
    ];

    /// Computes one position after the other.
    fn plainly(steps: &[ChainStep], inputs: &[Vec<f32>], place: usize) -> Vec<f32> {
        let mut given: Vec<f32> = Vec::new();
        for step in steps {
            let of = |operand: &StepOperand| match *operand {
                StepOperand::Step(step) => given[step],
                StepOperand::Input(input) => inputs[input][place % inputs[input].len()],
            };
            let number = match step {
                ChainStep::Function(function, operand) => {
                    let mut one = [of(operand)];
                    function(&mut one).expect("it does not fail");
                    one[0]
                }
                ChainStep::Pair(BinaryOperation::Add, [a, b]) => of(a) + of(b),
                ChainStep::Pair(BinaryOperation::Subtract, [a, b]) => of(a) - of(b),
                ChainStep::Pair(BinaryOperation::Multiply, [a, b]) => of(a) * of(b),
                ChainStep::Pair(BinaryOperation::Divide, [a, b]) => of(a) / of(b),
                ChainStep::Pair(extreme, [a, b]) => {
                    let (a, b) = (of(a), of(b));
                    let is_second = if *extreme == BinaryOperation::Maximum {
                        b > a
                    } else {
                        b < a
                    };
                    match (a.is_nan() || b.is_nan(), is_second) {
                        (true, _) => f32::NAN,
                        (_, true) => b,
                        _ => a,
                    }
                }
            };
            given.push(number);
        }
        given
    }

    #[expect(
        clippy::unnecessary_wraps,
        reason = "the signature of the engine's functions"
    )]
    fn negated(values: &mut [f32]) -> Result<(), String> {
        for value in values {
            *value = -*value;
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn steps_are_what_they_are_one_by_one(
            length in prop_oneof![0..600_usize, (PART_ELEMENTS - 3)..(3 * PART_ELEMENTS)],
            repeats in prop::collection::vec(0..3_u8, 1..4),
            drawn in prop::collection::vec((0..7_usize, any::<u16>(), any::<u16>()), 1..20),
            threads in 1..3_usize,
        ) {
            let inputs = repeats.len();
            let operand = |drawn: u16, at: usize| match usize::from(drawn) % (inputs + at) {
                input if input < inputs => StepOperand::Input(input),
                step => StepOperand::Step(step - inputs),
            };
            let steps = drawn.iter().enumerate().map(|(at, (kind, a, b))| {
                let [a, b] = [*a, *b].map(|drawn| operand(drawn, at));
                OPERATIONS.get(*kind).map_or(ChainStep::Function(negated, a), |of| ChainStep::Pair(*of, [a, b]))
            });
            let steps: Vec<ChainStep> = steps.collect();
            let outputs: Vec<usize> = (0..steps.len()).rev().step_by(3).collect();
            let number = |at: usize| match u8::try_from(at * 7 % 251) {
                Ok(0) | Err(_) => f32::NAN,
                Ok(number) => f32::from(number) + 0.5,
            };
            let period = (2..9).find(|period| length.is_multiple_of(*period)).unwrap_or(1);
            let given = repeats.iter().enumerate().map(|(input, repeat)| {
                let own = [length, 1, period][usize::from(*repeat)];
                (0..own).map(|at| number(at + input)).collect()
            });
            let given: Vec<Vec<f32>> = given.collect();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            for cpu in Cpu::all() {
                let steps_of = StepChain::new(cpu, inputs, &steps, &outputs).expect("steps");
                let mut results = vec![vec![f32::NAN; length]; outputs.len()];
                // Leftovers of one run must not affect the next.
                for _ in 0..2 {
                    let from: Vec<&[f32]> = given.iter().map(Vec::as_slice).collect();
                    let mut to: Vec<&mut [f32]> = results.iter_mut().map(Vec::as_mut_slice).collect();
                    let done = pool.install(|| steps_of.run(length, &from, &mut to, Split::current()));
                    prop_assert_eq!(done, Ok(()));
                }
                for place in 0..length {
                    let wanted = plainly(&steps, &given, place);
                    for (result, output) in results.iter().zip(&outputs) {
                        let (result, wanted) = (result[place], wanted[*output]);
                        prop_assert!(
                            result.to_bits() == wanted.to_bits() || result.is_nan() && wanted.is_nan(),
                            "{result} {wanted}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_not_there_is_refused() {
        let cpu = Cpu::chosen();
        let sum = |a, b| ChainStep::Pair(BinaryOperation::Add, [a, b]);
        let (input, step) = (StepOperand::Input(0), StepOperand::Step(0));
        assert!(StepChain::new(cpu, 0, &[sum(input, input)], &[0]).is_err());
        assert!(StepChain::new(cpu, 1, &[sum(input, step)], &[0]).is_err());
        assert!(StepChain::new(cpu, 1, &[sum(input, input)], &[1]).is_err());
        let steps =
            StepChain::new(cpu, 1, &[sum(input, input), sum(input, step)], &[1]).expect("steps");
        let run =
            |input: &[f32], output: &mut [f32]| steps.run(3, &[input], &mut [output], Split::ONE);
        assert_eq!(run(&[1.0; 3], &mut [0.0; 3]), Ok(()));
        assert!(run(&[1.0; 2], &mut [0.0; 3]).is_err());
        assert!(run(&[1.0; 3], &mut [0.0; 2]).is_err());
        assert!(steps.run(3, &[], &mut [], Split::ONE).is_err());
    }

    #[test]
    fn a_failure_is_told() {
        let fail = |_: &mut [f32]| Err("as it should".to_owned());
        let steps = [ChainStep::Function(fail, StepOperand::Input(0))];
        let steps = StepChain::new(Cpu::chosen(), 1, &steps, &[0]).expect("steps");
        let told = steps.run(2, &[&[1.0]], &mut [&mut [0.0; 2]], Split::ONE);
        assert_eq!(told, Err("as it should".to_owned()));
    }
}
