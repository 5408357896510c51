//! Resolves the sizes of the dimensions that a model leaves open. A symbol has one size wherever it
//! occurs.
//!
//! Invariant: a dimension gets its size once, from `--dim` or from the first tensor that has it.
//! Later sizes must agree. A derived size gives way to a given one. Values of elements are handled
//! elsewhere.

use super::error::{InputLabel, names};
use super::expression::{PAST_PREFIX, symbol};
use super::relation::DimRelations;
use super::slot::DimSlot;
use super::{InputError, OpenDim};
use crate::tensor::{DType, Signature};
use pkgtool_base::source::suggest::nearest;
use pkgtool_model::{Allowed, Dim};

const DIM_OPTION: &str = "--dim";

/// The open dimensions of a signature's inputs, and their sizes so far.
#[derive(Debug)]
pub(super) struct DimSizes<'s> {
    signature: &'s Signature,
    slots: Vec<DimSlot>,
    /// The axes of each input; `None` if its rank is unknown.
    axes: Vec<Option<Vec<AxisSize>>>,
    relations: DimRelations,
}

/// The size of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AxisSize {
    /// A fixed size.
    Fixed(u64),
    /// The size of an open dimension, as an index into the slots.
    Slot(usize),
}

impl<'s> DimSizes<'s> {
    /// Collects the open dimensions of `signature`, without sizes.
    pub(super) fn of(signature: &'s Signature) -> Self {
        let mut dims = Self {
            signature,
            slots: Vec::new(),
            axes: Vec::new(),
            relations: DimRelations::default(),
        };
        for input in &signature.inputs {
            let axes = input.dims.as_ref().map(|axes| {
                let axes = axes.iter().enumerate();
                axes.map(|(axis, dim)| dims.add(dim, &input.name, axis))
                    .collect()
            });
            dims.axes.push(axes);
        }
        let labels: Vec<&str> = dims.slots.iter().map(|slot| slot.label.as_str()).collect();
        dims.relations = DimRelations::of(&labels);
        dims
    }

    fn add(&mut self, dim: &Dim, input: &str, axis: usize) -> AxisSize {
        let (bound, allowed) = match dim {
            Dim::Fixed(size) => return AxisSize::Fixed(*size),
            Dim::Dynamic { bound, allowed, .. } => (*bound, allowed.clone()),
            Dim::Maybe { bound, .. } => (Some(*bound), None),
        };
        let symbol = symbol(dim);
        let known =
            symbol.and_then(|symbol| self.slots.iter().position(|slot| slot.label == symbol));
        if let Some(slot) = known {
            let bounds = [self.slots[slot].bound, bound];
            self.slots[slot].bound = bounds.into_iter().flatten().min();
            self.slots[slot].allowed.extend(allowed);
            return AxisSize::Slot(slot);
        }
        self.slots.push(DimSlot {
            label: symbol.map_or_else(|| format!("{input}[{axis}]"), str::to_owned),
            bound,
            allowed: allowed.into_iter().collect(),
            axis,
            listed: dim.config_size() == -1,
            size: None,
            derived: false,
        });
        AxisSize::Slot(self.slots.len() - 1)
    }

    /// Sets a dimension to the size of a `--dim` option.
    pub(super) fn set(&mut self, text: &str) -> Result<(), InputError> {
        let Some((name, size)) = text.rsplit_once('=') else {
            return Err(self.refused(text, "missing `=`"));
        };
        let Ok(size) = size.parse::<u64>() else {
            return Err(self.refused(
                text,
                &format!("invalid size `{size}`: expected a non-negative integer"),
            ));
        };
        let slot = match self.named(name, text)? {
            AxisSize::Slot(slot) => slot,
            AxisSize::Fixed(fixed) if fixed == size => return Ok(()),
            AxisSize::Fixed(fixed) => {
                return Err(self.refused(text, &format!("this dimension is always {fixed}")));
            }
        };
        let DimSlot { bound, .. } = self.slots[slot];
        if let Some(bound) = bound.filter(|bound| *bound < size) {
            let reason = format!("the model's upper bound is {bound}");
            return Err(self.refused(text, &reason));
        }
        if let Some(allowed) = self.slots[slot].excluding_declaration(size) {
            let reason = format!("the model declares sizes of {allowed}");
            return Err(self.refused(text, &reason));
        }
        self.fix(slot, size, &format!("--dim {text}"))
    }

