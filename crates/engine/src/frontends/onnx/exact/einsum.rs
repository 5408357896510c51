//! `Einsum`. The library sums only over axes that two operands share, and reads equations of one
//! operand as if nothing were summed.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::axes::AxesMapping;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::einsum::EinSum;
use tract_onnx::tract_core::ops::math::mul;
use tract_onnx::tract_core::ops::nn::{Reduce, Reducer};
use tract_onnx::tract_hir::internal::*;

use crate::frontends::onnx::node_operator::{Built, NodeOperator, Tensors, Wired, operator};
use crate::graph::corrections::product::Sums;

/// Builds `Einsum`.
pub(crate) fn einsum(_: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let equation: String = node.get_attr("equation")?;
    let einsum = Einsum::parse(&equation)?;
    operator("Einsum", einsum.terms.len(), einsum)
}

/// The character that stands for an ellipsis in an equation.
const ELLIPSIS: char = '.';

#[derive(Debug, Clone)]
struct Einsum {
    terms: Vec<Vec<char>>,
    output: Vec<char>,
}

impl Einsum {
    fn parse(equation: &str) -> TractResult<Self> {
        let equation: String = equation.split_whitespace().collect();
        let equation = equation.replace("...", ".");
        let (left, right) = match equation.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (equation.as_str(), None),
        };
        let terms: Vec<Vec<char>> = left.split(',').map(|term| term.chars().collect()).collect();
        let output = match right {
            Some(right) => right.chars().collect(),
            None => implicit(&terms),
        };
        ensure!(
            terms
                .iter()
                .chain([&output])
                .flatten()
                .all(|label| label.is_ascii_alphabetic() || *label == ELLIPSIS),
            "invalid equation `{equation}`: labels must be letters"
        );
        let known: Vec<char> = terms.iter().flatten().copied().collect();
        ensure!(
            output.iter().all(|label| known.contains(label)),
            "invalid equation `{equation}`: the output has a label that all operands lack"
        );
        Ok(Self { terms, output })
    }

    /// Returns the equation for operands of these ranks, with a label for each axis.
    fn resolved(&self, ranks: &[usize]) -> TractResult<Sums> {
        ensure!(
            ranks.len() == self.terms.len(),
            "the equation needs {} operands, got {}",
            self.terms.len(),
            ranks.len()
        );
        let mut widths = Vec::new();
        for (term, rank) in self.terms.iter().zip(ranks) {
            let letters = term.iter().filter(|label| **label != ELLIPSIS).count();
            let has_ellipsis = term.contains(&ELLIPSIS);
            let width = rank.checked_sub(letters);
            let width = width.filter(|width| has_ellipsis || *width == 0);
            widths.push(width.with_context(|| {
                format!("the term {term:?} of the equation does not fit an operand of rank {rank}")
            })?);
        }
        let widest = widths.iter().copied().max().unwrap_or(0);
        let terms = self.terms.iter().zip(widths);
        Ok(Sums {
            terms: terms
                .map(|(term, width)| spelled(term, widest, width))
                .collect(),
            output: spelled(&self.output, widest, widest),
        })
    }
}

/// Returns the output labels of an equation without an output: those that occur once, sorted.
fn implicit(terms: &[Vec<char>]) -> Vec<char> {
    let all: Vec<char> = terms.iter().flatten().copied().collect();
    let mut once: Vec<char> = all
        .iter()
        .filter(|label| **label != ELLIPSIS)
        .filter(|label| all.iter().filter(|other| other == label).count() == 1)
        .copied()
        .collect();
    once.sort_unstable();
    if all.contains(&ELLIPSIS) {
        once.insert(0, ELLIPSIS);
    }
    once
}

/// Expands the ellipsis of a term to `width` axes, the last ones of the `widest`.
fn spelled(term: &[char], widest: usize, width: usize) -> Vec<char> {
    let axes = ('\u{3b1}'..).take(widest).skip(widest - width);
    let mut labels = Vec::new();
    for label in term {
        if *label == ELLIPSIS {
            labels.extend(axes.clone());
        } else {
            labels.push(*label);
        }
    }
    labels
}

