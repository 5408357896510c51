//! Maps operator names in Vulkan graphs to names in the operator table.
//!
//! A graph uses functional names (`aten.add.Tensor`). The table uses the out variants
//! (`aten::add.out`). Their arguments are the same, except that out variants have no dtypes and
//! layouts.

use crate::graph::operators;

/// Functional names that the naming rule does not cover: the name in the table, and the number of
/// arguments there.
const IRREGULAR_NAMES: &[(&str, &str, usize)] = &[
    ("aten.any.default", "aten::any.all_out", 1),
    ("aten.all.default", "aten::all.all_out", 1),
    ("aten.arange.start_step", "aten::arange.start_out", 3),
    ("aten.arange.default", "aten::arange.out", 1),
    ("aten.full.default", "aten::full.out", 2),
    ("aten.full_like.default", "aten::full_like.out", 2),
    ("aten.max.default", "aten::max.unary_out", 1),
    ("aten.max.dim", "aten::max.dim_max", 3),
    ("aten.min.default", "aten::min.unary_out", 1),
    ("aten.min.dim", "aten::min.dim_min", 3),
    ("aten.mean.default", "aten::mean.dtype_out", 2),
    ("aten.ones.default", "aten::ones.out", 1),
    ("aten.zeros.default", "aten::zeros.out", 1),
    ("aten.scalar_tensor.default", "aten::scalar_tensor.out", 1),
    ("aten.sort.default", "aten::sort.values", 3),
    ("aten.topk.default", "aten::topk.values", 5),
    ("aten.permute.default", "aten::permute_copy.out", 2),
    ("aten.select.int", "aten::select_copy.int_out", 3),
    ("aten.slice.Tensor", "aten::slice_copy.Tensor_out", 5),
    ("aten.squeeze.dims", "aten::squeeze_copy.dims_out", 2),
    ("aten.unsqueeze.default", "aten::unsqueeze_copy.out", 2),
    ("aten.view.default", "aten::view_copy.out", 2),
    ("sym_size.int", "aten::sym_size.int", 2),
    ("aten.sym_size.int", "aten::sym_size.int", 2),
    ("add", "executorch_prim::add.Scalar", 2),
    ("sub", "executorch_prim::sub.Scalar", 2),
    ("mul", "executorch_prim::mul.Scalar", 2),
    ("floordiv", "executorch_prim::floordiv.Scalar", 2),
    ("eq", "executorch_prim::eq.Scalar", 2),
    ("ge", "executorch_prim::ge.Scalar", 2),
    ("gt", "executorch_prim::gt.Scalar", 2),
    ("le", "executorch_prim::le.Scalar", 2),
    ("lt", "executorch_prim::lt.Scalar", 2),
];

/// Returns the name in the operator table and the number of arguments there, or `None` for
/// unsupported operators.
pub(super) fn table_name(name: &str) -> Option<(String, usize)> {
    let otherwise = IRREGULAR_NAMES.iter().find(|(known, ..)| *known == name);
    if let Some((_, full, count)) = otherwise {
        return Some(((*full).to_owned(), *count));
    }
    let mut parts = name.split('.');
    let (space, base, overload) = (parts.next()?, parts.next()?, parts.next()?);
    let overload = overload.strip_prefix("dim_").unwrap_or(overload);
    let candidates = [
        format!("{space}::{base}.{overload}_out"),
        format!(
            "{space}::{base}.out_{}",
            overload.trim_start_matches("Tensor_")
        ),
        format!("{space}::{base}.out"),
    ];
    let known = candidates
        .into_iter()
        .find(|full| operators::is_known(full));
    known.map(|full| (full, usize::MAX))
}