    /// Returns the dimension with this name: a symbol, `input[axis]` with the input's name or
    /// index, or an index into the listed open dimensions.
    fn named(&self, name: &str, text: &str) -> Result<AxisSize, InputError> {
        if let Some(slot) = self.slots.iter().position(|slot| slot.label == name) {
            return Ok(AxisSize::Slot(slot));
        }
        if let Ok(place) = name.parse::<usize>() {
            let mut listed = (0..self.slots.len()).filter(|slot| self.slots[*slot].listed);
            let slot = listed.nth(place).map(AxisSize::Slot);
            let none = format!("unknown open dimension {place}");
            return slot.ok_or_else(|| self.refused(text, &none));
        }
        let axis = name.strip_suffix(']').and_then(|name| {
            let (input, number) = name.rsplit_once('[')?;
            let inputs = &self.signature.inputs;
            let input = inputs
                .iter()
                .position(|spec| spec.name == input)
                .or_else(|| input.parse().ok().filter(|place| *place < inputs.len()))?;
            let axes = self.axes[input].as_ref()?;
            axes.get(number.parse::<usize>().ok()?).copied()
        });
        axis.ok_or_else(|| {
            let meant = nearest(name, self.slots.iter().map(|slot| slot.label.as_str()));
            let meant = meant.map(|meant| format!(", did you mean `{meant}`?"));
            let meant = meant.unwrap_or_default();
            self.refused(text, &format!("unknown dimension `{name}`{meant}"))
        })
    }

    /// Returns the first axis that has the dimension with this name.
    pub(super) fn axis_of(&self, name: &str) -> Option<(usize, usize)> {
        let size = self.named(name, name).ok()?;
        if matches!(size, AxisSize::Slot(_)) {
            return self.axes.iter().enumerate().find_map(|(input, axes)| {
                let axis = axes.as_ref()?.iter().position(|axis| *axis == size)?;
                Some((input, axis))
            });
        }
        // A fixed size does not identify its axis, but then the name does.
        let (input, axis) = name.strip_suffix(']')?.rsplit_once('[')?;
        let inputs = &self.signature.inputs;
        let named = inputs.iter().position(|spec| spec.name == input);
        Some((named.or_else(|| input.parse().ok())?, axis.parse().ok()?))
    }

    fn refused(&self, text: &str, reason: &str) -> InputError {
        let listed = self.slots.iter().filter(|slot| slot.listed);
        let texts: Vec<String> = listed
            .enumerate()
            .map(|(place, slot)| match slot.bound {
                Some(bound) => format!("{place} `{}` (up to {bound})", slot.label),
                None => format!("{place} `{}`", slot.label),
            })
            .collect();
        let help = if texts.is_empty() {
            "the inputs have no open dimensions".to_owned()
        } else {
            format!(
                "write NAME=N or INDEX=N; the open dimensions are {}",
                texts.join(", ")
            )
        };
        InputError::Argument {
            option: DIM_OPTION,
            text: text.to_owned(),
            reason: reason.to_owned(),
            help: format!("{help}; {}", names(self.signature)),
        }
    }

    /// Sets the size of a slot, or fails if it has another one.
    fn fix(&mut self, slot: usize, size: u64, origin: &str) -> Result<(), InputError> {
        let slot = &mut self.slots[slot];
        match &slot.size {
            Some((known, first)) if *known != size && !slot.derived => {
                return Err(InputError::Conflict {
                    dim: slot.label.clone(),
                    first: first.clone(),
                    first_size: *known,
                    second: origin.to_owned(),
                    second_size: size,
                });
            }
            Some(_) if !slot.derived => return Ok(()),
            _ => {}
        }
        slot.size = Some((size, origin.to_owned()));
        slot.derived = false;
        self.derive();
        Ok(())
    }

    /// Derives sizes from those that were given.
    fn derive(&mut self) {
        if self.relations.is_empty() {
            return;
        }
        for slot in self.slots.iter_mut().filter(|slot| slot.derived) {
            slot.size = None;
            slot.derived = false;
        }
        let sizes = self.follow(self.sizes());
        for (slot, size) in self.slots.iter_mut().zip(sizes) {
            if let (None, Some(size)) = (&slot.size, size) {
                slot.size = Some((size, "other sizes".to_owned()));
                slot.derived = true;
            }
        }
    }

