//! Measures the memory that a plan keeps: its constants, and packed copies of them that operators
//! own.
//!
//! The library packs weights in the order in which a kernel reads them; a packed copy belongs to
//! one plan. Plans made from one graph share everything else.
//!
//! Invariant: every block of memory is identified by its address, so blocks that several plans
//! share count once. Graphs within a node that are planned at run time are excluded, because they
//! have their own limit (`operators/body.rs`).

use std::collections::HashMap;
use std::sync::Arc;

use tract_linalg::mmm::{EagerPackedInput, MMMInputValue, PackedMatrixStorage, PanelExtractInput};
use tract_onnx::prelude::{Tensor, TypedModel};
use tract_onnx::tract_core::internal::DimLike;
use tract_onnx::tract_core::ops::gru_seq::GruSeq;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_core::ops::logic::IfThenElse;
use tract_onnx::tract_core::ops::matmul::optimized::{MatMulOperand, OptMatMul, ProtoFusedSpec};
use tract_onnx::tract_core::ops::scan::{OptScan, Scan};

use super::kernel::Kernel;
use super::recurrent::RecurrentRun;

/// Estimated size of a node besides constants, in bytes: its operator, its name, the facts of its
/// outputs.
const NODE_BYTES: u64 = 4 << 10;
/// Estimated size of a plan besides nodes, in bytes. It limits the number of plans of a model
/// without weights.
const PLAN_BYTES: u64 = 512 << 10;

/// The memory that a plan keeps.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryUse {
    /// Sizes of blocks that other plans may share, by their addresses.
    pieces: HashMap<usize, u64>,
    /// Bytes that only this plan keeps.
    own: u64,
}

impl MemoryUse {
    /// Measures the plan of this graph.
    pub(crate) fn of(model: &TypedModel) -> Self {
        let mut held = Self {
            own: PLAN_BYTES,
            ..Self::default()
        };
        held.graph(model);
        held
    }

    /// Adds a tensor that is kept next to the graph.
    pub(crate) fn tensor(&mut self, tensor: &Arc<Tensor>) {
        if let Some(packed) = tensor.storage_as::<PackedMatrixStorage>() {
            packed
                .values()
                .iter()
                .for_each(|value| self.packed(&**value));
        } else if let Some(plain) = tensor.as_plain_ram() {
            self.add_block(Arc::as_ptr(tensor).addr(), plain.as_bytes().len());
        } else {
            let fact = tensor.exotic_fact().ok().flatten();
            let size = fact.and_then(|fact| fact.mem_size().to_usize().ok());
            self.add_block(Arc::as_ptr(tensor).addr(), size.unwrap_or(0));
        }
    }

    /// Returns the number of bytes that all of these keep together.
    pub(crate) fn total_bytes<'a>(all: impl IntoIterator<Item = &'a Self>) -> u64 {
        let mut pieces: HashMap<usize, u64> = HashMap::new();
        let mut own = 0u64;
        for held in all {
            pieces.extend(held.pieces.iter());
            own = own.saturating_add(held.own);
        }
        pieces.into_values().fold(own, u64::saturating_add)
    }

    fn add_block(&mut self, address: usize, size: usize) {
        self.pieces.insert(address, size as u64);
    }

    fn packed(&mut self, value: &dyn MMMInputValue) {
        let eager = value.downcast_ref::<EagerPackedInput>();
        let extracted = value.downcast_ref::<PanelExtractInput>();
        if let Some(eager) = eager.or(extracted.map(|extracted| &extracted.data)) {
            self.add_block(Arc::as_ptr(&eager.packed).addr(), eager.packed.len());
        } else if let Ok(size) = value.exotic_fact().mem_size().to_usize() {
            self.own = self.own.saturating_add(size as u64);
        }
    }

    fn graph(&mut self, model: &TypedModel) {
        for node in model.nodes() {
            self.own = self.own.saturating_add(NODE_BYTES);
            for outlet in &node.outputs {
                let known = [&outlet.fact.konst, &outlet.fact.uniform];
                known.into_iter().flatten().for_each(|it| self.tensor(it));
            }
            let operator = &node.op;
            if let Some(constant) = operator.downcast_ref::<Const>() {
                self.tensor(constant.val());
            } else if let Some(product) = operator.downcast_ref::<OptMatMul>() {
                self.product(product);
            } else if let Some(scan) = operator.downcast_ref::<OptScan>() {
                self.graph(scan.plan.model());
            } else if let Some(scan) = operator.downcast_ref::<Scan>() {
                self.graph(&scan.body);
            } else if let Some(branches) = operator.downcast_ref::<IfThenElse>() {
                self.graph(&branches.then_body);
                self.graph(&branches.else_body);
            } else if let Some(sequence) = operator.downcast_ref::<GruSeq>() {
                let packed = sequence.packed_r.as_ref();
                if let Some((.., it)) = packed {
                    self.packed(&**it);
                }
            } else if let Some(kernel) = operator.downcast_ref::<Kernel>() {
                let (address, size) = kernel.held();
                if size > 0 {
                    self.add_block(address, size);
                }
            } else if let Some(run) = operator.downcast_ref::<RecurrentRun>() {
                for product in run.products() {
                    let (address, size) = product.held();
                    self.add_block(address, size);
                    product.graph().into_iter().for_each(|it| self.graph(it));
                }
            }
        }
    }

    fn product(&mut self, product: &OptMatMul) {
        for step in &product.micro_ops {
            if let ProtoFusedSpec::AddMatMul { a, b, .. } = step {
                for operand in [a, b] {
                    if let MatMulOperand::Const(value) = operand {
                        self.packed(&**value);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tract_onnx::tract_core::internal::SpecialOps;

    use super::*;

    fn holding(tensors: &[&Arc<Tensor>]) -> MemoryUse {
        let mut model = TypedModel::default();
        for (place, tensor) in tensors.iter().enumerate() {
            let made = model.add_const(format!("c{place}"), Arc::clone(tensor));
            made.expect("a constant fits into every graph");
        }
        MemoryUse::of(&model)
    }

    #[test]
    fn what_plans_share_counts_once() {
        // A graph stores equal constants once.
        let tensor = |from: u16| {
            let values: Vec<f32> = (from..from + 1000).map(f32::from).collect();
            Arc::new(Tensor::from_shape(&[1000], &values).expect("it is small"))
        };
        let (shared, own) = (tensor(0), tensor(1));
        let [one, two] = [holding(&[&shared]), holding(&[&shared, &own])];
        let nodes = 2 * PLAN_BYTES + 3 * NODE_BYTES;
        assert_eq!(MemoryUse::total_bytes([&one, &two]), nodes + 8000);
        let apart = holding(&[&own]);
        let nodes = 2 * PLAN_BYTES + 2 * NODE_BYTES;
        assert_eq!(MemoryUse::total_bytes([&one, &apart]), nodes + 8000);
    }
}
