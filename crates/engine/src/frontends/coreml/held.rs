//! Representation of values in a Core ML program, and access to the arguments of operations.

use tract_onnx::tract_core::internal::*;

use super::constant::first_float;
use super::{CoremlLowering, Results, TypedValue};
use crate::graph::builder::{Wire, axes_of, axis_of};
use crate::tensor::DType;
use pkgtool_model::executorch::coreml::{Argument, Operation, ValueContent};

/// A value of a Core ML program.
#[derive(Debug, Clone)]
pub(super) enum CoremlOperand {
    /// A tensor.
    Tensor(Wire),
    /// Integers that may depend on sizes known only at run time: a number or a list.
    Sizes {
        /// The integers.
        sizes: Vec<TDim>,
        /// Whether this is a number. A list with one element is not.
        is_number: bool,
    },
    /// A constant that has not been needed as a tensor yet.
    Constant(TypedValue),
}

impl CoremlLowering<'_, '_> {
    /// Returns the values of an argument; a missing argument is empty.
    pub(super) fn all(&self, operation: &Operation, name: &str) -> Results {
        let Some(arguments) = operation.inputs.get(name) else {
            // The packed weights of iOS16 are stored in attributes instead of arguments.
            let attribute = operation.attributes.get(name);
            return Ok(attribute
                .cloned()
                .map(CoremlOperand::Constant)
                .into_iter()
                .collect());
        };
        let held = arguments.iter().map(|argument| match argument {
            Argument::Value(value) => Ok(CoremlOperand::Constant(value.clone())),
            Argument::Name(name) => {
                let held = self.values.get(name).cloned();
                held.with_context(|| format!("value `{name}` is not computed"))
            }
        });
        held.collect()
    }

    /// Returns an argument, if it is present.
    pub(super) fn optional(
        &self,
        operation: &Operation,
        name: &str,
    ) -> TractResult<Option<CoremlOperand>> {
        Ok(self.all(operation, name)?.into_iter().next())
    }

    /// Returns an argument.
    pub(super) fn held_arg(&self, operation: &Operation, name: &str) -> TractResult<CoremlOperand> {
        let held = self.optional(operation, name)?;
        held.with_context(|| format!("missing argument `{name}`"))
    }

    /// Returns a value as a tensor.
    pub(super) fn wire(&mut self, held: &CoremlOperand) -> TractResult<Wire> {
        match held {
            CoremlOperand::Tensor(wire) => Ok(*wire),
            CoremlOperand::Constant(value) => self.constant(value),
            CoremlOperand::Sizes { sizes, is_number } => {
                let dtype = DType::Int32;
                let builder = &mut self.frame.builder;
                if sizes.is_empty() {
                    let none = Tensor::zero::<i32>(&[0])?;
                    return builder.constant(none.into_arc_tensor(), dtype);
                }
                let mut parts = Vec::new();
                for size in sizes {
                    let part = builder.size(size, dtype)?;
                    parts.push(if *is_number {
                        part
                    } else {
                        builder.with_rank(part, 1)?
                    });
                }
                let outlet = builder.concat(&parts, 0)?;
                Ok(Wire { outlet, dtype })
            }
        }
    }

    /// Returns a named value as a tensor.
    pub(super) fn named(&mut self, name: &str) -> TractResult<Wire> {
        let held = self.values.get(name).cloned();
        let held = held.with_context(|| format!("value `{name}` is not computed"))?;
        self.wire(&held)
    }

    /// Returns an argument as a tensor. Each constant is converted only once.
    pub(super) fn tensor(&mut self, operation: &Operation, name: &str) -> TractResult<Wire> {
        let held = self.held_arg(operation, name)?;
        let wire = self.wire(&held)?;
        if let (CoremlOperand::Constant(_), Some([Argument::Name(constant)])) =
            (&held, operation.inputs.get(name).map(Vec::as_slice))
        {
            self.values
                .insert(constant.clone(), CoremlOperand::Tensor(wire));
        }
        Ok(wire)
    }