    fn sizes(&self) -> Vec<Option<u64>> {
        let sizes = self.slots.iter().map(|slot| slot.size.as_ref());
        sizes.map(|size| size.map(|(size, _)| *size)).collect()
    }

    /// Returns these sizes with those that follow from them.
    fn follow(&self, sizes: Vec<Option<u64>>) -> Vec<Option<u64>> {
        self.relations.follow(sizes, |slot| self.slots[slot].bound)
    }

    /// Returns all sizes with defaults for open ones. Defaults go to the parts first, then to the
    /// past, so that the rest follows.
    pub(super) fn settled(&self) -> Vec<Option<u64>> {
        let mut sizes = self.follow(self.sizes());
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|slot| {
            let is_past = self.slots[*slot].label.starts_with(PAST_PREFIX);
            (self.relations.defines(*slot), is_past)
        });
        for slot in order {
            if sizes[slot].is_none() {
                sizes[slot] = Some(self.slots[slot].default_size());
                sizes = self.follow(sizes);
            }
        }
        sizes
    }

    /// Sets an axis to size 0, unless its size is known.
    pub(super) fn empty(&mut self, input: usize, axis: usize) -> Result<(), InputError> {
        let size = self.axes[input].as_ref().and_then(|axes| axes.get(axis));
        match size {
            Some(AxisSize::Slot(slot)) if self.slots[*slot].size.is_none() => {
                self.fix(*slot, 0, "an empty beginning")
            }
            _ => Ok(()),
        }
    }

    /// Checks a tensor's dtype and shape against an input. Its sizes are assigned to open
    /// dimensions.
    pub(super) fn fit(
        &mut self,
        input: usize,
        dtype: DType,
        shape: &[u64],
        origin: &str,
    ) -> Result<(), InputError> {
        let expected = self.signature.inputs[input].dtype;
        if dtype != expected {
            return Err(InputError::DType {
                place: InputLabel::of(self.signature, input).into(),
                origin: origin.to_owned(),
                found: dtype,
                help: conversion(expected),
            });
        }
        let Some(axes) = self.axes[input].clone() else {
            return Ok(());
        };
        let shape_error = |reason: String, help: &str| InputError::Shape {
            place: InputLabel::of(self.signature, input).into(),
            origin: origin.to_owned(),
            found: shape.to_vec(),
            reason,
            help: help.to_owned(),
        };
        if axes.len() != shape.len() {
            let reason = format!("{} dimensions instead of {}", shape.len(), axes.len());
            return Err(shape_error(reason, "reshape it to the expected dimensions"));
        }
        for (axis, (expected, size)) in axes.iter().zip(shape).enumerate() {
            let bound = match expected {
                AxisSize::Fixed(fixed) if fixed != size => {
                    let reason = format!("dimension {axis} is {size} instead of {fixed}");
                    return Err(shape_error(reason, "give a tensor of the expected shape"));
                }
                AxisSize::Fixed(_) => None,
                AxisSize::Slot(slot) => self.slots[*slot].bound,
            };
            if let Some(bound) = bound.filter(|bound| bound < size) {
                let reason =
                    format!("dimension {axis} is {size}, above the model's bound of {bound}");
                return Err(shape_error(reason, "give a smaller tensor"));
            }
            if let Some(allowed) = self.refusal(*expected, *size) {
                let reason = format!(
                    "dimension {axis} is {size}, but the model declares sizes of {allowed}"
                );
                return Err(shape_error(reason, "give a tensor of such a size"));
            }
        }
        let name = format!(
            "input {input} `{}` ({origin})",
            self.signature.inputs[input].name
        );
        for (expected, size) in axes.iter().zip(shape) {
            if let AxisSize::Slot(slot) = expected {
                self.fix(*slot, *size, &name)?;
            }
        }
        Ok(())
    }

    /// Returns the axes of an input; `None` if its rank is unknown.
    pub(super) fn axes(&self, input: usize) -> Option<&[AxisSize]> {
        self.axes[input].as_deref()
    }

    /// Returns the size of an axis if the model fixes it.
    pub(super) fn fixed(&self, size: AxisSize) -> Option<u64> {
        match size {
            AxisSize::Fixed(size) => Some(size),
            AxisSize::Slot(slot) => {
                let slot = &self.slots[slot];
                slot.bound.filter(|_| !slot.listed && slot.size.is_none())
            }
        }
    }

    /// Returns the size of an axis, if it is known by now.
    pub(super) fn known(&self, size: AxisSize) -> Option<u64> {
        match size {
            AxisSize::Fixed(size) => Some(size),
            AxisSize::Slot(slot) => self.slots[slot].size.as_ref().map(|(size, _)| *size),
        }
    }

    /// Returns the size of an axis or its default. Defaults in order: a derived size, the size of
    /// the same axis with the same bound elsewhere, the largest declared size, the upper bound, 1.
    pub(super) fn or_default(&self, size: AxisSize) -> u64 {
        if let Some(known) = self.known(size) {
            return known;
        }
        let AxisSize::Slot(slot) = size else {
            return 1;
        };
        let settled = if self.relations.involves(slot) {
            self.settled()[slot]
        } else {
            self.twin(slot)
        };
        settled.unwrap_or_else(|| self.slots[slot].default_size())
    }

    /// Returns the declaration of an axis that excludes this size, if any.
    fn refusal(&self, axis: AxisSize, size: u64) -> Option<&Allowed> {
        match axis {
            AxisSize::Fixed(_) => None,
            AxisSize::Slot(slot) => self.slots[slot].excluding_declaration(size),
        }
    }

    /// Returns the common size of dimensions with the same bound on the same axis of other inputs.
    /// Programs have no symbols, so equal bounds are the best evidence for equal sizes.
    fn twin(&self, slot: usize) -> Option<u64> {
        let own = &self.slots[slot];
        own.bound?;
        let twins = self.slots.iter().filter(|slot| {
            slot.listed && own.listed && (slot.bound, slot.axis) == (own.bound, own.axis)
        });
        let mut sizes = twins.filter_map(|slot| slot.size.as_ref().map(|(size, _)| *size));
        let first = sizes.next()?;
        sizes.all(|size| size == first).then_some(first)
    }

    /// Returns the upper bound of an open axis.
    pub(super) fn bound(&self, size: AxisSize) -> Option<u64> {
        match size {
            AxisSize::Fixed(_) => None,
            AxisSize::Slot(slot) => self.slots[slot].bound,
        }
    }

    /// Returns whether an axis is certainly or most likely dynamic.
    pub(super) fn is_open(&self, size: AxisSize) -> bool {
        matches!(size, AxisSize::Slot(slot) if self.slots[slot].listed)
    }

    /// Returns the dynamic dimensions without a size, except for those that follow from others.
    pub(super) fn open(&self) -> Vec<OpenDim> {
        let open = |(place, slot): &(usize, &DimSlot)| {
            slot.listed && slot.size.is_none() && !self.relations.defines(*place)
        };
        let slots = self.slots.iter().enumerate().filter(open);
        slots
            .map(|(_, slot)| OpenDim {
                label: slot.label.clone(),
                bound: slot.bound,
                allowed: slot.allowed.clone(),
            })
            .collect()
    }

    /// Returns the name of an open axis; empty for a fixed one.
    pub(super) fn label(&self, size: AxisSize) -> &str {
        match size {
            AxisSize::Fixed(_) => "",
            AxisSize::Slot(slot) => &self.slots[slot].label,
        }
    }
}

