//! What a model's description says of the sizes of a function's inputs.
//!
//! `Model.proto` and `FeatureTypes.proto` of coremltools 9. Invariant: a size is only said where the description
//! states it; what it leaves open, or says twice in different ways, is open.

use std::collections::BTreeMap;

use super::super::error::Error;
use super::walk::{Field, Message};

/// Most dimensions of a feature that is looked at.
const MAX_RANK: usize = 16;
/// Most shapes of one feature that are looked at.
const MAX_SHAPES: usize = 1 << 12;
/// Most inputs that are looked at.
const MAX_INPUTS: usize = 1 << 12;

/// Sizes that a dimension may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sizes {
    /// The smallest.
    pub(super) least: u64,
    /// The largest; none where there is none.
    pub(super) most: Option<u64>,
}

/// Inputs by their names; those that are no arrays are not there.
pub(super) type Inputs = BTreeMap<String, Vec<Sizes>>;

/// What a description says of the inputs of a function, or of the model where it lists no functions.
pub(super) fn inputs(description: &Field<'_>, function: &str) -> Result<Inputs, Error> {
    let description = description.message("description")?;
    let mut inputs = Inputs::new();
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

fn name_of(message: Message<'_>) -> Result<String, Error> {
    for field in message.fields() {
        let field = field?;
        if field.number == 1 {
            return field.text();
        }
    }
    Ok(String::new())
}

fn features(message: Message<'_>, number: u64) -> Result<Inputs, Error> {
    let mut found = Inputs::new();
    for field in message.fields() {
        let field = field?;
        if field.number == number {
            feature(&field, &mut found)?;
        }
    }
    Ok(found)
}

fn feature(field: &Field<'_>, into: &mut Inputs) -> Result<(), Error> {
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

/// The sizes of an array. Ranges and lists of shapes say all of them, its shape is then only the usual one.
fn array(message: Message<'_>) -> Result<Option<Vec<Sizes>>, Error> {
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
        (None, _) => Some(usual.into_iter().map(exactly).collect()),
        (Some(said), None) => said,
        // The last one counts in protobuf, but two kinds of them say two things.
        (Some(_), Some(_)) => None,
    };
    Ok(dims.filter(|dims: &Vec<Sizes>| dims.len() <= MAX_RANK))
}

/// A size that a shape has. One below zero says that there is none.
fn exactly(size: u64) -> Sizes {
    match i64::try_from(size) {
        Ok(_) => Sizes {
            least: size,
            most: Some(size),
        },
        Err(_) => Sizes {
            least: 0,
            most: None,
        },
    }
}

/// Whole shapes: of each dimension the smallest and the largest size.
fn enumerated(message: Message<'_>) -> Result<Option<Vec<Sizes>>, Error> {
    let mut all: Option<Vec<Sizes>> = None;
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
            all = Some(shape.into_iter().map(exactly).collect());
            continue;
        };
        if known.len() != shape.len() {
            return Ok(None);
        }
        for (known, other) in known.iter_mut().zip(shape.into_iter().map(exactly)) {
            known.least = known.least.min(other.least);
            known.most = known
                .most
                .zip(other.most)
                .map(|(one, other)| one.max(other));
        }
    }
    Ok(all)
}

fn ranges(message: Message<'_>) -> Result<Option<Vec<Sizes>>, Error> {
    let mut dims = Vec::new();
    for field in message.fields() {
        let field = field?;
        if field.number != 1 {
            continue;
        }
        if dims.len() >= MAX_RANK {
            return Ok(None);
        }
        // What is zero is absent.
        let (mut least, mut most) = (0, 0);
        for field in field.message("size range")?.fields() {
            let field = field?;
            match field.number {
                1 => least = field.number()?,
                2 => most = field.number()?,
                _ => {}
            }
        }
        // A negative size is no limit.
        let most = i64::try_from(most).ok().map(i64::unsigned_abs);
        if most.is_some_and(|most| most < least) {
            return Ok(None);
        }
        dims.push(Sizes { least, most });
    }
    Ok(Some(dims))
}

#[cfg(test)]
mod tests {
    use super::super::walk::Walk;
    use super::{Sizes, array};
    use crate::model::executorch::body::ByteRange;
    use crate::source::Pages;

    fn sizes(shape: &[u8], varies: &[u8]) -> Option<Vec<Sizes>> {
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
        let fixed = |size| Sizes {
            least: size,
            most: Some(size),
        };
        let open = Sizes {
            least: 0,
            most: None,
        };
        assert_eq!(sizes(&[1, 4], &[]), Some(vec![fixed(1), fixed(4)]));
        let shape = [&minus_one[..], &[4]].concat();
        assert_eq!(sizes(&shape, &[]), Some(vec![open, fixed(4)]));
        // Two shapes, one of which leaves its first size open.
        let other = [&[0x0a, 13, 0x0a, 11][..], &shape].concat();
        let shapes = [&[0x0a, 4, 0x0a, 2, 2, 4][..], &other].concat();
        let length = u8::try_from(shapes.len()).expect("short");
        let varies = [&[0xaa, 1, length][..], &shapes].concat();
        assert_eq!(sizes(&[2, 4], &varies), Some(vec![open, fixed(4)]));
    }
}