    /// Returns two arguments as tensors.
    pub(super) fn pair(
        &mut self,
        operation: &Operation,
        names: [&str; 2],
    ) -> TractResult<[Wire; 2]> {
        let [a, b] = names.map(|name| self.tensor(operation, name));
        Ok([a?, b?])
    }

    /// Returns an argument as a tensor, if it is present.
    pub(super) fn optional_tensor(
        &mut self,
        operation: &Operation,
        name: &str,
    ) -> TractResult<Option<Wire>> {
        if self.all(operation, name)?.is_empty() {
            return Ok(None);
        }
        self.tensor(operation, name).map(Some)
    }

    /// Returns the number of dimensions of a value.
    pub(super) fn rank_of(&self, held: &CoremlOperand) -> TractResult<usize> {
        match held {
            CoremlOperand::Sizes { is_number, .. } => Ok(usize::from(!is_number)),
            CoremlOperand::Constant(value) => Ok(value.ty.dims.len()),
            CoremlOperand::Tensor(wire) => self.frame.builder.rank(wire.outlet),
        }
    }

    /// Returns the integers of a number or list, if they are known before the run or are sizes.
    ///
    /// Returns `None` for values with more dimensions, whose shape would get lost in a list.
    pub(super) fn as_sizes(&self, held: &CoremlOperand) -> TractResult<Option<Vec<TDim>>> {
        if self.rank_of(held)? > 1 {
            return Ok(None);
        }
        self.sizes_of(held)
    }

    /// Returns the integers of a value, if they are known before the run or are sizes.
    pub(super) fn sizes_of(&self, held: &CoremlOperand) -> TractResult<Option<Vec<TDim>>> {
        let ints = |ints: &[i64]| Some(ints.iter().map(ToDim::to_dim).collect());
        Ok(match held {
            CoremlOperand::Sizes { sizes, .. } => Some(sizes.clone()),
            CoremlOperand::Constant(value) => match &value.content {
                ValueContent::Ints(values) => {
                    // An all-zero constant has no stored elements.
                    let count = usize::try_from(value.ty.count().unwrap_or(0))?;
                    if values.is_empty() && count > 0 && count < 64 {
                        Some(vec![TDim::Val(0); count])
                    } else {
                        ints(values)
                    }
                }
                ValueContent::Bytes(_) => Some(
                    self.elements(value)?
                        .into_iter()
                        .map(|x| x.to_dim())
                        .collect(),
                ),
                _ => None,
            },
            CoremlOperand::Tensor(wire) => {
                let known = self.frame.builder.constant_value(wire.outlet)?;
                let known = known.filter(|known| known.len() < 64 && !wire.dtype.is_float());
                known
                    .map(|known| -> TractResult<Vec<TDim>> {
                        let known = known.cast_to::<i64>()?;
                        let view = known.try_as_plain_ram()?;
                        let values = view.as_slice::<i64>()?;
                        Ok(values.iter().map(ToDim::to_dim).collect())
                    })
                    .transpose()?
            }
        })
    }

    /// Returns the sizes of a list, if it is present.
    pub(super) fn sizes(
        &self,
        operation: &Operation,
        name: &str,
    ) -> TractResult<Option<Vec<TDim>>> {
        let Some(held) = self.optional(operation, name)? else {
            return Ok(None);
        };
        let sizes = self.sizes_of(&held)?;
        let sizes = sizes.with_context(|| format!("`{name}` is known only at run time"))?;
        Ok(Some(sizes))
    }

    /// Returns the integers of a list, if it is present.
    pub(super) fn ints(&self, operation: &Operation, name: &str) -> TractResult<Option<Vec<i64>>> {
        let sizes = self.sizes(operation, name)?;
        let ints = sizes.map(|sizes| sizes.iter().map(|size| Ok(size.to_i64()?)).collect());
        ints.transpose()
    }

    /// Returns the integers of a list that must be present.
    pub(super) fn required_ints(&self, operation: &Operation, name: &str) -> TractResult<Vec<i64>> {
        let ints = self.ints(operation, name)?;
        ints.with_context(|| format!("missing argument `{name}`"))
    }

