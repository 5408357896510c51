//! Joins the signatures of several models that run on the same inputs, and converts the joint
//! inputs to those of each model.
//!
//! A size that one model fixes is fixed for all. The smallest bound applies. Dimensions that one
//! model ties together are tied for all. Invariant: inputs that fit the joint signature fit every
//! party (model) in its own order, under its own names and in its own dtypes. If no joint signature
//! exists, the error names the input and the dimension that differ.

use std::collections::{BTreeMap, BTreeSet};

use super::dims::DimSizes;
use super::expression::{self, LinearExpression, symbol};
use super::relation::DimRelations;
use super::{InputArgs, InputError};
use crate::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_model::Dim;

/// One of several models that run on the same inputs.
#[derive(Debug, Clone)]
pub struct JointModel {
    /// Its name in error messages.
    pub label: String,
    /// Its signature.
    pub signature: Signature,
}

/// The joint signature of several models.
#[derive(Debug, Clone)]
pub struct JointSignature {
    parties: Vec<JointModel>,
    /// For each party and each input of the first party, the index among the party's own inputs.
    places: Vec<Vec<usize>>,
    signature: Signature,
}

/// Models that cannot run on the same inputs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JointError {
    /// The numbers of inputs differ.
    #[error(
        "{a} and {b} take different numbers of inputs, {in_a} and {in_b}: they cannot run on the same inputs"
    )]
    Count {
        /// One model.
        a: String,
        /// Number of its inputs.
        in_a: usize,
        /// The other model.
        b: String,
        /// Number of its inputs.
        in_b: usize,
    },
    /// No tensor fits both inputs.
    #[error("{a}, {b}: they cannot run on the same inputs: {reason}")]
    Input {
        /// The input of one model, with its type.
        a: String,
        /// The input of the other model, with its type.
        b: String,
        /// The difference.
        reason: String,
    },
}

/// An axis of an input of the joint signature.
type JointAxis = (usize, usize);

/// Axes that share one size, with the models' requirements.
#[derive(Debug, Default)]
struct AxisClass {
    axes: Vec<JointAxis>,
    /// The fixed size, the party that fixes it, and the axis.
    fixed: Option<(u64, usize, JointAxis)>,
    /// The smallest bound, the party that states it, and the axis.
    bound: Option<(u64, usize, JointAxis)>,
    symbol: Option<String>,
    dynamic: bool,
    likely_dynamic: Option<bool>,
}

impl JointSignature {
    /// Joins the signatures of these parties, in the order and under the names of the first.
    pub fn of(parties: Vec<JointModel>) -> Result<Self, JointError> {
        let lead = &parties[0].signature;
        let mut places = Vec::new();
        for party in &parties {
            let place = match_values(&lead.inputs, &party.signature.inputs);
            places.push(place.ok_or_else(|| JointError::Count {
                a: parties[0].label.clone(),
                in_a: lead.inputs.len(),
                b: party.label.clone(),
                in_b: party.signature.inputs.len(),
            })?);
        }
        let mut joint = Self {
            signature: lead.clone(),
            parties,
            places,
        };
        joint.check_kinds()?;
        let mut classes = joint.classes()?;
        joint.derive(&mut classes);
        joint.sign(&classes);
        Ok(joint)
    }

    /// Returns the joint signature.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Converts joint inputs to those of one party: its order and its dtypes.
    pub fn inputs_of(&self, party: usize, inputs: &[Tensor]) -> Result<Vec<Tensor>, InputError> {
        let signature = &self.parties[party].signature;
        let mut own: Vec<Option<Tensor>> = vec![None; inputs.len()];
        for (tensor, &place) in inputs.iter().zip(&self.places[party]) {
            own[place] = Some(converted(signature, place, tensor)?);
        }
        Ok(own.into_iter().flatten().collect())
    }

