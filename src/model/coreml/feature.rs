//! What a model takes, gives or keeps, as its description has it (`FeatureTypes.proto` of coremltools 9).
//!
//! Invariant: a dimension is fixed only where the description allows nothing else; what an image is as a tensor is
//! not in the description, so it has neither dtype nor dimensions here.

use std::collections::BTreeSet;

use super::error::Error;
use crate::model::executorch::coreml::{Field, Message};
use crate::model::{Allowed, Dim, Dynamism, ElementType, TensorInfo, Value, ValueKind};
use crate::package::DType;

/// Most dimensions.
const MAX_RANK: usize = 64;
/// Most shapes that are listed.
const MAX_SHAPES: usize = 4096;

/// A feature.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Feature {
    /// Its name and what it is.
    pub(super) value: Value,
    /// Whether a caller may leave it out.
    pub(super) optional: bool,
}

/// How an array's sizes vary.
#[derive(Debug, Default)]
struct Sizes {
    default: Shape,
    listed: Vec<Shape>,
    ranges: Vec<(u64, Option<u64>)>,
}

/// A shape's sizes; none for one that is below zero, which is no size but says that there is none.
type Shape = Vec<Option<u64>>;

impl Feature {
    /// Reads a `FeatureDescription`.
    pub(super) fn read(message: Message<'_>) -> Result<Self, Error> {
        let (mut name, mut kind, mut optional) = (None, ValueKind::None, false);
        for field in message.fields() {
            let field = field?;
            match field.number {
                1 => name = Some(field.text()?),
                3 => (kind, optional) = feature_type(field.message("feature type")?)?,
                _ => {}
            }
        }
        if kind == ValueKind::None {
            kind = ValueKind::Other("of no type".to_owned());
        }
        let value = Value { name, kind };
        Ok(Self { value, optional })
    }

    /// Its name, empty if it has none.
    pub(super) fn name(&self) -> &str {
        self.value.name.as_deref().unwrap_or_default()
    }
}

fn feature_type(message: Message<'_>) -> Result<(ValueKind, bool), Error> {
    let (mut kind, mut optional) = (ValueKind::None, false);
    for field in message.fields() {
        let field = field?;
        let other = |name: &str| ValueKind::Other(name.to_owned());
        match field.number {
            1 => kind = other("int64"),
            2 => kind = other("double"),
            3 => kind = other("string"),
            4 => kind = image(field.message("image type")?)?,
            5 => kind = array(field.message("array type")?)?,
            6 => kind = other("dictionary"),
            7 => kind = other("sequence"),
            8 => {
                for inner in field.message("state type")?.fields() {
                    let inner = inner?;
                    if inner.number == 1 {
                        kind = array(inner.message("array type")?)?;
                    }
                }
            }
            1000 => optional = field.number()? != 0,
            _ => {}
        }
    }
    Ok((kind, optional))
}

fn tensor(element: ElementType, dims: Option<Vec<Dim>>) -> ValueKind {
    let is_fixed = |dim: &Dim| matches!(dim, Dim::Fixed(_));
    let dynamism = match &dims {
        None => Dynamism::Unbounded,
        Some(dims) if dims.iter().all(is_fixed) => Dynamism::Static,
        Some(_) => Dynamism::Symbolic,
    };
    ValueKind::Tensor {
        info: TensorInfo {
            element,
            dims,
            dynamism,
        },
        data: None,
    }
}

fn array(message: Message<'_>) -> Result<ValueKind, Error> {
    let (mut sizes, mut element) = (Sizes::default(), 0);
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => sizes_of(&field, &mut sizes.default)?,
            2 => element = field.number()?,
            // Of the two the last one counts.
            21 => {
                sizes.listed = listed(field.message("enumerated shapes")?)?;
                sizes.ranges.clear();
            }
            31 => {
                sizes.ranges = ranges(field.message("shape range")?)?;
                sizes.listed.clear();
            }
            _ => {}
        }
    }
    Ok(tensor(element_type(element), sizes.dims()))
}

/// Types of elements by their numbers (`ArrayFeatureType.ArrayDataType`).
fn element_type(code: u64) -> ElementType {
    ElementType::Known(match code {
        65_552 => DType::Float16,
        65_568 => DType::Float32,
        65_600 => DType::Float64,
        131_104 => DType::Int32,
        131_080 => DType::Int8,
        _ => return ElementType::Other(format!("of type {code}")),
    })
}

