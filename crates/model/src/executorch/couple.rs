//! Assigns symbols to dynamic dimensions that are equal or depend on each other.
//!
//! ExecuTorch programs have no symbols. Dimensions of inputs get a symbol here (`s0`, `s1`, …) if
//! the graphs of delegates prove that they are equal, or `get_model_schema` declares it
//! (`runtimeConstraints`). Linear dependencies become expressions such as `2*s0 + 1`. Invariant:
//! only certainly dynamic dimensions get a name, and only those related to a dimension of another
//! input.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::declared::{Declarations, DeclaredSide};
use super::plan::MethodPlan;
use crate::{Dim, Method, ModelValue, ValueKind};

/// A dimension: the side (inputs or outputs), the index of the tensor on that side, the index of
/// the dimension.
type DimPosition = (DeclaredSide, usize, usize);

/// Maximum number of constraints read per method.
const MAX_CONSTRAINTS: usize = 4096;

/// Equivalence classes of dimensions (a union-find structure).
struct DimClasses {
    /// The parent of each dimension in its class; a root is its own parent.
    parents: BTreeMap<DimPosition, DimPosition>,
    /// All dimensions, in the order of the method.
    order: Vec<DimPosition>,
}

/// The linear dependency `whole = factor * part + constant`.
struct LinearRelation {
    whole: DimPosition,
    part: DimPosition,
    factor: i64,
    constant: i64,
}

/// Names the related dimensions of a method whose tensors have been resolved.
pub(super) fn name_related_dims(plan: &mut MethodPlan, declared: &Declarations) {
    let mut classes = DimClasses::of(&plan.method);
    if classes.order.len() < 2 {
        return;
    }
    unite_proven(plan, &mut classes);
    let constraints = declared.constraints(&plan.method.name);
    let constraints = constraints.iter().take(MAX_CONSTRAINTS);
    let lines: Vec<LinearRelation> = constraints
        .filter_map(|constraint| apply_constraint(constraint, &mut classes))
        .collect();
    for place in classes.order.clone() {
        classes.find_root(place);
    }
    let names = name(&classes, &lines);
    each_dim(&mut plan.method, |place, dim| {
        let root = classes.root(place);
        if let (Dim::Dynamic { name, .. }, Some(root)) = (dim, root)
            && let Some(found) = names.get(&root)
        {
            *name = Some(found.clone());
        }
    });
}

/// Unites the dimensions that the graphs of delegates prove to be equal.
fn unite_proven(plan: &MethodPlan, classes: &mut DimClasses) {
    let mut known = BTreeMap::new();
    let sides = [
        (DeclaredSide::Inputs, &plan.method.inputs, &plan.inputs),
        (DeclaredSide::Outputs, &plan.method.outputs, &plan.outputs),
    ];
    let equal = plan.wiring.equal();
    for (side, values, indices) in sides {
        let tensors = values
            .iter()
            .zip(indices)
            .filter(|(value, _)| value.tensor().is_some());
        for (tensor, (value, index)) in tensors.enumerate() {
            let rank = value
                .tensor()
                .and_then(|info| info.dims.as_ref())
                .map_or(0, Vec::len);
            for dim in 0..rank {
                if let Some(class) = equal.of(&plan.wiring, *index, dim) {
                    let place = (side, tensor, dim);
                    let first = *known.entry(class).or_insert(place);
                    classes.unite(first, place);
                }
            }
        }
    }
}

/// Applies a declared constraint: unites equal dimensions, or returns a linear dependency.
fn apply_constraint(constraint: &Json, classes: &mut DimClasses) -> Option<LinearRelation> {
    let place = |json: &Json| {
        let number = |key: &str| usize::try_from(json.get(key)?.as_u64()?).ok();
        let side = match json.get("paramSide")?.as_str()? {
            "input" => DeclaredSide::Inputs,
            "output" => DeclaredSide::Outputs,
            _ => return None,
        };
        Some((side, number("tensorIdx")?, number("dimIdx")?))
    };
    match constraint.get("kind")?.as_str()? {
        "equality" => {
            let dims = constraint.get("dims")?.as_array()?;
            let places: Vec<DimPosition> = dims.iter().map(place).collect::<Option<_>>()?;
            for other in places.iter().skip(1) {
                classes.unite(places[0], *other);
            }
            None
        }
        "linear" => {
            let coefficients = constraint.get("coefficients")?.as_array()?;
            let [factor, constant] = &coefficients[..] else {
                return None;
            };
            Some(LinearRelation {
                whole: place(constraint.get("dimLhs")?)?,
                part: place(constraint.get("dimRhs")?)?,
                factor: factor.as_i64()?,
                constant: constant.as_i64()?,
            })
        }
        _ => None,
    }
}