    /// Converts arguments to the joint signature. A size of `--dim` applies to every party that has
    /// the dimension, under any name. Also returns notes about parties where an option has no
    /// effect.
    pub fn args(&self, given: &InputArgs) -> Result<(InputArgs, Vec<String>), InputError> {
        let mut args = InputArgs {
            dims: Vec::new(),
            ..given.clone()
        };
        let mut notes = Vec::new();
        for text in &given.dims {
            let size = text
                .rsplit_once('=')
                .and_then(|(_, size)| size.parse().ok());
            let axes = self.resolve(text);
            let (Some(size), false) = (size, axes.is_empty()) else {
                // The first party's error lists the valid names.
                DimSizes::of(&self.parties[0].signature).set(text)?;
                continue;
            };
            for axis in axes {
                for (party, of) in self.parties.iter().enumerate() {
                    if let Some(Dim::Fixed(fixed)) = self.dim(party, axis)
                        && *fixed == size
                    {
                        let label = &of.label;
                        notes.push(format!(
                            "`--dim {text}` has no effect in {label}, where the size is always {size}"
                        ));
                    }
                }
                if self.is_open(axis, text, size)? {
                    let name = &self.signature.inputs[axis.0].name;
                    args.dims.push(format!("{name}[{}]={size}", axis.1));
                }
            }
        }
        Ok((args, notes))
    }

    /// Returns the joint axes that `--dim` names. An index counts the open dimensions of the first
    /// party that has enough of them; in other parties the same index could mean another dimension.
    fn resolve(&self, text: &str) -> BTreeSet<JointAxis> {
        let name = text.rsplit_once('=').map_or(text, |(name, _)| name);
        let parties = self.parties.iter().zip(&self.places);
        let axes = parties.filter_map(|(party, places)| {
            let (input, axis) = DimSizes::of(&party.signature).axis_of(name)?;
            let input = places.iter().position(|place| *place == input)?;
            Some((input, axis))
        });
        if name.parse::<usize>().is_ok() {
            axes.take(1).collect()
        } else {
            axes.collect()
        }
    }

    /// Returns whether an axis is open to this size; `false` if it already has the size.
    fn is_open(&self, axis: JointAxis, text: &str, size: u64) -> Result<bool, InputError> {
        let refused = |party: Option<usize>, what: &str, limit: u64| {
            let who = &self.parties[party.unwrap_or(0)].label;
            let name = &self.signature.inputs[axis.0].name;
            Err(InputError::Argument {
                option: "--dim",
                text: text.to_owned(),
                reason: format!(
                    "dimension {} of input `{name}` is {what} {limit} in {who}",
                    axis.1
                ),
                help: format!("all models run on the same inputs: omit the option, or use {limit}"),
            })
        };
        let has = |wanted: &Dim| {
            let mut parties = 0..self.parties.len();
            let same = |party: &usize| match (self.dim(*party, axis), wanted) {
                (Some(Dim::Fixed(a)), Dim::Fixed(b)) => a == b,
                (Some(Dim::Dynamic { bound: Some(a), .. } | Dim::Maybe { bound: a, .. }), _) => {
                    *a < size
                }
                _ => false,
            };
            parties.find(same)
        };
        let joint = self.signature.inputs[axis.0].dims.as_ref();
        match joint.and_then(|dims| dims.get(axis.1)) {
            Some(Dim::Fixed(fixed)) if *fixed == size => Ok(false),
            Some(dim @ Dim::Fixed(fixed)) => refused(has(dim), "always", *fixed),
            Some(
                dim @ (Dim::Dynamic {
                    bound: Some(bound), ..
                }
                | Dim::Maybe { bound, .. }),
            ) if *bound < size => refused(has(dim), "at most", *bound),
            _ => Ok(true),
        }
    }

    /// Returns a party's own dimension at a joint axis.
    fn dim(&self, party: usize, (input, axis): JointAxis) -> Option<&Dim> {
        let place = self.places[party][input];
        self.parties[party].signature.inputs[place]
            .dims
            .as_ref()?
            .get(axis)
    }

    /// Returns a joint input as declared by a party.
    fn spec(&self, party: usize, input: usize) -> &TensorSpec {
        &self.parties[party].signature.inputs[self.places[party][input]]
    }

    fn differ(&self, input: usize, (a, b): (usize, usize), reason: String) -> JointError {
        let shown = |party: usize| {
            let spec = self.spec(party, input);
            format!(
                "input `{}` of {} is {spec}",
                spec.name, self.parties[party].label
            )
        };
        JointError::Input {
            a: shown(a),
            b: shown(b),
            reason,
        }
    }

