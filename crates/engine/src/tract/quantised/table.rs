//! Elementwise functions between bytes: one table lookup per element.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::elements::{of_elements, one_to_one};
use super::node;
use crate::tract::operators::Built;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::table::Table;

/// Builds a function.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let to = node::grid(node, "y")?;
    let table = Table::new(&node::floats(node, "numbers"), to, node::range(node)?);
    let operator = Tabled {
        table: table.map_err(TractError::msg)?,
        from: node::sign(node, "x"),
        to: to.sign,
    };
    Ok((expand(operator), vec![]))
}

#[derive(Debug, Clone)]
struct Tabled {
    table: Table,
    from: Sign,
    to: Sign,
}

impl Expansion for Tabled {
    fn name(&self) -> StaticName {
        node::TABLE.into()
    }

    fn rules<'r, 'p: 'r, 's: 'r>(
        &'s self,
        s: &mut Solver<'r>,
        inputs: &'p [TensorProxy],
        outputs: &'p [TensorProxy],
    ) -> TractResult<()> {
        let dtypes = [self.from, self.to].map(node::datum_type);
        one_to_one(s, dtypes, inputs, outputs)
    }

    fn wire(
        &self,
        prefix: &str,
        model: &mut TypedModel,
        inputs: &[OutletId],
    ) -> TractResult<TVec<OutletId>> {
        let (table, cpu) = (self.table.clone(), Cpu::chosen());
        let kernel = of_elements("TableOfBytes", self.to, move |bytes, output, split| {
            table.look_up(cpu, bytes[0], output, split)
        });
        model.wire_node(prefix, kernel, inputs)
    }
}
