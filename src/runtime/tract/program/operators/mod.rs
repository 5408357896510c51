//! Portable operators by their full names, and how a call's arguments are read.
//!
//! One file a theme; a function an operator, or a family of them. A function reads its arguments by
//! their place in the operator's schema and gives its outputs; the schemas are those of PyTorch.

mod arithmetic;
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
mod quantized;
mod rearrange;
mod reduce;
mod shape;
mod symbolic;
mod window;

use tract_onnx::tract_core::internal::*;

pub(super) use elements::{broadcast_strides, places};

use elements::Indices;
pub(super) use neural::einsum;

use super::super::guard::{Failure, guarded};
use super::builder::Wire;
use super::method::{Frame, Number, Slot};
use crate::model::executorch::body::BodyValue;
use crate::runtime::DType;

/// Lowers one call.
type Lower = fn(&mut Call<'_, '_>) -> TractResult<()>;

/// The themes, each with the operators it knows.
const THEMES: [fn(&str) -> Option<Lower>; 17] = [
    arithmetic::find,
    compare::find,
    create::find,
    function::find,
    image::find,
    index::find,
    language::find,
    neural::find,
    normal::find,
    order::find,
    part::find,
    quantized::find,
    rearrange::find,
    reduce::find,
    shape::find,
    symbolic::find,
    window::find,
];

fn find(name: &str) -> Option<Lower> {
    THEMES.iter().find_map(|theme| theme(name))
}

/// Whether an operator of this name can be lowered.
pub(super) fn is_known(name: &str) -> bool {
    find(name).is_some()
}

/// Lowers a call of the operator of this name.
pub(super) fn call(frame: &mut Frame<'_>, name: &str, args: &[usize]) -> Result<(), Failure> {
    let Some(lower) = find(name) else {
        return Err(Failure::new("not supported"));
    };
    guarded(|| lower(&mut Call { frame, name, args }))
}

/// A call that is being lowered.
struct Call<'f, 'm> {
    frame: &'f mut Frame<'m>,
    /// The operator's full name.
    name: &'f str,
    args: &'f [usize],
}

impl Call<'_, '_> {
    fn arg(&self, at: usize) -> TractResult<usize> {
        let Some(value) = self.args.get(at) else {
            bail!("argument {at} is missing");
        };
        Ok(*value)
    }

    fn slot(&mut self, at: usize) -> TractResult<Slot> {
        let value = self.arg(at)?;
        self.frame.slot(value)
    }

    fn body(&self, at: usize) -> TractResult<&BodyValue> {
        Ok(&self.frame.method.values[self.arg(at)?])
    }

    /// A tensor.
    fn tensor(&mut self, at: usize) -> TractResult<Wire> {
        let value = self.arg(at)?;
        self.frame.tensor(value)
    }

    /// A tensor as one of this dtype.
    fn tensor_as(&mut self, at: usize, dtype: DType) -> TractResult<OutletId> {
        let wire = self.tensor(at)?;
        Ok(self.frame.builder.cast(wire, dtype)?.outlet)
    }

    /// How indices of a dimension are checked. `from_end` allows those that are counted from the end.
    fn indices(&self, from_end: bool) -> Indices {
        Indices::new(self.name, from_end)
    }

    /// Indices of a dimension of this size as ones that count from its beginning. What is outside
    /// of it is refused when it runs.
    fn checked(&mut self, outlet: OutletId, size: &TDim, from_end: bool) -> TractResult<OutletId> {
        let indices = self.indices(from_end);
        let builder = &mut self.frame.builder;
        let shape = builder.shape(outlet)?;
        let size = builder.size(size, DType::Int64)?;
        let inputs = [outlet, size];
        let check = move |inputs: &[TValue]| {
            let size = usize::try_from(inputs[1].cast_to_scalar::<i64>()?)?;
            let mut checked = inputs[0].clone().into_tensor();
            let mut view = checked.try_as_plain_ram_mut()?;
            for index in view.as_slice_mut::<i64>()? {
                *index = i64::try_from(indices.place(*index, size)?)?;
            }
            Ok(checked)
        };
        Ok(builder
            .kernel("Indices", DType::Int64, &shape, &inputs, check)?
            .outlet)
    }

