//! How values of a program are held, and how operations read their arguments.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::constant::first_float;
use super::{Lowering, Value};
use crate::model::executorch::coreml::{Argument, Content, Operation};
use crate::tensor::DType;

/// A value.
#[derive(Debug, Clone)]
pub(super) enum Held {
    /// A tensor.
    Tensor(Wire),
    /// Integers of sizes that perhaps only a run knows: a number, or a list of them.
    Sizes {
        /// The integers.
        sizes: Vec<TDim>,
        /// Whether it is a number, and no list of one.
        is_number: bool,
    },
    /// A constant whose elements were not needed as a tensor yet.
    Constant(Value),
}

impl Lowering<'_, '_, '_> {
    /// The arguments of this name, each as it is held; empty where there are none.
    pub(super) fn all(&self, operation: &Operation, name: &str) -> TractResult<Vec<Held>> {
        let Some(arguments) = operation.inputs.get(name) else {
            // Packed weights of iOS16 stand beside the arguments.
            let attribute = operation.attributes.get(name);
            return Ok(attribute.cloned().map(Held::Constant).into_iter().collect());
        };
        let held = arguments.iter().map(|argument| match argument {
            Argument::Value(value) => Ok(Held::Constant(value.clone())),
            Argument::Name(name) => {
                let held = self.values.get(name).cloned();
                held.with_context(|| format!("nothing gives `{name}`"))
            }
        });
        held.collect()
    }

    /// An argument, if it is given.
    pub(super) fn optional(&self, operation: &Operation, name: &str) -> TractResult<Option<Held>> {
        Ok(self.all(operation, name)?.into_iter().next())
    }

    /// An argument.
    pub(super) fn held_arg(&self, operation: &Operation, name: &str) -> TractResult<Held> {
        let held = self.optional(operation, name)?;
        held.with_context(|| format!("the argument `{name}` is missing"))
    }

    /// A value as a tensor.
    pub(super) fn wire(&mut self, held: &Held) -> TractResult<Wire> {
        match held {
            Held::Tensor(wire) => Ok(*wire),
            Held::Constant(value) => self.constant(value),
            Held::Sizes { sizes, is_number } => {
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

    /// A named value as a tensor.
    pub(super) fn named(&mut self, name: &str) -> TractResult<Wire> {
        let held = self.values.get(name).cloned();
        let held = held.with_context(|| format!("nothing gives `{name}`"))?;
        self.wire(&held)
    }

    /// An argument as a tensor. Constants are made a tensor once.
    pub(super) fn tensor(&mut self, operation: &Operation, name: &str) -> TractResult<Wire> {
        let held = self.held_arg(operation, name)?;
        let wire = self.wire(&held)?;
        if let (Held::Constant(_), Some([Argument::Name(constant)])) =
            (&held, operation.inputs.get(name).map(Vec::as_slice))
        {
            self.values.insert(constant.clone(), Held::Tensor(wire));
        }
        Ok(wire)
    }

    /// An argument as a tensor, if it is given.
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

    /// How many dimensions a value has.
    pub(super) fn rank_of(&self, held: &Held) -> TractResult<usize> {
        match held {
            Held::Sizes { is_number, .. } => Ok(usize::from(!is_number)),
            Held::Constant(value) => Ok(value.ty.dims.len()),
            Held::Tensor(wire) => self.frame.builder.rank(wire.outlet),
        }
    }

    /// Integers that a number or a list is, if they are known before the run or are sizes; nothing for a value of
    /// more dimensions, whose shape a list would lose.
    pub(super) fn as_sizes(&self, held: &Held) -> TractResult<Option<Vec<TDim>>> {
        if self.rank_of(held)? > 1 {
            return Ok(None);
        }
        self.sizes_of(held)
    }

    /// Integers that a value is, if they are known before the run, or are sizes.
    pub(super) fn sizes_of(&self, held: &Held) -> TractResult<Option<Vec<TDim>>> {
        let ints = |ints: &[i64]| Some(ints.iter().map(ToDim::to_dim).collect());
        Ok(match held {
            Held::Sizes { sizes, .. } => Some(sizes.clone()),
            Held::Constant(value) => match &value.content {
                Content::Ints(values) => {
                    // Zeros are absent where all of them are.
                    let count = usize::try_from(value.ty.count().unwrap_or(0))?;
                    if values.is_empty() && count > 0 && count < 64 {
                        Some(vec![TDim::Val(0); count])
                    } else {
                        ints(values)
                    }
                }
                Content::Bytes(_) => Some(
                    self.elements(value)?
                        .into_iter()
                        .map(|x| x.to_dim())
                        .collect(),
                ),
                _ => None,
            },
            Held::Tensor(wire) => {
                let known = self.frame.builder.known(wire.outlet)?;
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

    /// Sizes of a list, if they are given.
    pub(super) fn sizes(
        &self,
        operation: &Operation,
        name: &str,
    ) -> TractResult<Option<Vec<TDim>>> {
        let Some(held) = self.optional(operation, name)? else {
            return Ok(None);
        };
        let sizes = self.sizes_of(&held)?;
        let sizes =
            sizes.with_context(|| format!("`{name}` is only known when the program runs"))?;
        Ok(Some(sizes))
    }

    /// Integers of a list, if they are given.
    pub(super) fn ints(&self, operation: &Operation, name: &str) -> TractResult<Option<Vec<i64>>> {
        let sizes = self.sizes(operation, name)?;
        let ints = sizes.map(|sizes| sizes.iter().map(|size| Ok(size.to_i64()?)).collect());
        ints.transpose()
    }

    /// An integer, or what it is by default.
    pub(super) fn int(&self, operation: &Operation, name: &str, default: i64) -> TractResult<i64> {
        let ints = self.ints(operation, name)?;
        Ok(ints
            .and_then(|ints| ints.first().copied())
            .unwrap_or(default))
    }

    /// A number, or what it is by default.
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

    /// A number that is known.
    #[expect(clippy::cast_precision_loss, reason = "such numbers are small")]
    fn number(&self, held: &Held) -> TractResult<f64> {
        Ok(match held {
            Held::Constant(value) => match &value.content {
                Content::Floats(floats) => floats.first().copied().unwrap_or(0.0),
                Content::Ints(ints) => ints.first().copied().unwrap_or(0) as f64,
                Content::Bytes(bytes) => first_float(value, bytes)?,
                _ => bail!("a constant that is no number"),
            },
            Held::Sizes { sizes, .. } => match sizes.first() {
                Some(size) => size.to_i64()? as f64,
                None => bail!("no number"),
            },
            Held::Tensor(wire) => {
                let known = self.frame.builder.known(wire.outlet)?;
                let known = known.context("a number is only known when the program runs")?;
                known.cast_to_scalar::<f64>()?
            }
        })
    }

    /// Booleans of a list; empty where there are none.
    pub(super) fn bools(&self, operation: &Operation, name: &str) -> TractResult<Vec<bool>> {
        match self.optional(operation, name)? {
            None => Ok(Vec::new()),
            Some(Held::Constant(value)) => match value.content {
                Content::Bools(bools) if bools.is_empty() => {
                    let count = value.ty.count().unwrap_or(0).min(64);
                    Ok(vec![false; usize::try_from(count)?])
                }
                Content::Bools(bools) => Ok(bools),
                _ => bail!("`{name}` is no boolean"),
            },
            Some(_) => bail!("`{name}` is only known when the program runs"),
        }
    }

    /// A boolean, or what it is by default.
    pub(super) fn bool(
        &self,
        operation: &Operation,
        name: &str,
        default: bool,
    ) -> TractResult<bool> {
        let bools = self.bools(operation, name)?;
        Ok(bools.first().copied().unwrap_or(default))
    }

    /// A text, or what it is by default.
    pub(super) fn text(
        &self,
        operation: &Operation,
        name: &str,
        default: &str,
    ) -> TractResult<String> {
        match self.optional(operation, name)? {
            None => Ok(default.to_owned()),
            Some(Held::Constant(Value {
                content: Content::Texts(texts),
                ..
            })) => Ok(texts.into_iter().next().unwrap_or_default()),
            Some(_) => bail!("`{name}` is no text"),
        }
    }

    /// A dimension of so many, which may be counted from the end.
    pub(super) fn axis(
        &self,
        operation: &Operation,
        name: &str,
        rank: usize,
    ) -> TractResult<usize> {
        axis_of(self.int(operation, name, 0)?, rank)
    }

    /// Dimensions; nothing where none are given.
    pub(super) fn axes(
        &self,
        operation: &Operation,
        rank: usize,
    ) -> TractResult<Option<Vec<usize>>> {
        let axes = self.ints(operation, "axes")?;
        let axes = axes.map(|axes| axes.into_iter().map(|axis| axis_of(axis, rank)).collect());
        axes.transpose()
    }

    /// The shape of a tensor.
    pub(super) fn shape(&self, wire: Wire) -> TractResult<Vec<TDim>> {
        self.frame.builder.shape(wire.outlet)
    }
}

/// A dimension of `rank` many, which may be counted from the end.
pub(super) fn axis_of(axis: i64, rank: usize) -> TractResult<usize> {
    let count = i64::try_from(rank)?;
    ensure!(
        -count <= axis && axis < count,
        "{axis} is none of {rank} dimensions"
    );
    Ok(usize::try_from(if axis < 0 { axis + count } else { axis })?)
}
