//! What ExecuTorch's own runtime is known to compute wrongly, where a method shows that it does.
//!
//! The one list of it. Engines that compute it rightly answer otherwise than a device does: whoever
//! compares the two should know. Nothing is read of a delegate that is not XNNPACK's.

use super::super::xnnpack::{Datatype, Graph, NodeKind};
use super::{BodyValue, Instruction, MethodBody, TensorBody};
use crate::model::ElementType;
use crate::package::{Backend, DType};
use crate::source::ReadAt;

/// The backend whose graphs are looked into.
const XNNPACK: &str = Backend::Xnnpack.delegate_id();

/// Something that the runtime computes wrongly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownWrong {
    /// The operator's full name, or that of a delegate's node.
    pub operator: &'static str,
    /// What is wrong. The text goes on after the name.
    pub what: &'static str,
    /// Whether most inputs give the right answer all the same.
    pub rare: bool,
}

/// Whether a call is one of those, by its output.
type Shows = fn(&TensorBody) -> bool;

/// Operators that are wrong for some of their calls.
const OPERATORS: [(KnownWrong, Shows); 2] = [
    (
        KnownWrong {
            operator: "aten::nonzero.out",
            what: "writes indices row by row into a result that is planned column by column, so \
                   they are those of no element",
            rare: false,
        },
        |output| !output.dim_order.is_sorted(),
    ),
    (
        KnownWrong {
            operator: "aten::sum.IntList_out",
            what: "adds 64-bit integers up in float64, which rounds sums above 2⁵³",
            rare: true,
        },
        |output| output.element == ElementType::Known(DType::Int64),
    ),
];

/// Convolutions of what is quantised when the program runs.
const CONVOLUTION: KnownWrong = KnownWrong {
    operator: "XNNConv2d",
    what: "finds a scale for each pixel of an input that is quantised when it runs, and uses one of \
           them for all",
    rare: false,
};

/// What the runtime computes wrongly in a method of the program in `source`, each once.
pub fn known_wrong(source: &dyn ReadAt, method: &MethodBody) -> Vec<KnownWrong> {
    let mut found: Vec<KnownWrong> = method
        .instructions
        .iter()
        .filter_map(|instruction| of_call(method, instruction))
        .collect();
    let delegates = method.delegates.iter();
    let mut payloads = delegates
        .filter(|delegate| delegate.id == XNNPACK)
        .filter_map(|delegate| delegate.payload);
    let convolves = |graph: &Graph| {
        graph.nodes.iter().any(|node| match &node.kind {
            NodeKind::Conv(conv) => {
                let input = graph.values.get(&conv.input);
                input.is_some_and(|input| input.datatype == Datatype::Qdint8)
            }
            _ => false,
        })
    };
    if payloads.any(|payload| Graph::read(source, payload).is_ok_and(|graph| convolves(&graph))) {
        found.push(CONVOLUTION);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn of_call(method: &MethodBody, instruction: &Instruction) -> Option<KnownWrong> {
    let Instruction::Kernel { operator, args } = instruction else {
        return None;
    };
    let name = &method.operators[*operator];
    let output = args.last().map(|output| &method.values[*output]);
    let output = output.and_then(BodyValue::tensor)?;
    let mut known = OPERATORS.iter().filter(|(known, _)| known.operator == name);
    known.find_map(|(known, is_wrong)| is_wrong(output).then_some(*known))
}