    /// A tensor, if one is given.
    fn optional_tensor(&mut self, at: usize) -> TractResult<Option<Wire>> {
        match self.body(at)? {
            BodyValue::Null => Ok(None),
            _ => self.tensor(at).map(Some),
        }
    }

    /// Tensors of a list.
    fn tensors(&mut self, at: usize) -> TractResult<Vec<Wire>> {
        let values = match self.body(at)? {
            BodyValue::TensorList(values) => values.clone(),
            _ => bail!("argument {at} is no list of tensors"),
        };
        let tensors = values.into_iter().map(|value| self.frame.tensor(value));
        tensors.collect()
    }

    /// Tensors of a list, some of them none.
    fn optional_tensors(&mut self, at: usize) -> TractResult<Vec<Option<Wire>>> {
        let values = match self.body(at)? {
            BodyValue::OptionalTensorList(values) => values.clone(),
            BodyValue::TensorList(values) => values.iter().copied().map(Some).collect(),
            _ => bail!("argument {at} is no list of tensors"),
        };
        let mut tensors = Vec::new();
        for value in values {
            let missing = value
                .is_none_or(|value| matches!(self.frame.method.values[value], BodyValue::Null));
            tensors.push(match value {
                Some(value) if !missing => Some(self.frame.tensor(value)?),
                _ => None,
            });
        }
        Ok(tensors)
    }

    /// Whether nothing is given.
    fn is_none(&mut self, at: usize) -> TractResult<bool> {
        Ok(matches!(self.body(at)?, BodyValue::Null))
    }

    /// A size or another integer, perhaps of sizes that only a run knows.
    fn dim(&mut self, at: usize) -> TractResult<TDim> {
        match self.slot(at)? {
            Slot::Int(value) => Ok(value),
            Slot::Bool(value) => Ok(i64::from(value).to_dim()),
            Slot::Number(_) => bail!("argument {at} is only known when the program runs"),
            _ => bail!("argument {at} is no integer"),
        }
    }

    /// An integer.
    fn int(&mut self, at: usize) -> TractResult<i64> {
        let dim = self.dim(at)?;
        Ok(dim.to_i64()?)
    }

    /// An integer, if one is given.
    fn optional_int(&mut self, at: usize) -> TractResult<Option<i64>> {
        Ok(if self.is_none(at)? {
            None
        } else {
            Some(self.int(at)?)
        })
    }

    /// A number.
    #[expect(clippy::cast_precision_loss, reason = "such numbers are small")]
    fn double(&mut self, at: usize) -> TractResult<f64> {
        Ok(match self.slot(at)? {
            Slot::Int(value) => value.to_i64()? as f64,
            Slot::Double(value) => value,
            Slot::Bool(value) => f64::from(u8::from(value)),
            Slot::Number(_) => bail!("argument {at} is only known when the program runs"),
            _ => bail!("argument {at} is no number"),
        })
    }

    /// A number, if one is given.
    fn optional_double(&mut self, at: usize) -> TractResult<Option<f64>> {
        Ok(if self.is_none(at)? {
            None
        } else {
            Some(self.double(at)?)
        })
    }

    /// A boolean.
    fn bool(&mut self, at: usize) -> TractResult<bool> {
        Ok(match self.slot(at)? {
            Slot::Bool(value) => value,
            Slot::Int(value) => value != TDim::Val(0),
            Slot::Null => false,
            _ => bail!("argument {at} is no boolean"),
        })
    }

    /// A text, if one is given.
    fn text(&mut self, at: usize) -> TractResult<Option<String>> {
        Ok(match self.slot(at)? {
            Slot::Text(text) => Some(text),
            Slot::Null => None,
            _ => bail!("argument {at} is no text"),
        })
    }

