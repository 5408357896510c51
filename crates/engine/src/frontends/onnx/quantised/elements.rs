//! Elementwise operators on bytes and on pairs of bytes.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::array::MultiBroadcastTo;
use tract_onnx::tract_core::ops::change_axes::wire_rank_broadcast;
use tract_onnx::tract_hir::internal::*;

use super::node;
use crate::frontends::onnx::graph::integer;
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, broadcast_shape, operator, same_shape,
};
use crate::graph::kernel::Kernel;
use crate::graph::pool::{computed_bytes, computed_to_bytes};
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::elementwise::{IntegerRange, PairGrids, clamp};
use pkgtool_kernels::bytes::real::RealOperation;
use pkgtool_kernels::{Cpu, Split};

/// Builds an operator that quantises numbers.
pub(super) fn build_rounded(_: &ParsingContext, node: &NodeProto) -> Built {
    let (to, cpu) = (node::grid(node, "y")?, Cpu::chosen());
    let range = IntegerRange::whole(to.sign);
    let dtype = node::datum_type(to.sign);
    let dtypes = [f32::datum_type(), dtype].map(Some);
    same_shape(node::ROUNDED, 1, dtypes, move |prefix, model, inputs| {
        let kernel = Kernel::of_elements("ToGrid", dtype, move |inputs| {
            let work = |from: &[&[f32]], output: &mut [u8], split| {
                to.round(cpu, range, from[0], output, split)
            };
            let shape = inputs[0].shape();
            Ok(tvec!(computed_to_bytes(dtype, shape, inputs, work)?))
        });
        model.wire_node(prefix, kernel, inputs)
    })
}

/// Builds an operator that converts bytes to another grid, or clamps them to a range.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let (from, to) = (node::grid(node, "x")?, node::grid(node, "y")?);
    let (range, cpu) = (node::range(node)?, Cpu::chosen());
    let signs = [from.sign, to.sign];
    byte_function(node::ELEMENTS, signs, move || {
        if from == to {
            of_elements("ClampBytes", to.sign, move |bytes, output, split| {
                clamp(cpu, (to.sign, range), bytes[0], output, split)
            })
        } else {
            of_elements("Regrid", to.sign, move |bytes, output, split| {
                from.round_again(cpu, (to, range), bytes[0], output, split)
            })
        }
    })
}

/// Builds a function of single bytes, whose results have the second signedness.
pub(super) fn byte_function(
    name: &'static str,
    signs: [Sign; 2],
    kernel: impl Fn() -> Kernel + Clone + Send + Sync + 'static,
) -> Built {
    let dtypes = signs.map(|sign| Some(node::datum_type(sign)));
    same_shape(name, 1, dtypes, move |prefix, model, inputs| {
        model.wire_node(prefix, kernel(), inputs)
    })
}

/// Builds a sum, a difference or a product.
pub(super) fn build_pair(_: &ParsingContext, node: &NodeProto) -> Built {
    let is = |name| integer(node, name, 0) != 0;
    let operation = match () {
        () if is("add") => RealOperation::Add,
        () if is("subtract") => RealOperation::Subtract,
        () if is("multiply") => RealOperation::Multiply,
        () => bail!("the operation on two tensors is missing"),
    };
    let pair = PairGrids {
        inputs: [node::grid(node, "a")?, node::grid(node, "b")?],
        output: node::grid(node, "y")?,
        range: node::range(node)?,
    };
    operator(node::PAIR, 2, Paired { pair, operation })
}

/// Creates an elementwise operator whose results are bytes of this signedness.
pub(super) fn of_elements(
    name: &'static str,
    sign: Sign,
    work: impl Fn(&[&[u8]], &mut [u8], Split) -> Result<(), String> + Send + Sync + 'static,
) -> Kernel {
    let dtype = node::datum_type(sign);
    Kernel::of_elements(name, dtype, move |inputs| {
        Ok(tvec!(computed_bytes(
            dtype,
            inputs[0].shape(),
            inputs,
            &work
        )?))
    })
}

#[derive(Debug, Clone)]
struct Paired {
    pair: PairGrids,
    operation: RealOperation,
}

impl NodeOperator for Paired {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        let grids = self.pair.inputs.iter().chain([&self.pair.output]);
        for (grid, tensor) in grids.zip(inputs.iter().chain(outputs)) {
            s.equals(&tensor.datum_type, node::datum_type(grid.sign))?;
        }
        broadcast_shape(s, [inputs, outputs])
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let mut inputs = wire_rank_broadcast(prefix, model, inputs)?;
        let shapes = [0, 1].map(|at| model.outlet_fact(inputs[at]).map(|it| it.shape.to_tvec()));
        let [a, b] = shapes;
        let shape = tract_onnx::tract_core::broadcast::multi_broadcast(&[a?, b?])?;
        for (at, input) in inputs.iter_mut().enumerate() {
            let own = model.outlet_fact(*input)?.shape.to_tvec();
            if own != shape {
                let repeated = MultiBroadcastTo::new(shape.clone().into());
                let name = format!("{prefix}.repeated.{at}");
                *input = model.wire_node(name, repeated, &[*input])?[0];
            }
        }
        let Self { pair, operation } = *self;
        let cpu = Cpu::chosen();
        let kernel = of_elements(
            "PairBytes",
            pair.output.sign,
            move |bytes, output, split| {
                pair.compute(cpu, operation, [bytes[0], bytes[1]], output, split)
            },
        );
        model.wire_node(prefix, kernel, &inputs)
    }
}
