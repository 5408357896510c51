//! Reads the inputs, outputs and states of a Core ML model (`FeatureTypes.proto` of coremltools 9).
//!
//! Invariant: a dimension counts as fixed only if the description allows a single size. The
//! description does not record the tensor form of an image, so images have neither dtype nor
//! dimensions here, but their colours and usual size.

use std::collections::BTreeSet;

use crate::executorch::coreml::{ProtoField, ProtoMessage};
use crate::{
    Allowed, Dim, Dynamism, ElementType, FormatError, ModelValue, PictureInput, PixelColours,
    TensorInfo, ValueKind,
};
use pkgtool_base::package::DType;

/// Name of whole numbers.
pub(super) const NUMBER: &str = "int64";
/// Name of texts.
pub(super) const TEXT: &str = "string";
/// Name of dictionaries.
pub(super) const DICTIONARY: &str = "dictionary";
/// Maximum number of dimensions.
const MAX_RANK: usize = 64;
/// Maximum number of enumerated shapes.
const MAX_SHAPES: usize = 4096;

/// An input, output or state.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Feature {
    /// Its name and type.
    pub(super) value: ModelValue,
    /// True if a caller may omit it.
    pub(super) optional: bool,
}

/// The allowed sizes of an array.
#[derive(Debug, Default)]
struct ArraySizes {
    default: ArrayShape,
    listed: Vec<ArrayShape>,
    ranges: Vec<(u64, Option<u64>)>,
}

/// The sizes of a shape; `None` for a negative size, which marks an unspecified one.
type ArrayShape = Vec<Option<u64>>;

impl Feature {
    /// Reads a `FeatureDescription`.
    pub(super) fn read(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
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
        let value = ModelValue { name, kind };
        Ok(Self { value, optional })
    }

    /// Returns its name, or an empty string.
    pub(super) fn name(&self) -> &str {
        self.value.name.as_deref().unwrap_or_default()
    }
}

fn feature_type(message: ProtoMessage<'_>) -> Result<(ValueKind, bool), FormatError> {
    let (mut kind, mut optional) = (ValueKind::None, false);
    for field in message.fields() {
        let field = field?;
        let other = |name: &str| ValueKind::Other(name.to_owned());
        match field.number {
            1 => kind = other(NUMBER),
            2 => kind = other("double"),
            3 => kind = other(TEXT),
            4 => kind = image(field.message("image type")?)?,
            5 => kind = array(field.message("array type")?)?,
            6 => kind = other(DICTIONARY),
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

fn array(message: ProtoMessage<'_>) -> Result<ValueKind, FormatError> {
    let (mut sizes, mut element) = (ArraySizes::default(), 0);
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => read_sizes(&field, &mut sizes.default)?,
            2 => element = field.number()?,
            // If both fields occur, the last one wins.
            21 => {
                sizes.listed = enumerated_shapes(field.message("enumerated shapes")?)?;
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

/// Returns the element type of a number (`ArrayFeatureType.ArrayDataType`).
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

impl ArraySizes {
    /// Returns the dimensions; `None` if the rank is unknown.
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
        // An empty shape may be a scalar or unspecified: outputs of flexible models have an empty
        // shape, too.
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

/// Reads sizes, packed or one by one.
fn read_sizes(field: &ProtoField<'_>, into: &mut ArrayShape) -> Result<(), FormatError> {
    let mut sizes = Vec::new();
    field.integers(&mut sizes)?;
    into.extend(sizes.into_iter().map(|size| u64::try_from(size).ok()));
    if into.len() > MAX_RANK {
        return Err(FormatError::too_many(MAX_RANK, "dimensions of an array"));
    }
    Ok(())
}

fn enumerated_shapes(message: ProtoMessage<'_>) -> Result<Vec<ArrayShape>, FormatError> {
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
                read_sizes(&inner, &mut shape)?;
            }
        }
        shapes.push(shape);
        if shapes.len() > MAX_SHAPES {
            return Err(FormatError::too_many(MAX_SHAPES, "enumerated shapes"));
        }
    }
    Ok(shapes)
}

fn ranges(message: ProtoMessage<'_>) -> Result<Vec<(u64, Option<u64>)>, FormatError> {
    let mut ranges = Vec::new();
    for field in message.fields() {
        let field = field?;
        if field.number == 1 {
            ranges.push(range(field.message("size range")?)?);
        }
        if ranges.len() > MAX_RANK {
            return Err(FormatError::too_many(MAX_RANK, "dimensions of an array"));
        }
    }
    Ok(ranges)
}

/// Reads the smallest and the largest size. The largest is `None` if the file has a negative one or
/// omits it; a maximum of 0 would be meaningless.
fn range(message: ProtoMessage<'_>) -> Result<(u64, Option<u64>), FormatError> {
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

/// Describes an image by its colours and size.
fn image(message: ProtoMessage<'_>) -> Result<ValueKind, FormatError> {
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
    let float = DType::Float32;
    let (text, known) = match colours {
        10 => ("grey", Some((PixelColours::Grey, float))),
        20 => ("RGB", Some((PixelColours::Rgb, float))),
        30 => ("BGR", Some((PixelColours::Bgr, float))),
        40 => (
            "grey in float16",
            Some((PixelColours::Grey, DType::Float16)),
        ),
        _ => ("of no colours", None),
    };
    let or = if other { " or other sizes" } else { "" };
    let name = format!("image ({text}, {width} wide, {height} high{or})");
    let element = match known {
        Some((colours, dtype)) if width > 0 && height > 0 => {
            ElementType::Pixels(Box::new(PictureInput {
                name,
                colours,
                dtype,
                width,
                height,
            }))
        }
        _ => ElementType::Other(name),
    };
    Ok(tensor(element, None))
}