    /// Sizes of a list.
    fn dims(&mut self, at: usize) -> TractResult<Vec<TDim>> {
        let values = match self.body(at)? {
            BodyValue::IntList(values) => values.clone(),
            BodyValue::Int(value) => return Ok(vec![value.to_dim()]),
            BodyValue::Null => return Ok(Vec::new()),
            _ => bail!("argument {at} is no list of integers"),
        };
        let dims = values
            .into_iter()
            .map(|value| match self.frame.slot(value)? {
                Slot::Int(dim) => Ok(dim),
                Slot::Number(_) => bail!("argument {at} is only known when the program runs"),
                _ => bail!("argument {at} is no list of integers"),
            });
        dims.collect()
    }

    /// Integers of a list.
    fn ints(&mut self, at: usize) -> TractResult<Vec<i64>> {
        let dims = self.dims(at)?;
        dims.iter().map(|dim| Ok(dim.to_i64()?)).collect()
    }

    /// Sizes of a list that are known.
    fn sizes(&mut self, at: usize) -> TractResult<Vec<usize>> {
        let ints = self.ints(at)?;
        ints.into_iter()
            .map(|int| Ok(usize::try_from(int)?))
            .collect()
    }

    /// Numbers of a list, if one is given.
    fn doubles(&mut self, at: usize) -> TractResult<Option<Vec<f64>>> {
        Ok(match self.body(at)? {
            BodyValue::DoubleList(values) => Some(values.clone()),
            BodyValue::Null => None,
            _ => bail!("argument {at} is no list of numbers"),
        })
    }

    /// A dimension of `rank` many, which may be counted from the end.
    fn axis(&mut self, at: usize, rank: usize) -> TractResult<usize> {
        let axis = self.int(at)?;
        axis_of(axis, rank)
    }

    /// Dimensions of a list; all of them if it is none or empty.
    fn axes(&mut self, at: usize, rank: usize) -> TractResult<Vec<usize>> {
        let axes = self.ints(at)?;
        if axes.is_empty() {
            return Ok((0..rank).collect());
        }
        axes.into_iter().map(|axis| axis_of(axis, rank)).collect()
    }

    /// A number as a tensor of one element, whenever it is known.
    fn scalar(&mut self, at: usize, dtype: DType, rank: usize) -> TractResult<OutletId> {
        if let Slot::Number(number) = self.slot(at)? {
            let wire = self.frame.sum(&number)?;
            let wire = self.frame.builder.cast(wire, dtype)?;
            return self.frame.builder.with_rank(wire.outlet, rank);
        }
        if let Slot::Int(dim) = self.slot(at)? {
            let outlet = self.frame.builder.size(&dim, dtype)?;
            return self.frame.builder.with_rank(outlet, rank);
        }
        let value = self.double(at)?;
        Ok(self.frame.builder.scalar(value, dtype, rank)?.outlet)
    }

    /// The kind of number an argument is, as the dtype that stands for the kind.
    fn scalar_kind(&mut self, at: usize) -> TractResult<DType> {
        Ok(match self.slot(at)? {
            Slot::Int(_) => DType::Int64,
            Slot::Bool(_) => DType::Bool,
            Slot::Number(Number { wire, .. }) => wire.dtype,
            Slot::Double(_) => DType::Float32,
            _ => bail!("argument {at} is no number"),
        })
    }

    /// The dtype of an output.
    fn out_dtype(&self, at: usize) -> TractResult<DType> {
        self.frame.dtype(self.arg(at)?)
    }

    /// Where the one output stands: the last argument, or the one before it if that is the same.
    fn out(&self) -> usize {
        let last = self.args.len().saturating_sub(1);
        let before = last.saturating_sub(1);
        if self.args.get(last) == self.args.get(before) {
            before
        } else {
            last
        }
    }

    /// Gives an output, cast to the dtype it has.
    fn give(&mut self, at: usize, wire: Wire) -> TractResult<()> {
        let value = self.arg(at)?;
        self.check_room(at, &self.shape(wire)?)?;
        self.frame.set_tensor(value, wire)
    }