impl Sizes {
    /// The dimensions; none where no rank is given.
    fn dims(self) -> Option<Vec<Dim>> {
        if !self.ranges.is_empty() {
            return Some(self.ranges.iter().map(range_dim).collect());
        }
        let mut shapes = self.listed;
        if let Some(first) = shapes.first() {
            let rank = first.len();
            if shapes.iter().any(|shape| shape.len() != rank) {
                return None;
            }
            if self.default.len() == rank {
                shapes.push(self.default);
            }
            let sizes = |at: usize| shapes.iter().map(move |shape| shape[at]);
            let dims = (0..rank).map(|at| choice_dim(sizes(at).collect()));
            return Some(dims.collect());
        }
        // Without sizes it may be a scalar or open: the description of a flexible model's output is empty, too.
        let dim = |size: Option<u64>| size.map_or(range_dim(&(0, None)), Dim::Fixed);
        let dims: Vec<Dim> = self.default.into_iter().map(dim).collect();
        (!dims.is_empty()).then_some(dims)
    }
}

fn range_dim(&(least, most): &(u64, Option<u64>)) -> Dim {
    if most == Some(least) {
        return Dim::Fixed(least);
    }
    let bound = most.filter(|most| *most >= least);
    let range = |most| Allowed::Range {
        least,
        most,
        step: 1,
    };
    Dim::Dynamic {
        bound,
        name: None,
        allowed: bound.map(range),
    }
}

fn choice_dim(sizes: BTreeSet<Option<u64>>) -> Dim {
    let sizes: Option<BTreeSet<u64>> = sizes.into_iter().collect();
    let Some(sizes) = sizes else {
        return range_dim(&(0, None));
    };
    match (sizes.len(), sizes.last()) {
        (1, Some(size)) => Dim::Fixed(*size),
        (_, last) => Dim::Dynamic {
            bound: last.copied(),
            name: None,
            allowed: Some(Allowed::Choices(sizes.into_iter().collect())),
        },
    }
}

/// Sizes, packed or one by one.
fn sizes_of(field: &Field<'_>, into: &mut Shape) -> Result<(), Error> {
    let mut sizes = Vec::new();
    field.integers(&mut sizes)?;
    into.extend(sizes.into_iter().map(|size| u64::try_from(size).ok()));
    if into.len() > MAX_RANK {
        return Err(Error::TooMany {
            what: "dimensions of an array",
            most: MAX_RANK,
        });
    }
    Ok(())
}

fn listed(message: Message<'_>) -> Result<Vec<Shape>, Error> {
    let mut shapes = Vec::new();
    for field in message.fields() {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        let mut shape = Vec::new();
        for inner in field.message("shape")?.fields() {
            let inner = inner?;
            if inner.number == 1 {
                sizes_of(&inner, &mut shape)?;
            }
        }
        shapes.push(shape);
        if shapes.len() > MAX_SHAPES {
            return Err(Error::TooMany {
                what: "enumerated shapes",
                most: MAX_SHAPES,
            });
        }
    }
    Ok(shapes)
}

fn ranges(message: Message<'_>) -> Result<Vec<(u64, Option<u64>)>, Error> {
    let mut ranges = Vec::new();
    for field in message.fields() {
        let field = field?;
        if field.number == 1 {
            ranges.push(range(field.message("size range")?)?);
        }
        if ranges.len() > MAX_RANK {
            return Err(Error::TooMany {
                what: "dimensions of an array",
                most: MAX_RANK,
            });
        }
    }
    Ok(ranges)
}

/// The least and the largest size; no largest where the file has a negative one, or none: a size of 0 at most would be
/// no array.
fn range(message: Message<'_>) -> Result<(u64, Option<u64>), Error> {
    let (mut least, mut most) = (0, None);
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => least = field.number()?,
            2 => {
                let size = u64::try_from(field.number()?.cast_signed()).ok();
                most = size.filter(|size| *size > 0);
            }
            _ => {}
        }
    }
    Ok((least, most))
}

/// An image by its colours and size.
fn image(message: Message<'_>) -> Result<ValueKind, Error> {
    let (mut width, mut height, mut colours, mut other) = (0, 0, 0, false);
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => width = field.number()?,
            2 => height = field.number()?,
            3 => colours = field.number()?,
            21 | 31 => other = true,
            _ => {}
        }
    }
    let colours = match colours {
        10 => "grey",
        20 => "RGB",
        30 => "BGR",
        40 => "grey in float16",
        _ => "of no colours",
    };
    let or = if other { " or other sizes" } else { "" };
    let name = format!("image ({colours}, {width} wide, {height} high{or})");
    Ok(tensor(ElementType::Other(name), None))
}