impl NodeOperator for Einsum {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        for input in inputs {
            s.equals(&input.datum_type, &outputs[0].datum_type)?;
        }
        let shapes: Vec<_> = inputs.iter().map(|input| &input.shape).collect();
        s.given_all(shapes, move |s, shapes: Vec<TVec<TDim>>| {
            let ranks: Vec<usize> = shapes.iter().map(TVec::len).collect();
            let sums = self.resolved(&ranks)?;
            s.equals(&outputs[0].shape, result(&sums, &shapes)?)
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let shapes = inputs
            .iter()
            .map(|input| Ok(model.outlet_fact(*input)?.shape.to_tvec()));
        let shapes = shapes.collect::<TractResult<Vec<_>>>()?;
        let ranks: Vec<usize> = shapes.iter().map(TVec::len).collect();
        let sums = self.resolved(&ranks)?;
        let dtype = model.outlet_fact(inputs[0])?.datum_type;
        let has_kernels = dtype.is_float() || dtype == DatumType::I32;
        if !has_kernels || !is_plain(&sums, &shapes) {
            let fact = dtype.fact(result(&sums, &shapes)?);
            return model.wire_node(prefix, sums.kernel(fact), inputs);
        }
        let mut wiring = EinsumWiring {
            prefix,
            model,
            dtype,
            steps: 0,
        };
        let mut parts: Vec<LabelledTensor> = inputs
            .iter()
            .zip(sums.terms)
            .map(|(wire, labels)| LabelledTensor {
                wire: *wire,
                labels,
            })
            .collect();
        let mut first = parts.remove(0);
        while !parts.is_empty() {
            let second = parts.remove(0);
            let wanted = |label: &char| {
                sums.output.contains(label) || parts.iter().any(|part| part.labels.contains(label))
            };
            first = wiring.pair(first, second, &wanted)?;
        }
        let last = wiring.alone(first, &sums.output)?;
        model.rename_node(last.node, prefix)?;
        Ok(tvec!(last))
    }
}

/// Returns `true` if no label occurs twice in a term, and all axes of a label have the same size.
fn is_plain(sums: &Sums, shapes: &[TVec<TDim>]) -> bool {
    let mut sizes: Vec<(char, &TDim)> = Vec::new();
    for (term, shape) in sums.terms.iter().zip(shapes) {
        for (axis, (label, size)) in term.iter().zip(shape).enumerate() {
            let known = sizes.iter().find(|(other, _)| other == label);
            if term[..axis].contains(label) || known.is_some_and(|(_, known)| *known != size) {
                return false;
            }
            sizes.push((*label, size));
        }
    }
    true
}

fn result(sums: &Sums, shapes: &[TVec<TDim>]) -> TractResult<TVec<TDim>> {
    let size = |label: &char| {
        let mut size = 1.to_dim();
        for (term, shape) in sums.terms.iter().zip(shapes) {
            for (_, other) in term.iter().zip(shape).filter(|(known, _)| *known == label) {
                size = TDim::broadcast(size, other.clone())?;
            }
        }
        Ok(size)
    };
    sums.output.iter().map(size).collect()
}

struct LabelledTensor {
    wire: OutletId,
    labels: Vec<char>,
}

struct EinsumWiring<'a> {
    prefix: &'a str,
    model: &'a mut TypedModel,
    dtype: DatumType,
    steps: usize,
}

impl EinsumWiring<'_> {
    fn step(
        &mut self,
        op: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<OutletId> {
        self.steps += 1;
        let name = format!("{}.step-{}", self.prefix, self.steps);
        Ok(self.model.wire_node(name, op, inputs)?[0])
    }

    /// Sums over the axes with unwanted labels.
    fn reduced(
        &mut self,
        mut part: LabelledTensor,
        wanted: &dyn Fn(&char) -> bool,
    ) -> TractResult<LabelledTensor> {
        let axes: TVec<usize> = (0..part.labels.len())
            .filter(|axis| !wanted(&part.labels[*axis]))
            .collect();
        if axes.is_empty() {
            return Ok(part);
        }
        part.wire = self.step(Reduce::new(axes.clone(), Reducer::Sum), &[part.wire])?;
        for axis in axes.iter().rev() {
            part.wire = self.step(AxisOp::Rm(*axis), &[part.wire])?;
            part.labels.remove(*axis);
        }
        Ok(part)
    }

    /// Returns the product of two operands, summed over unwanted labels.
    fn pair(
        &mut self,
        left: LabelledTensor,
        right: LabelledTensor,
        wanted: &dyn Fn(&char) -> bool,
    ) -> TractResult<LabelledTensor> {
        let (ours, theirs) = (left.labels.clone(), right.labels.clone());
        let left = self.reduced(left, &|label| wanted(label) || theirs.contains(label))?;
        let right = self.reduced(right, &|label| wanted(label) || ours.contains(label))?;
        let mut labels: Vec<char> = left
            .labels
            .iter()
            .copied()
            .filter(|label| wanted(label))
            .collect();
        let more = right.labels.iter().copied();
        labels.extend(more.filter(|label| wanted(label) && !left.labels.contains(label)));
        if labels.is_empty() {
            // Both operands have the same axes, so an elementwise product remains.
            let wire = self.alone(right, &left.labels)?;
            let wire = self.step(mul(), &[left.wire, wire])?;
            let part = LabelledTensor {
                wire,
                labels: left.labels,
            };
            return self.reduced(part, &|_| false);
        }
        let text = |labels: &[char]| labels.iter().collect::<String>();
        let axes =
            AxesMapping::from_strs(&[text(&left.labels), text(&right.labels)], &[text(&labels)])?;
        let product = EinSum {
            axes,
            operating_dt: self.dtype,
            q_params: None,
        };
        let wire = self.step(product, &[left.wire, right.wire])?;
        Ok(LabelledTensor { wire, labels })
    }

    /// Returns one operand with these labels in this order.
    fn alone(&mut self, part: LabelledTensor, output: &[char]) -> TractResult<OutletId> {
        let mut part = self.reduced(part, &|label| output.contains(label))?;
        for (to, label) in output.iter().enumerate() {
            let from = part.labels.iter().position(|known| known == label);
            let from = from.context("the operand of an output is missing")?;
            if from != to {
                part.wire = self.step(AxisOp::Move(from, to), &[part.wire])?;
                let moved = part.labels.remove(from);
                part.labels.insert(to, moved);
            }
        }
        if self.steps == 0 {
            part.wire = self.step(
                tract_onnx::tract_core::ops::identity::Identity,
                &[part.wire],
            )?;
        }
        Ok(part.wire)
    }
}
