//! Rule `tensor-dim`: reports dimensions below -1 or out of range.

use std::collections::HashMap;

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::config::{INPUTS, OUTPUTS};
use pkgtool_base::package::{MethodSignature, Methods, DeclaredTensor};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::signature::DifferenceKind;

rule! {
    /// # What it checks
    /// Every dimension of a declared shape is a size (0 or more, less than 2⁶³) or -1 for a dynamic
    /// one.
    ///
    /// # Why
    /// JSON Schema allows any integer, but a tensor's dimension is limited to this range.
    ///
    /// # Example
    /// ```json
    /// { "shape": [-2, 80], "dtype": "float32" }
    /// ```
    ///
    /// # Fix
    /// Write the size, or -1 if the dimension is dynamic. `pkgtool fix` writes the model's size.
    ///
    /// # What it does not see
    /// A size that differs from the model's; `tensor-shape` compares it.
    PKG014 "tensor-dim" Error fix Safe "A dimension is below -1 or out of range." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let known = context.mismatches.iter().filter(|mismatch| mismatch.kind == DifferenceKind::Dim);
    let known: HashMap<_, _> =
        known.filter_map(|mismatch| Some((&mismatch.path, mismatch.mend.as_ref()?))).collect();
    for (tensor, place) in tensors(context) {
        let Some(shape) = &tensor.shape else { continue };
        for (i, size) in shape.iter().enumerate().filter(|(_, size)| !(-1..i64::MAX).contains(*size)) {
            let whole = place.shape();
            let path = whole.index(i);
            let anchor = Anchor::Value(path.clone());
            let written = context.number_text(&path).map_or_else(|| size.to_string(), str::to_owned);
            let finding = RULE.meta.finding(anchor, format!("invalid dimension {written}"));
            let variant = context.variant_at(&whole);
            let mend = known.get(&whole).filter(|_| variant.is_some_and(|variant| context.names_all_files(variant)));
            let fix = mend.and_then(|mend| context.fix(Applicability::Safe, mend));
            findings.push(finding.help("a size of 0 or more, or -1 for a dynamic dimension").fix(fix));
        }
    }
}

/// The location of a tensor's declaration.
struct TensorLocation<'a> {
    method: &'a JsonPath,
    side: &'static str,
    index: usize,
}

impl TensorLocation<'_> {
    fn shape(&self) -> JsonPath {
        self.method.key(self.side).index(self.index).key("shape")
    }
}

fn tensors<'a>(context: &'a Context<'_>) -> impl Iterator<Item = (&'a DeclaredTensor, TensorLocation<'a>)> {
    let methods = context.variants().iter().flat_map(|variant| {
        let groups = match &variant.methods {
            Methods::Absent => &[][..],
            Methods::Declared { groups, .. } => groups,
        };
        groups.iter().flat_map(|group| &group.methods)
    });
    methods.flat_map(|MethodSignature { path: method, inputs, outputs, .. }| {
        [(INPUTS, inputs), (OUTPUTS, outputs)].into_iter().flat_map(move |(side, specs)| {
            let specs = specs.iter().flatten().enumerate();
            specs.map(move |(index, spec)| (spec, TensorLocation { method, side, index }))
        })
    })
}
