//! Reads the sizes of a function's inputs from a Core ML model description.
//!
//! Source: `Model.proto` and `FeatureTypes.proto` of coremltools 9. Invariant: a size is returned
//! only if the description states it; unspecified or contradictory sizes stay open.

use std::collections::BTreeMap;

use super::walk::{WalkField, WalkMessage};
use crate::FormatError;

/// Maximum number of dimensions of a feature.
const MAX_RANK: usize = 16;
/// Maximum number of shapes of a feature.
const MAX_SHAPES: usize = 1 << 12;
/// Maximum number of inputs.
const MAX_INPUTS: usize = 1 << 12;

/// The allowed sizes of a dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SizeRange {
    /// The smallest.
    pub(super) least: u64,
    /// The largest; `None` without a limit.
    pub(super) most: Option<u64>,
}

/// Sizes of array inputs, by name.
pub(super) type InputSizes = BTreeMap<String, Vec<SizeRange>>;

/// Returns the inputs of a function, or of the model if its description lists no functions.
pub(super) fn inputs(
    description: &WalkField<'_>,
    function: &str,
) -> Result<InputSizes, FormatError> {
    let description = description.message("description")?;
    let mut inputs = InputSizes::new();
    for field in description.fields() {
        let field = field?;
        match field.number {
            1 => feature(&field, &mut inputs)?,
            20 => {
                let described = field.message("function description")?;
                if name_of(described)? == function {
                    return features(described, 2);
                }
            }
            _ => {}
        }
    }
    Ok(inputs)
}

fn name_of(message: WalkMessage<'_>) -> Result<String, FormatError> {
    for field in message.fields() {
        let field = field?;
        if field.number == 1 {
            return field.text();
        }
    }
    Ok(String::new())
}

fn features(message: WalkMessage<'_>, number: u64) -> Result<InputSizes, FormatError> {
    let mut found = InputSizes::new();
    for field in message.fields() {
        let field = field?;
        if field.number == number {
            feature(&field, &mut found)?;
        }
    }
    Ok(found)
}

fn feature(field: &WalkField<'_>, into: &mut InputSizes) -> Result<(), FormatError> {
    let (mut name, mut dims) = (String::new(), None);
    for field in field.message("feature")?.fields() {
        let field = field?;
        match field.number {
            1 => name = field.text()?,
            3 => {
                for field in field.message("feature type")?.fields() {
                    let field = field?;
                    if field.number == 5 {
                        dims = array(field.message("array type")?)?;
                    }
                }
            }
            _ => {}
        }
    }
    if into.len() < MAX_INPUTS {
        into.extend(dims.map(|dims| (name, dims)));
    }
    Ok(())
}

/// Reads the sizes of an array. Ranges and enumerated shapes are complete; the plain shape is then
/// only the default.
fn array(message: WalkMessage<'_>) -> Result<Option<Vec<SizeRange>>, FormatError> {
    let (mut usual, mut said) = (Vec::new(), Vec::new());
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => field.numbers(&mut usual)?,
            21 => said.push(enumerated(field.message("enumerated shapes")?)?),
            31 => said.push(ranges(field.message("shape range")?)?),
            _ => {}
        }
    }
    let dims = match (said.pop(), said.pop()) {
        (None, _) => Some(usual.into_iter().map(literal_sizes).collect()),
        (Some(said), None) => said,
        // Protobuf lets the last member win, but two kinds of sizes contradict each other.
        (Some(_), Some(_)) => None,
    };
    Ok(dims.filter(|dims: &Vec<SizeRange>| dims.len() <= MAX_RANK))
}

/// Returns the sizes for a literal size. A negative one means that the size is unspecified.
fn literal_sizes(size: u64) -> SizeRange {
    match i64::try_from(size) {
        Ok(_) => SizeRange {
            least: size,
            most: Some(size),
        },
        Err(_) => SizeRange {
            least: 0,
            most: None,
        },
    }
}

/// Reads enumerated shapes: the smallest and the largest size of each dimension.
fn enumerated(message: WalkMessage<'_>) -> Result<Option<Vec<SizeRange>>, FormatError> {
    let mut all: Option<Vec<SizeRange>> = None;
    for (count, field) in message.fields().enumerate() {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        if count >= MAX_SHAPES {
            return Ok(None);
        }
        let mut shape = Vec::new();
        for field in field.message("shape")?.fields() {
            let field = field?;
            if field.number == 1 {
                field.numbers(&mut shape)?;
            }
        }
        let Some(known) = &mut all else {
            all = Some(shape.into_iter().map(literal_sizes).collect());
            continue;
        };
        if known.len() != shape.len() {
            return Ok(None);
        }
        for (known, other) in known.iter_mut().zip(shape.into_iter().map(literal_sizes)) {
            known.least = known.least.min(other.least);
            known.most = known
                .most
                .zip(other.most)
                .map(|(one, other)| one.max(other));
        }
    }
    Ok(all)
}

fn ranges(message: WalkMessage<'_>) -> Result<Option<Vec<SizeRange>>, FormatError> {
    let mut dims = Vec::new();
    for field in message.fields() {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        if dims.len() >= MAX_RANK {
            return Ok(None);
        }
        // Protobuf omits zeros.
        let (mut least, mut most) = (0, 0);
        for field in field.message("size range")?.fields() {
            let field = field?;
            match field.number {
                1 => least = field.number()?,
                2 => most = field.number()?,
                _ => {}
            }
        }
        // A negative size means "no limit".
        let most = i64::try_from(most).ok().map(i64::unsigned_abs);
        if most.is_some_and(|most| most < least) {
            return Ok(None);
        }
        dims.push(SizeRange { least, most });
    }
    Ok(Some(dims))
}

#[cfg(test)]
mod tests {
    use super::super::walk::Walk;
    use super::{SizeRange, array};
    use crate::executorch::body::ByteRange;
    use pkgtool_base::source::Pages;

    fn sizes(shape: &[u8], varies: &[u8]) -> Option<Vec<SizeRange>> {
        let length = u8::try_from(shape.len()).expect("short");
        let bytes = [&[0x0a, length][..], shape, varies].concat();
        let pages = Pages::new(&bytes);
        let walk = Walk::new(&pages);
        let size = bytes.len() as u64;
        array(walk.message(ByteRange { offset: 0, size }, "array")).expect("an array")
    }

    #[test]
    fn a_size_below_zero_is_no_limit() {
        let minus_one = [&[0xff; 9][..], &[1]].concat();
        let fixed = |size| SizeRange {
            least: size,
            most: Some(size),
        };
        let open = SizeRange {
            least: 0,
            most: None,
        };
        assert_eq!(sizes(&[1, 4], &[]), Some(vec![fixed(1), fixed(4)]));
        let shape = [&minus_one[..], &[4]].concat();
        assert_eq!(sizes(&shape, &[]), Some(vec![open, fixed(4)]));
        // Two shapes, one with an unspecified first size.
        let other = [&[0x0a, 13, 0x0a, 11][..], &shape].concat();
        let shapes = [&[0x0a, 4, 0x0a, 2, 2, 4][..], &other].concat();
        let length = u8::try_from(shapes.len()).expect("short");
        let varies = [&[0xaa, 1, length][..], &shapes].concat();
        assert_eq!(sizes(&[2, 4], &varies), Some(vec![open, fixed(4)]));
    }
}