/// Returns the advice to convert an array to this dtype.
fn conversion(dtype: DType) -> String {
    if dtype == DType::Bfloat16 {
        return "give its raw 16 bits as uint16 (`.npy` of `<u2` or `|V2`); values are not rounded automatically"
            .to_owned();
    }
    format!("convert it, for example with NumPy's `array.astype(\"{dtype}\")`")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::TensorSpec;

    fn signature() -> Signature {
        let symbol = |name: &str| Dim::Dynamic {
            bound: None,
            name: Some(name.to_owned()),
            allowed: None,
        };
        let bounded = Dim::Dynamic {
            bound: Some(16),
            name: None,
            allowed: None,
        };
        let maybe = Dim::Maybe {
            bound: 8,
            likely_dynamic: false,
        };
        let input = |name: &str, dims: Vec<Dim>| TensorSpec {
            name: name.to_owned(),
            dtype: DType::Float32,
            dims: Some(dims),
            fixed: None,
            pixels: None,
        };
        Signature {
            method: "forward".to_owned(),
            inputs: vec![
                input("a", vec![symbol("batch"), Dim::Fixed(3)]),
                input("b", vec![symbol("batch"), bounded, maybe]),
                input("c", vec![symbol("?"), symbol("?")]),
            ],
            outputs: Vec::new(),
        }
    }

    fn sizes(dims: &DimSizes, input: usize) -> Vec<u64> {
        let axes = dims.axes(input).expect("the rank is known");
        axes.iter().map(|axis| dims.or_default(*axis)).collect()
    }

    #[test]
    fn a_symbol_is_one_dimension() {
        let signature = signature();
        let mut dims = DimSizes::of(&signature);
        assert_eq!(sizes(&dims, 0), [1, 3]);
        assert_eq!(sizes(&dims, 1), [1, 16, 8]);
        dims.set("batch=4").expect("it is a symbol");
        dims.set("1=2").expect("b[1] is the second open one");
        dims.set("b[2]=7").expect("it may be dynamic");
        dims.set("2[0]=0").expect("zero is a size");
        assert_eq!(sizes(&dims, 0), [4, 3]);
        assert_eq!(sizes(&dims, 1), [4, 2, 7]);
        assert_eq!(sizes(&dims, 2), [0, 1], "`?` says nothing of equality");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let signature = signature();
        for (text, reason) in [
            ("batch", "missing `=`"),
            ("batch=-1", "invalid size `-1`"),
            ("bacth=1", "did you mean `batch`?"),
            ("a[1]=4", "always 3"),
            ("b[1]=17", "bound is 16"),
            ("9=1", "unknown open dimension 9"),
            ("a[7]=1", "unknown dimension `a[7]`"),
        ] {
            let error = DimSizes::of(&signature)
                .set(text)
                .expect_err(text)
                .to_string();
            assert!(error.contains(reason), "{text}: {error}");
            assert!(error.contains("0 `batch`, 1 `b[1]` (up to 16)"), "{error}");
        }
        let mut dims = DimSizes::of(&signature);
        assert!(dims.set("a[1]=3").is_ok());
        assert!(dims.set("a[0]=3").is_ok());
        let error = dims.set("batch=4").expect_err("it is 3").to_string();
        assert!(
            error.contains("`--dim a[0]=3`") || error.contains("--dim a[0]=3"),
            "{error}"
        );
    }

    #[test]
    fn sizes_are_those_that_the_model_declares() {
        let mut signature = signature();
        let dims = signature.inputs[1].dims.as_mut().expect("a rank");
        dims[1] = Dim::Dynamic {
            bound: Some(16),
            name: None,
            allowed: Allowed::range(2, 15, 4, 16),
        };
        let mut dims = DimSizes::of(&signature);
        assert_eq!(sizes(&dims, 1), [1, 14, 8]);
        let error = dims.set("1=1").expect_err("less than 2").to_string();
        let reason = "the model declares sizes of 2 to 14 in steps of 4";
        assert!(error.contains(reason), "{error}");
        let float = DType::Float32;
        let error = dims.fit(1, float, &[1, 1, 8], "b.npy").expect_err("1");
        let reason = "dimension 1 is 1, but the model declares sizes of 2 to 14 in steps of 4";
        assert!(error.to_string().contains(reason), "{error}");
        assert!(dims.fit(1, float, &[1, 5, 8], "b.npy").is_err());
        assert_eq!(dims.fit(1, float, &[1, 6, 8], "b.npy"), Ok(()));
    }

    #[test]
    fn tensors_have_to_agree() {
        let signature = signature();
        let mut dims = DimSizes::of(&signature);
        let float = DType::Float32;
        assert_eq!(dims.fit(0, float, &[5, 3], "a.npy"), Ok(()));
        assert_eq!(sizes(&dims, 1), [5, 16, 8]);
        let error = dims.fit(1, float, &[4, 16, 8], "b.npy").expect_err("5");
        assert_eq!(
            error.to_string(),
            "dimension `batch` is 5 by input 0 `a` (a.npy) and 4 by input 1 `b` (b.npy); \
             give it one size everywhere"
        );
        for shape in [&[5, 17, 8][..], &[5, 16, 9], &[5, 16]] {
            let error = dims.fit(1, float, shape, "b.npy").expect_err("no fit");
            assert!(matches!(error, InputError::Shape { .. }), "{error}");
        }
        let error = dims.fit(0, DType::Int8, &[5, 3], "x").expect_err("no fit");
        assert!(matches!(error, InputError::DType { .. }), "{error}");
    }
}
