//! The table of supported portable operators, by full name.
//!
//! Each file covers one theme and has a table of its operators. A function lowers one operator or a
//! family. It reads its arguments by their position in the operator's schema and sets its outputs
//! ([`mod@call`]).

mod arithmetic;
mod call;
mod compare;
mod create;
mod elements;
mod function;
mod image;
mod index;
mod language;
mod neural;
mod normal;
mod order;
mod part;
mod promotion;
mod quantized;
mod rearrange;
mod reduce;
mod shape;
mod symbolic;
mod window;

use std::collections::BTreeMap;
use std::sync::LazyLock;

pub(crate) use elements::{
    IndexCheck, floats, gather_elements, ints, strides, tensor_of_floats, tensor_of_ints,
};
pub(crate) use neural::einsum;
pub(crate) use promotion::promoted;

use tract_onnx::tract_core::internal::*;

use call::{LowerOperator, LoweringTable, OperatorCall};

use super::frame::MethodFrame;
use super::guard::{LibraryFailure, guarded};

/// The tables of all themes.
const OPERATOR_TABLES: [LoweringTable; 17] = [
    arithmetic::TABLE,
    compare::TABLE,
    create::TABLE,
    function::TABLE,
    image::TABLE,
    index::TABLE,
    language::TABLE,
    neural::TABLE,
    normal::TABLE,
    order::TABLE,
    part::TABLE,
    quantized::TABLE,
    rearrange::TABLE,
    reduce::TABLE,
    shape::TABLE,
    symbolic::TABLE,
    window::TABLE,
];

static LOWERINGS: LazyLock<BTreeMap<&'static str, LowerOperator>> = LazyLock::new(|| {
    let rows = OPERATOR_TABLES.into_iter().flatten();
    rows.flat_map(|(names, lower)| names.iter().map(|name| (*name, *lower)))
        .collect()
});

/// Returns the full names of all supported operators, sorted.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    LOWERINGS.keys().copied()
}

/// Returns whether an operator of this name is supported.
pub(crate) fn is_known(name: &str) -> bool {
    LOWERINGS.contains_key(name)
}

/// Lowers a call of the operator of this name. A panic becomes an error.
pub(crate) fn call(
    frame: &mut MethodFrame<'_>,
    name: &str,
    args: &[usize],
) -> Result<(), LibraryFailure> {
    guarded(|| lower(frame, name, args))
}

/// Lowers a call of the operator of this name, for callers that handle panics themselves.
pub(crate) fn lower(frame: &mut MethodFrame<'_>, name: &str, args: &[usize]) -> TractResult<()> {
    let Some(lower) = LOWERINGS.get(name) else {
        bail!("unsupported operator");
    };
    lower(&mut OperatorCall { frame, name, args })
}
