//! Elementwise functions between bytes: one table lookup per element.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_hir::internal::*;

use super::elements::{byte_function, of_elements};
use super::node;
use crate::frontends::onnx::node_operator::Built;
use pkgtool_kernels::bytes::table::ByteTable;
use pkgtool_kernels::{Cpu, Split};

/// Builds a function.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let to = node::grid(node, "y")?;
    let (numbers, mut results) = (node::floats(node, "numbers"), [0; 256]);
    let rounded = to.round(
        Cpu::PLAIN,
        node::range(node)?,
        &numbers,
        &mut results,
        Split::ONE,
    );
    let table = rounded.and_then(|()| ByteTable::new(&results));
    let (table, cpu) = (table.map_err(TractError::msg)?, Cpu::chosen());
    let signs = [node::sign(node, "x"), to.sign];
    byte_function(node::TABLE, signs, move || {
        let table = table.clone();
        of_elements("TableOfBytes", to.sign, move |bytes, output, split| {
            table.look_up(cpu, bytes[0], output, split)
        })
    })
}