    /// Checks dtypes, ranks and fixed numbers.
    fn check_kinds(&mut self) -> Result<(), JointError> {
        for input in 0..self.signature.inputs.len() {
            for party in 1..self.parties.len() {
                let (one, other) = (self.spec(0, input), self.spec(party, input));
                if !is_convertible(one.dtype, other.dtype) {
                    let reason = format!("{} and {} are incompatible", one.dtype, other.dtype);
                    return Err(self.differ(input, (0, party), reason));
                }
            }
            let ranks = (0..self.parties.len())
                .filter_map(|party| Some((party, self.spec(party, input).dims.as_ref()?.len())));
            let ranks: Vec<(usize, usize)> = ranks.collect();
            if let Some((a, first)) = ranks.first()
                && let Some((b, other)) = ranks.iter().find(|(_, rank)| rank != first)
            {
                let reason = format!("{first} dimensions and {other}");
                return Err(self.differ(input, (*a, *b), reason));
            }
            let fixed = (0..self.parties.len())
                .filter_map(|party| Some((party, self.spec(party, input).fixed.clone()?)));
            let fixed: Vec<(usize, String)> = fixed.collect();
            if let Some((a, first)) = fixed.first()
                && let Some((b, other)) = fixed.iter().find(|(_, value)| value != first)
            {
                let reason =
                    format!("its only value is {first} in the first and {other} in the second");
                return Err(self.differ(input, (*a, *b), reason));
            }
            self.signature.inputs[input].fixed = fixed.first().map(|(_, value)| value.clone());
        }
        Ok(())
    }

    /// Returns the rank of a joint input, if any party states it.
    fn rank(&self, input: usize) -> Option<usize> {
        let mut parties = 0..self.parties.len();
        parties.find_map(|party| Some(self.spec(party, input).dims.as_ref()?.len()))
    }

    /// Groups the axes that share one size, with the parties' requirements.
    fn classes(&self) -> Result<Vec<AxisClass>, JointError> {
        let inputs = 0..self.signature.inputs.len();
        let axes = inputs.flat_map(|input| {
            let rank = self.rank(input).unwrap_or(0);
            (0..rank).map(move |axis| (input, axis))
        });
        let mut classes: Vec<AxisClass> = axes
            .map(|axis| AxisClass {
                axes: vec![axis],
                ..AxisClass::default()
            })
            .collect();
        for party in 0..self.parties.len() {
            for (_, axes) in self.symbols(party) {
                unite(&mut classes, &axes);
            }
        }
        let mut taken = BTreeSet::new();
        for party in 0..self.parties.len() {
            for class in &mut classes {
                for axis in class.axes.clone() {
                    self.learn(class, party, axis)?;
                }
            }
            for (symbol, axes) in self.symbols(party) {
                let at = class_of(&classes, axes[0]);
                if classes[at].symbol.is_none() {
                    // The same name may mean another dimension in another model.
                    let mut name = symbol;
                    while !taken.insert(name.clone()) {
                        name.push('\'');
                    }
                    classes[at].symbol = Some(name);
                }
            }
        }
        Ok(classes)
    }

    /// Returns the symbols of a party with their axes.
    fn symbols(&self, party: usize) -> BTreeMap<String, Vec<JointAxis>> {
        let mut symbols: BTreeMap<String, Vec<JointAxis>> = BTreeMap::new();
        for input in 0..self.signature.inputs.len() {
            let dims = self.spec(party, input).dims.iter().flatten();
            for (axis, dim) in dims.enumerate() {
                if let Some(symbol) = symbol(dim) {
                    symbols
                        .entry(symbol.to_owned())
                        .or_default()
                        .push((input, axis));
                }
            }
        }
        symbols
    }