    /// Returns an integer, or its default.
    pub(super) fn int(&self, operation: &Operation, name: &str, default: i64) -> TractResult<i64> {
        let ints = self.ints(operation, name)?;
        Ok(ints
            .and_then(|ints| ints.first().copied())
            .unwrap_or(default))
    }

    /// Returns a number, or its default.
    pub(super) fn float(
        &self,
        operation: &Operation,
        name: &str,
        default: f64,
    ) -> TractResult<f64> {
        match self.optional(operation, name)? {
            None => Ok(default),
            Some(held) => self.number(&held),
        }
    }

    /// Returns a number known before the run.
    #[expect(clippy::cast_precision_loss, reason = "such numbers are small")]
    fn number(&self, held: &CoremlOperand) -> TractResult<f64> {
        Ok(match held {
            CoremlOperand::Constant(value) => match &value.content {
                ValueContent::Floats(floats) => floats.first().copied().unwrap_or(0.0),
                ValueContent::Ints(ints) => ints.first().copied().unwrap_or(0) as f64,
                ValueContent::Bytes(bytes) => first_float(value, bytes)?,
                _ => bail!("expected a number, got another constant"),
            },
            CoremlOperand::Sizes { sizes, .. } => match sizes.first() {
                Some(size) => size.to_i64()? as f64,
                None => bail!("expected a number, got an empty list"),
            },
            CoremlOperand::Tensor(wire) => {
                let known = self.frame.builder.constant_value(wire.outlet)?;
                let known = known.context("a number is known only at run time")?;
                known.cast_to_scalar::<f64>()?
            }
        })
    }

    /// Returns the booleans of a list; a missing list is empty.
    pub(super) fn bools(&self, operation: &Operation, name: &str) -> TractResult<Vec<bool>> {
        match self.optional(operation, name)? {
            None => Ok(Vec::new()),
            Some(CoremlOperand::Constant(value)) => match value.content {
                ValueContent::Bools(bools) if bools.is_empty() => {
                    let count = value.ty.count().unwrap_or(0).min(64);
                    Ok(vec![false; usize::try_from(count)?])
                }
                ValueContent::Bools(bools) => Ok(bools),
                _ => bail!("`{name}` is not a boolean"),
            },
            Some(_) => bail!("`{name}` is known only at run time"),
        }
    }

    /// Returns a boolean, or its default.
    pub(super) fn bool(
        &self,
        operation: &Operation,
        name: &str,
        default: bool,
    ) -> TractResult<bool> {
        let bools = self.bools(operation, name)?;
        Ok(bools.first().copied().unwrap_or(default))
    }

    /// Returns a text, or its default.
    pub(super) fn text(
        &self,
        operation: &Operation,
        name: &str,
        default: &str,
    ) -> TractResult<String> {
        match self.optional(operation, name)? {
            None => Ok(default.to_owned()),
            Some(CoremlOperand::Constant(TypedValue {
                content: ValueContent::Texts(texts),
                ..
            })) => Ok(texts.into_iter().next().unwrap_or_default()),
            Some(_) => bail!("`{name}` is not a text"),
        }
    }

    /// Returns one of `rank` dimensions; negative numbers count from the end.
    pub(super) fn axis(
        &self,
        operation: &Operation,
        name: &str,
        rank: usize,
    ) -> TractResult<usize> {
        axis_of(self.int(operation, name, 0)?, rank)
    }

    /// Returns dimensions, or `None` if the argument is missing.
    pub(super) fn axes(
        &self,
        operation: &Operation,
        rank: usize,
    ) -> TractResult<Option<Vec<usize>>> {
        let axes = self.ints(operation, "axes")?;
        axes.map(|axes| axes_of(&axes, rank)).transpose()
    }

    /// Returns the shape of a tensor.
    pub(super) fn shape(&self, wire: Wire) -> TractResult<Vec<TDim>> {
        self.frame.builder.shape(wire.outlet)
    }
}
