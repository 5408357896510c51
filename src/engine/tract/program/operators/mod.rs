//! The list of portable operators, by their full names.
//!
//! One file a theme with a table; a function an operator, or a family of them. A function reads its
//! arguments by their place in the operator's schema and gives its outputs ([`mod@call`]).

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

pub(super) use elements::{Indices, floats, ints, of_floats, of_ints, pick, strides};
pub(super) use neural::einsum;
pub(super) use promotion::promoted;

use tract_onnx::tract_core::internal::*;

use call::{Call, Lower, Table};

use super::super::guard::{Failure, guarded};
use super::frame::Frame;

/// The themes, each with the operators it knows.
const THEMES: [Table; 17] = [
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

static KNOWN: LazyLock<BTreeMap<&'static str, Lower>> = LazyLock::new(|| {
    let rows = THEMES.into_iter().flatten();
    rows.flat_map(|(names, lower)| names.iter().map(|name| (*name, *lower)))
        .collect()
});

/// The full names of all operators that can be lowered, sorted.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    KNOWN.keys().copied()
}

/// Whether an operator of this name can be lowered.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains_key(name)
}

/// Lowers a call of the operator of this name.
pub(super) fn call(frame: &mut Frame<'_>, name: &str, args: &[usize]) -> Result<(), Failure> {
    guarded(|| lower(frame, name, args))
}

/// The same, for one who guards what is called himself.
pub(super) fn lower(frame: &mut Frame<'_>, name: &str, args: &[usize]) -> TractResult<()> {
    let Some(lower) = KNOWN.get(name) else {
        bail!("not supported");
    };
    lower(&mut Call { frame, name, args })
}