/// A name for each class that has something in common with another.
fn name(classes: &DimClasses, lines: &[LinearRelation]) -> BTreeMap<DimPosition, String> {
    let mut sizes: BTreeMap<DimPosition, usize> = BTreeMap::new();
    for place in classes
        .order
        .iter()
        .filter(|place| place.0 == DeclaredSide::Inputs)
    {
        if let Some(root) = classes.root(*place) {
            *sizes.entry(root).or_default() += 1;
        }
    }
    let lines = lines.iter().filter_map(|line| {
        let (whole, part) = (classes.root(line.whole)?, classes.root(line.part)?);
        let both = sizes.contains_key(&whole) && sizes.contains_key(&part);
        (both && whole != part && line.factor != 0).then_some((whole, part, line))
    });
    let lines: Vec<_> = lines.collect();
    let is_part = |root: &DimPosition| lines.iter().any(|(_, part, _)| part == root);
    let mut names: BTreeMap<DimPosition, String> = BTreeMap::new();
    for place in &classes.order {
        let Some(root) = classes.root(*place) else {
            continue;
        };
        let several = sizes.get(&root).is_some_and(|count| *count > 1);
        if (several || is_part(&root)) && !names.contains_key(&root) {
            names.insert(root, format!("s{}", names.len()));
        }
    }
    for (whole, part, line) in &lines {
        // A dimension that others depend on keeps its own name.
        if is_part(whole) {
            continue;
        }
        let part = &names[part];
        let sign = if line.constant < 0 { '-' } else { '+' };
        let text = match (line.factor, line.constant.unsigned_abs()) {
            (1, 0) => part.clone(),
            (factor, 0) => format!("{factor}*{part}"),
            (1, constant) => format!("{part} {sign} {constant}"),
            (factor, constant) => format!("{factor}*{part} {sign} {constant}"),
        };
        names.insert(*whole, text);
    }
    names
}

impl DimClasses {
    /// Creates a class for each dynamic dimension of a method.
    fn of(method: &Method) -> Self {
        let mut order = Vec::new();
        for (side, values) in [
            (DeclaredSide::Inputs, &method.inputs),
            (DeclaredSide::Outputs, &method.outputs),
        ] {
            for (tensor, info) in values.iter().filter_map(ModelValue::tensor).enumerate() {
                let dims = info.dims.iter().flatten().enumerate();
                let dynamic = dims.filter(|(_, dim)| matches!(dim, Dim::Dynamic { .. }));
                order.extend(dynamic.map(|(dim, _)| (side, tensor, dim)));
            }
        }
        Self {
            parents: order.iter().map(|place| (*place, *place)).collect(),
            order,
        }
    }

    /// Returns the root of a dimension's class; `None` if the dimension is not dynamic.
    fn root(&self, place: DimPosition) -> Option<DimPosition> {
        let mut at = place;
        loop {
            let parent = *self.parents.get(&at)?;
            if parent == at {
                return Some(at);
            }
            at = parent;
        }
    }

    /// Returns the root as [`Self::root`] does, and shortens the path to it.
    fn find_root(&mut self, place: DimPosition) -> Option<DimPosition> {
        let root = self.root(place)?;
        let mut at = place;
        while at != root {
            at = self.parents.insert(at, root)?;
        }
        Some(root)
    }

    fn unite(&mut self, a: DimPosition, b: DimPosition) {
        if let (Some(a), Some(b)) = (self.find_root(a), self.find_root(b)) {
            self.parents.insert(a.max(b), a.min(b));
        }
    }
}

/// Visits the dimensions of a method's tensors.
fn each_dim(method: &mut Method, mut visit: impl FnMut(DimPosition, &mut Dim)) {
    for (side, values) in [
        (DeclaredSide::Inputs, &mut method.inputs),
        (DeclaredSide::Outputs, &mut method.outputs),
    ] {
        let tensors = values.iter_mut().filter_map(|value| match &mut value.kind {
            ValueKind::Tensor { info, .. } => Some(info),
            _ => None,
        });
        for (tensor, info) in tensors.enumerate() {
            for (place, dim) in info.dims.iter_mut().flatten().enumerate() {
                visit((side, tensor, place), dim);
            }
        }
    }
}