    /// Adds a party's requirement on one axis.
    fn learn(
        &self,
        class: &mut AxisClass,
        party: usize,
        axis: JointAxis,
    ) -> Result<(), JointError> {
        let Some(dim) = self.dim(party, axis) else {
            return Ok(());
        };
        let bound = match dim {
            Dim::Fixed(size) => {
                if let Some((known, other, at)) = class.fixed.filter(|(known, ..)| known != size) {
                    return Err(self.conflict((known, other, at), (*size, party, axis)));
                }
                class.fixed.get_or_insert((*size, party, axis));
                None
            }
            Dim::Dynamic { bound, .. } => {
                class.dynamic = true;
                *bound
            }
            Dim::Maybe {
                bound,
                likely_dynamic,
            } => {
                let known = class.likely_dynamic.unwrap_or(false);
                class.likely_dynamic = Some(known || *likely_dynamic);
                Some(*bound)
            }
        };
        if let Some(bound) = bound
            && class.bound.is_none_or(|(least, ..)| bound < least)
        {
            class.bound = Some((bound, party, axis));
        }
        match (class.fixed, class.bound) {
            (Some((size, a, at)), Some((bound, b, other))) if size > bound => {
                let name = |party: usize, (input, axis): JointAxis| {
                    let spec = self.spec(party, input);
                    format!("dimension {axis} of `{}`", spec.name)
                };
                let reason = format!(
                    "{} is {size} in {}, but {} is at most {bound} in {}",
                    name(a, at),
                    self.parties[a].label,
                    name(b, other),
                    self.parties[b].label
                );
                Err(self.differ(axis.0, (a, b), reason))
            }
            _ => Ok(()),
        }
    }

    fn conflict(&self, a: (u64, usize, JointAxis), b: (u64, usize, JointAxis)) -> JointError {
        let shown = |(size, party, (input, axis)): (u64, usize, JointAxis)| {
            let label = &self.parties[party].label;
            format!(
                "dimension {axis} of `{}` is {size} in {label}",
                self.spec(party, input).name
            )
        };
        let tied = if a.2 == b.2 {
            ""
        } else {
            ", but they must be equal"
        };
        let reason = format!("{} and {}{tied}", shown(a), shown(b));
        self.differ(b.2.0, (a.1, b.1), reason)
    }

    /// Derives sizes from fixed ones by the parties' definitions, and keeps the definitions of the
    /// remaining sizes.
    fn derive(&self, classes: &mut [AxisClass]) {
        let mut definitions = Vec::new();
        for party in 0..self.parties.len() {
            let symbols = self.symbols(party);
            let names = symbols.keys().map(String::as_str).collect();
            for (whole, sum) in expression::definitions(&names) {
                let place = |name: &String| class_of(classes, symbols[name][0]);
                let parts = sum.terms.keys().map(|part| (place(part), part.clone()));
                definitions.push((place(&whole), parts.collect::<Vec<_>>(), sum));
            }
        }
        let relations = definitions.iter().map(|(whole, parts, sum)| {
            let terms = parts.iter().map(|(part, name)| (*part, sum.terms[name]));
            (terms.chain([(*whole, -1)]).collect(), sum.constant)
        });
        let relations = DimRelations::new(relations.collect());
        let sizes = classes
            .iter()
            .map(|class| class.fixed.map(|(size, ..)| size));
        let bound = |class: usize| classes[class].bound.map(|(bound, ..)| bound);
        let sizes = relations.follow(sizes.collect(), bound);
        for (class, size) in classes.iter_mut().zip(sizes) {
            if let (None, Some(size)) = (class.fixed, size) {
                class.fixed = Some((size, 0, class.axes[0]));
            }
        }
        for (whole, parts, sum) in definitions {
            let some_fixed = parts.iter().any(|(part, _)| classes[*part].fixed.is_some());
            if classes[whole].fixed.is_none()
                && some_fixed
                && let Some(rest) = remaining_sum(classes, &parts, sum)
            {
                classes[whole].symbol = Some(rest.to_string());
            }
        }
    }

    /// Writes the dimensions of the joint signature.
    fn sign(&mut self, classes: &[AxisClass]) {
        for input in 0..self.signature.inputs.len() {
            let Some(rank) = self.rank(input) else {
                continue;
            };
            let dims = (0..rank).map(|axis| classes[class_of(classes, (input, axis))].dim());
            self.signature.inputs[input].dims = Some(dims.collect());
        }
    }
}

