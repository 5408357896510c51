//! Names for dimensions that have one size, or sizes that follow from one another.
//!
//! A program has no symbols. Where delegates' graphs prove that dimensions of inputs are equal, or
//! `get_model_schema` declares it (`runtimeConstraints`), they get one here: `s0`, `s1`, …, and `2*s0 + 1`
//! for what is declared to be linear. Invariant: only dimensions that are certainly dynamic are named, and
//! only those that have something in common with another input's.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::declared::{Declared, Side};
use super::plan::Plan;
use crate::model::{Dim, Method, Value, ValueKind};

/// A dimension: the side, the tensor among the side's, the dimension.
type Place = (Side, usize, usize);

/// Most constraints of a method that are looked at.
const MAX_CONSTRAINTS: usize = 4096;

/// Dimensions by the class that they are in.
struct Classes {
    /// Each place, and another of its class that stands for it; itself, if it stands for all.
    parents: BTreeMap<Place, Place>,
    /// In the order of the method.
    order: Vec<Place>,
}

/// `whole = factor * part + constant`.
struct LinearOf {
    whole: Place,
    part: Place,
    factor: i64,
    constant: i64,
}

/// Names the coupled dimensions of a method whose tensors are settled.
pub(super) fn couple(plan: &mut Plan, declared: &Declared) {
    let mut classes = Classes::of(&plan.method);
    if classes.order.len() < 2 {
        return;
    }
    prove(plan, &mut classes);
    let constraints = declared.constraints(&plan.method.name);
    let constraints = constraints.iter().take(MAX_CONSTRAINTS);
    let lines: Vec<LinearOf> = constraints
        .filter_map(|constraint| declare(constraint, &mut classes))
        .collect();
    for place in classes.order.clone() {
        classes.shorten(place);
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

/// Joins what the graphs of delegates prove to be equal.
fn prove(plan: &Plan, classes: &mut Classes) {
    let mut known = BTreeMap::new();
    let sides = [
        (Side::Inputs, &plan.method.inputs, &plan.inputs),
        (Side::Outputs, &plan.method.outputs, &plan.outputs),
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

/// Joins what a constraint declares to be equal; what it declares to be linear.
fn declare(constraint: &Json, classes: &mut Classes) -> Option<LinearOf> {
    let place = |json: &Json| {
        let number = |key: &str| usize::try_from(json.get(key)?.as_u64()?).ok();
        let side = match json.get("paramSide")?.as_str()? {
            "input" => Side::Inputs,
            "output" => Side::Outputs,
            _ => return None,
        };
        Some((side, number("tensorIdx")?, number("dimIdx")?))
    };
    match constraint.get("kind")?.as_str()? {
        "equality" => {
            let dims = constraint.get("dims")?.as_array()?;
            let places: Vec<Place> = dims.iter().map(place).collect::<Option<_>>()?;
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
            Some(LinearOf {
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
fn name(classes: &Classes, lines: &[LinearOf]) -> BTreeMap<Place, String> {
    let mut sizes: BTreeMap<Place, usize> = BTreeMap::new();
    for place in classes.order.iter().filter(|place| place.0 == Side::Inputs) {
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
    let is_part = |root: &Place| lines.iter().any(|(_, part, _)| part == root);
    let mut names: BTreeMap<Place, String> = BTreeMap::new();
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
        // What others follow from keeps its own name.
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

impl Classes {
    /// The dynamic dimensions of a method, each in a class of its own.
    fn of(method: &Method) -> Self {
        let mut order = Vec::new();
        for (side, values) in [
            (Side::Inputs, &method.inputs),
            (Side::Outputs, &method.outputs),
        ] {
            for (tensor, info) in values.iter().filter_map(Value::tensor).enumerate() {
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

    /// What stands for the class of a place; `None` if the place is not dynamic.
    fn root(&self, place: Place) -> Option<Place> {
        let mut at = place;
        loop {
            let parent = *self.parents.get(&at)?;
            if parent == at {
                return Some(at);
            }
            at = parent;
        }
    }

    /// The same, with a shorter way to it from now on.
    fn shorten(&mut self, place: Place) -> Option<Place> {
        let root = self.root(place)?;
        let mut at = place;
        while at != root {
            at = self.parents.insert(at, root)?;
        }
        Some(root)
    }

    fn unite(&mut self, a: Place, b: Place) {
        if let (Some(a), Some(b)) = (self.shorten(a), self.shorten(b)) {
            self.parents.insert(a.max(b), a.min(b));
        }
    }
}

/// Visits the dimensions of a method's tensors.
fn each_dim(method: &mut Method, mut visit: impl FnMut(Place, &mut Dim)) {
    for (side, values) in [
        (Side::Inputs, &mut method.inputs),
        (Side::Outputs, &mut method.outputs),
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
