//! Builds the input tensors of a decoder step.
//!
//! Invariant: an integer that does not fit its dtype is an error.

use super::error::DecodeError;
use super::shape::{DecoderInput, DecoderRole, DecoderShape, FeedingMode, StepTokens};
use pkgtool_engine::tensor::{DType, Tensor};

/// Builds the inputs of a step that feeds the tokens of each row after those that it already holds.
/// Several rows have equal numbers of tokens and require a shape with lanes.
pub(super) fn of(
    shape: &DecoderShape,
    rows: &[StepTokens<'_>],
) -> Result<Vec<Tensor>, DecodeError> {
    let arguments = shape.arguments.iter();
    arguments
        .map(|argument| tensor(*argument, shape.feeding, rows))
        .collect()
}

/// Returns the embeddings of the only row.
fn embeddings(dtype: DType, width: usize, rows: &[StepTokens<'_>]) -> Result<Tensor, DecodeError> {
    let wrong = |reason: String| DecodeError::Model(reason);
    let [row] = rows else {
        return Err(wrong("several rows of embeddings".to_owned()));
    };
    let expected = [1, row.tokens.len() as u64, width as u64];
    let given = row.embeddings.filter(|it| it.shape() == expected);
    let given = given.ok_or_else(|| {
        wrong(format!(
            "expected embeddings {expected:?}, got {:?}",
            row.embeddings
        ))
    })?;
    if given.dtype() == dtype {
        return Ok(given.clone());
    }
    let cast = Tensor::from_f64(dtype, expected.to_vec(), given.to_f64());
    cast.map_err(|error| wrong(error.to_string()))
}

fn tensor(
    argument: DecoderInput,
    feeding: FeedingMode,
    rows: &[StepTokens<'_>],
) -> Result<Tensor, DecodeError> {
    let fed = rows.iter().map(|row| row.tokens.len()).max().unwrap_or(0);
    let held = rows.iter().map(|row| row.held).max().unwrap_or(0);
    let length = match feeding {
        FeedingMode::Padded { length } => length.max(fed),
        _ => fed,
    };
    let of_rows = |size: usize, row: &dyn Fn(&StepTokens<'_>) -> Vec<u64>| {
        let values = rows.iter().flat_map(row).collect();
        (vec![rows.len() as u64, size as u64], values)
    };
    let (shape, values): (Vec<u64>, Vec<u64>) = match argument.role {
        DecoderRole::Tokens => of_rows(length, &|row| {
            let tokens = row.tokens.iter().map(|token| u64::from(*token));
            filled_up(tokens, length)
        }),
        DecoderRole::Mask => of_rows(held + length, &|row| {
            let ones = std::iter::repeat_n(1, row.held + row.tokens.len());
            filled_up(ones, held + length)
        }),
        DecoderRole::Positions => of_rows(length, &|row| positions(row.held, length)),
        DecoderRole::PositionList => (vec![length as u64], positions(held, length)),
        DecoderRole::StartPosition => (vec![1], vec![held as u64]),
        DecoderRole::LogitsToKeep { is_list } => {
            (if is_list { vec![1] } else { Vec::new() }, vec![1])
        }
        DecoderRole::UsesCache => (vec![1], vec![u64::from(held > 0)]),
        DecoderRole::Embeddings { width } => return embeddings(argument.dtype, width, rows),
    };
    let bytes = elements(argument.dtype, &values)?;
    Tensor::new(argument.dtype, shape, bytes).map_err(|error| DecodeError::Model(error.to_string()))
}

/// Appends zeros up to `length`.
fn filled_up(values: impl Iterator<Item = u64>, length: usize) -> Vec<u64> {
    let zeros = std::iter::repeat(0);
    values.chain(zeros).take(length).collect()
}

fn positions(held: usize, length: usize) -> Vec<u64> {
    (held..held + length)
        .map(|position| position as u64)
        .collect()
}

fn elements(dtype: DType, values: &[u64]) -> Result<Vec<u8>, DecodeError> {
    let wrong =
        |value: u64| DecodeError::Model(format!("{value} does not fit an input of dtype {dtype}"));
    let mut bytes = Vec::with_capacity(values.len() * 8);
    for &value in values {
        match dtype {
            DType::Int64 => {
                let value = i64::try_from(value).map_err(|_| wrong(value))?;
                bytes.extend(value.to_le_bytes());
            }
            DType::Int32 => {
                let value = i32::try_from(value).map_err(|_| wrong(value))?;
                bytes.extend(value.to_le_bytes());
            }
            DType::Bool => bytes.push(u8::from(value != 0)),
            DType::Float32 => {
                let value = u16::try_from(value).map_err(|_| wrong(value))?;
                bytes.extend(f32::from(value).to_le_bytes());
            }
            _ => return Err(wrong(value)),
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoder::shape::LogitsRange;

    fn shape(feeding: FeedingMode, roles: &[DecoderRole]) -> DecoderShape {
        let argument = |role: &DecoderRole| DecoderInput {
            role: *role,
            dtype: match role {
                DecoderRole::UsesCache => DType::Bool,
                _ => DType::Int64,
            },
        };
        DecoderShape {
            arguments: roles.iter().map(argument).collect(),
            feeding,
            place: 0,
            logits: LogitsRange::Last,
            can_truncate: true,
            lanes: true,
        }
    }

    fn fed(held: usize, tokens: &[u32]) -> StepTokens<'_> {
        StepTokens::new(held, tokens)
    }

    fn values(tensor: &Tensor) -> Vec<f64> {
        tensor.to_f64().collect()
    }

    #[test]
    fn a_step_goes_on_behind_what_is_held() {
        let roles = [
            DecoderRole::Tokens,
            DecoderRole::Mask,
            DecoderRole::Positions,
            DecoderRole::UsesCache,
            DecoderRole::LogitsToKeep { is_list: false },
        ];
        let shape = shape(FeedingMode::NewTokens { most: 8 }, &roles);
        let given = of(&shape, &[fed(3, &[7, 9])]).expect("they fit");
        assert_eq!(given[0].shape(), [1, 2]);
        assert_eq!(values(&given[0]), [7.0, 9.0]);
        assert_eq!(values(&given[1]), [1.0; 5]);
        assert_eq!(values(&given[2]), [3.0, 4.0]);
        assert_eq!(values(&given[3]), [1.0]);
        assert_eq!((given[4].shape(), values(&given[4])), (&[][..], vec![1.0]));
    }

    #[test]
    fn each_row_goes_on_behind_what_it_holds() {
        let roles = [
            DecoderRole::Tokens,
            DecoderRole::Mask,
            DecoderRole::Positions,
        ];
        let shape = shape(FeedingMode::NewTokens { most: 8 }, &roles);
        let given = of(&shape, &[fed(3, &[7]), fed(1, &[9])]).expect("they fit");
        assert_eq!(
            (given[0].shape(), values(&given[0])),
            (&[2, 1][..], vec![7.0, 9.0])
        );
        assert_eq!(given[1].shape(), [2, 4]);
        assert_eq!(values(&given[1]), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(values(&given[2]), [3.0, 1.0]);
    }

    #[test]
    fn a_fixed_length_is_filled() {
        let shape = shape(
            FeedingMode::Padded { length: 4 },
            &[DecoderRole::Tokens, DecoderRole::Mask],
        );
        let given = of(&shape, &[fed(0, &[7, 9])]).expect("they fit");
        assert_eq!(values(&given[0]), [7.0, 9.0, 0.0, 0.0]);
        assert_eq!(values(&given[1]), [1.0, 1.0, 0.0, 0.0]);
    }
}