    /// Refuses a shape that does not fit the room that the program has for an output, as the runtime does.
    /// What makes tensors out of numbers asks before it makes them.
    fn check_room(&self, at: usize, shape: &[TDim]) -> TractResult<()> {
        let value = self.arg(at)?;
        // ExecuTorch's own operators give caches back under names without room.
        let Some(tensor) = self.frame.method.values[value].tensor() else {
            return Ok(());
        };
        if !self.name.starts_with("aten::") {
            return Ok(());
        }
        let mut known = shape.iter().map(|size| size.to_usize().ok());
        let needs = known.try_fold(1_usize, |all, size| Some(all.saturating_mul(size?)));
        let Some(needs) = needs else {
            return Ok(());
        };
        let sizes = tensor.sizes.iter();
        let room = sizes.fold(1_u64, |all, size| all.saturating_mul(*size));
        let needs = u64::try_from(needs)?;
        ensure!(
            needs <= room,
            "an output of {needs} elements, and the program has room for {room}"
        );
        Ok(())
    }

    /// Gives outputs of a list.
    fn give_list(&mut self, at: usize, wires: Vec<Wire>) -> TractResult<()> {
        let values = match self.body(at)? {
            BodyValue::TensorList(values) => values.clone(),
            _ => bail!("argument {at} is no list of tensors"),
        };
        ensure!(
            values.len() == wires.len(),
            "{} outputs for {}",
            wires.len(),
            values.len()
        );
        for (value, wire) in values.into_iter().zip(wires) {
            self.frame.set_tensor(value, wire)?;
        }
        Ok(())
    }

    fn shape(&self, wire: Wire) -> TractResult<Vec<TDim>> {
        self.frame.builder.shape(wire.outlet)
    }

    fn rank(&self, wire: Wire) -> TractResult<usize> {
        self.frame.builder.rank(wire.outlet)
    }
}

/// A dimension of `rank` many, which may be counted from the end.
fn axis_of(axis: i64, rank: usize) -> TractResult<usize> {
    let count = i64::try_from(rank.max(1))?;
    ensure!(
        -count <= axis && axis < count,
        "{axis} is none of {rank} dimensions"
    );
    Ok(usize::try_from(if axis < 0 { axis + count } else { axis })?)
}

/// The dtype that values of two dtypes are computed in.
fn promoted(a: DType, b: DType) -> DType {
    fn weight(dtype: DType) -> u8 {
        match dtype {
            DType::Bool => 0,
            DType::Uint8 => 1,
            DType::Int8 => 2,
            DType::Uint16 => 3,
            DType::Int16 => 4,
            DType::Uint32 => 5,
            DType::Int32 => 6,
            DType::Uint64 => 7,
            DType::Int64 => 8,
            DType::Float16 => 9,
            DType::Bfloat16 => 10,
            DType::Float32 => 11,
            DType::Float64 => 12,
        }
    }
    let (less, more) = if weight(a) <= weight(b) {
        (a, b)
    } else {
        (b, a)
    };
    match (less, more) {
        _ if less == more => more,
        (DType::Float16, DType::Bfloat16) => DType::Float32,
        (DType::Uint8, DType::Int8) => DType::Int16,
        _ => more,
    }
}

/// The dtype that a tensor and a number are computed in: the number only decides its kind.
fn promoted_with_scalar(tensor: DType, scalar: DType) -> DType {
    let kind = |dtype: DType| match dtype {
        DType::Bool => 0,
        _ if dtype.is_float() => 2,
        _ => 1,
    };
    if kind(scalar) > kind(tensor) {
        scalar
    } else {
        tensor
    }
}

/// The dtype that something is computed in: float16 and bfloat16 in float32.
fn widened(dtype: DType) -> DType {
    match dtype {
        DType::Float16 | DType::Bfloat16 => DType::Float32,
        _ => dtype,
    }
}
