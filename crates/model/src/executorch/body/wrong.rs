//! Known wrong results of ExecuTorch's own runtime, detected from the operators of a method.
//!
//! This is the only list of them. An engine that computes correctly differs from a device in these
//! cases, so comparisons between the two report them. Of delegates, only XNNPACK payloads are
//! searched.

use super::super::xnnpack::{Datatype, NodeKind, XnnpackGraph};
use super::{BodyValue, Instruction, MethodBody, TensorBody};
use crate::ElementType;
use pkgtool_base::package::{Backend, DType};
use pkgtool_base::source::ReadAt;

/// The backend whose payloads are searched.
const XNNPACK: &str = Backend::Xnnpack.delegate_id();

/// An operator that the runtime computes incorrectly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownDefect {
    /// The operator's full name, or the name of a delegate's node kind.
    pub operator: &'static str,
    /// Description of the error. The text follows the operator's name.
    pub what: &'static str,
    /// True if most inputs still give the right result.
    pub is_rare: bool,
}

/// Returns whether a call is affected, given its output.
type AffectsCall = fn(&TensorBody) -> bool;

/// Operators with wrong results for some of their calls.
const OPERATORS: [(KnownDefect, AffectsCall); 2] = [
    (
        KnownDefect {
            operator: "aten::nonzero.out",
            what: "writes indices row by row into a result that is planned column by column, so \
                   the indices are wrong",
            is_rare: false,
        },
        |output| !output.dim_order.is_sorted(),
    ),
    (
        KnownDefect {
            operator: "aten::sum.IntList_out",
            what: "adds 64-bit integers up in float64, which rounds sums above 2⁵³",
            is_rare: true,
        },
        |output| output.element == ElementType::Known(DType::Int64),
    ),
];

/// Convolutions with dynamically quantised inputs.
const DYNAMIC_CONVOLUTION: KnownDefect = KnownDefect {
    operator: "XNNConv2d",
    what: "computes a scale for each pixel of a dynamically quantised input, but uses one of them for \
           all",
    is_rare: false,
};

/// Returns the known wrong operators in a method of the program in `source`, without duplicates.
pub fn known_defects(source: &dyn ReadAt, method: &MethodBody) -> Vec<KnownDefect> {
    let mut found: Vec<KnownDefect> = method
        .instructions
        .iter()
        .filter_map(|instruction| defect_of_call(method, instruction))
        .collect();
    let delegates = method.delegates.iter();
    let mut payloads = delegates
        .filter(|delegate| delegate.id == XNNPACK)
        .filter_map(|delegate| delegate.payload);
    let convolves = |graph: &XnnpackGraph| {
        graph.nodes.iter().any(|node| match &node.kind {
            NodeKind::Conv(conv) => {
                let input = graph.values.get(&conv.input);
                input.is_some_and(|input| input.datatype == Datatype::Qdint8)
            }
            _ => false,
        })
    };
    if payloads
        .any(|payload| XnnpackGraph::read(source, payload).is_ok_and(|graph| convolves(&graph)))
    {
        found.push(DYNAMIC_CONVOLUTION);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn defect_of_call(method: &MethodBody, instruction: &Instruction) -> Option<KnownDefect> {
    let Instruction::Kernel { operator, args } = instruction else {
        return None;
    };
    let name = &method.operators[*operator];
    let output = args.last().map(|output| &method.values[*output]);
    let output = output.and_then(BodyValue::tensor)?;
    let mut known = OPERATORS.iter().filter(|(known, _)| known.operator == name);
    known.find_map(|(known, is_wrong)| is_wrong(output).then_some(*known))
}