impl AxisClass {
    fn dim(&self) -> Dim {
        if let Some((size, ..)) = self.fixed {
            return Dim::Fixed(size);
        }
        let bound = self.bound.map(|(bound, ..)| bound);
        match (self.likely_dynamic, bound, &self.symbol) {
            (Some(likely_dynamic), Some(bound), None) => Dim::Maybe {
                bound,
                likely_dynamic: likely_dynamic || self.dynamic,
            },
            _ => Dim::Dynamic {
                allowed: None,
                bound,
                name: self.symbol.clone(),
            },
        }
    }
}

/// Returns the rest of a sum after fixed sizes are substituted, with the joint names of the
/// remaining symbols.
fn remaining_sum(
    classes: &[AxisClass],
    parts: &[(usize, String)],
    sum: LinearExpression,
) -> Option<LinearExpression> {
    let mut rest = sum;
    let mut named = LinearExpression::default();
    for (part, name) in parts {
        if let Some((size, ..)) = classes[*part].fixed {
            rest.substitute(name, size)?;
        } else {
            let factor = rest.terms.remove(name)?;
            let symbol = classes[*part].symbol.clone()?;
            let sum = named.terms.entry(symbol).or_default();
            *sum = sum.checked_add(factor)?;
        }
    }
    named.constant = rest.constant;
    Some(named)
}

/// Returns the index of the class that contains an axis.
fn class_of(classes: &[AxisClass], axis: JointAxis) -> usize {
    let found = classes.iter().position(|class| class.axes.contains(&axis));
    found.expect("every axis of the joint signature has a class")
}

/// Merges the classes of these axes.
fn unite(classes: &mut Vec<AxisClass>, axes: &[JointAxis]) {
    let mut of_all: Vec<usize> = axes.iter().map(|axis| class_of(classes, *axis)).collect();
    of_all.sort_unstable();
    of_all.dedup();
    while of_all.len() > 1 {
        let last = of_all.pop().expect("two classes exist");
        let gone = classes.remove(last);
        classes[of_all[0]].axes.extend(gone.axes);
    }
}

/// Returns whether values of one dtype can be converted to the other.
fn is_convertible(a: DType, b: DType) -> bool {
    let is_integer = |dtype: DType| !dtype.is_float() && dtype != DType::Bool;
    a == b || a.is_float() && b.is_float() || is_integer(a) && is_integer(b)
}

/// Converts a tensor to the dtype of a party's input: floats are rounded, integers must be in
/// range.
fn converted(signature: &Signature, place: usize, tensor: &Tensor) -> Result<Tensor, InputError> {
    let dtype = signature.inputs[place].dtype;
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    let fail = |reason: String| {
        let help = "give values that both models accept";
        super::InputLabel::of(signature, place).value("the common input", reason, help)
    };
    let shape = tensor.shape().to_vec();
    let own = Tensor::from_f64(dtype, shape, tensor.to_f64());
    let own = own.map_err(|error| fail(error.to_string()))?;
    if !dtype.is_float() {
        let mut pairs = tensor.to_f64().zip(own.to_f64());
        if let Some((value, _)) = pairs.find(|(value, own)| value.total_cmp(own).is_ne()) {
            return Err(fail(format!("{value} is out of range for {dtype}")));
        }
    }
    Ok(own)
}

/// Matches the values of one side with those of the other, first by name, then in order. Returns
/// the index in `b` for each value of `a`; `None` if their numbers differ.
pub fn match_values(a: &[TensorSpec], b: &[TensorSpec]) -> Option<Vec<usize>> {
    if a.len() != b.len() {
        return None;
    }
    let mut places: Vec<Option<usize>> = vec![None; a.len()];
    let mut free: Vec<usize> = (0..b.len()).collect();
    for (place, one) in places.iter_mut().zip(a) {
        if let Some(at) = free.iter().position(|other| b[*other].name == one.name) {
            *place = Some(free.remove(at));
        }
    }
    let mut free = free.into_iter();
    places
        .into_iter()
        .map(|place| place.or_else(|| free.next()))
        .collect()
}
