//! Batching of several requests into one run: compatible requests are joined, and the outputs are
//! split again.
//!
//! Before the first batch, a trial proves that the model's first dimension is a batch dimension.
//! Invariant: requests are joined only after that proof, and each request gets its own rows back.
//! This module knows nothing of sessions and queues.

use bytes::Bytes;

use pkgtool_engine::EngineError;
use pkgtool_engine::tensor::agreement::Comparison;
use pkgtool_engine::tensor::input::Generator;
use pkgtool_engine::tensor::{DType, JoinError, Signature, Tensor, TensorError, TensorSpec};
use pkgtool_model::{Allowed, Dim};

/// Maximum number of random requests for proving that every output depends on the inputs.
const MAX_TRIALS: u64 = 8;

/// State of the proof that an endpoint's first dimension is a batch dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batching {
    /// It is not a batch dimension, or batching is disabled.
    Off,
    /// It may be a batch dimension.
    Untested,
    /// The trial is in progress.
    Testing,
    /// It is a batch dimension.
    On,
}

/// Returns the maximum number of rows of a run, if the first dimension of all inputs and outputs is
/// open.
pub(super) fn rows_limit(signature: &Signature) -> Option<u64> {
    let specs = || signature.inputs.iter().chain(&signature.outputs);
    if signature.inputs.is_empty() || signature.outputs.is_empty() {
        return None;
    }
    let mut limit = u64::MAX;
    for spec in specs() {
        match spec.dims.as_ref()?.first()? {
            Dim::Fixed(_) => return None,
            // Joined requests might have a size that the model does not allow.
            Dim::Dynamic {
                allowed: Some(allowed),
                ..
            } if allowed.has_gaps() => return None,
            Dim::Dynamic { bound, allowed, .. } => {
                let most = allowed.as_ref().map(Allowed::largest);
                let least = [*bound, most].into_iter().flatten().min();
                limit = limit.min(least.unwrap_or(u64::MAX));
            }
            Dim::Maybe { bound, .. } => limit = limit.min(*bound),
        }
    }
    let symbol = |dim: &Dim| match dim {
        Dim::Dynamic { name, .. } => name.clone(),
        _ => None,
    };
    let first = |spec: &TensorSpec| spec.dims.as_ref()?.first().and_then(symbol);
    let rows: Vec<String> = specs().filter_map(first).collect();
    // A symbol that is also the size of another axis cannot be a batch: `[n, n]` grows in both
    // axes.
    let mut others = specs().flat_map(|spec| spec.dims.iter().flatten().skip(1));
    let elsewhere = others.any(|dim| symbol(dim).is_some_and(|name| rows.contains(&name)));
    (limit > 1 && !elsewhere).then_some(limit)
}

/// Returns the number of rows of a request, if all inputs have the same non-zero number.
pub(super) fn rows(inputs: &[Tensor]) -> Option<u64> {
    let rows = *inputs.first()?.shape().first()?;
    let same = |tensor: &Tensor| tensor.shape().first() == Some(&rows);
    (rows > 0 && inputs.iter().all(same)).then_some(rows)
}

/// Returns whether two requests agree in everything except their rows.
pub(super) fn agree(a: &[Tensor], b: &[Tensor]) -> bool {
    let same = |(a, b): (&Tensor, &Tensor)| a.shape().get(1..) == b.shape().get(1..);
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// Concatenates the inputs of requests.
pub(super) fn join(requests: &[&[Tensor]]) -> Result<Vec<Tensor>, JoinError> {
    let inputs = requests.first().map_or(0, |inputs| inputs.len());
    let joined = (0..inputs).map(|place| {
        let parts = requests.iter().filter_map(|inputs| inputs.get(place));
        let parts: Vec<Tensor> = parts.cloned().collect();
        Tensor::joined(&parts, 0)
    });
    joined.collect()
}

/// Splits outputs among requests with these numbers of rows; `None` if the total differs. The parts
/// share the outputs' bytes.
pub(super) fn split(outputs: Vec<Tensor>, rows: &[u64]) -> Option<Vec<Vec<Tensor>>> {
    let total: u64 = rows.iter().sum();
    let mut divided: Vec<Vec<Tensor>> = rows.iter().map(|_| Vec::new()).collect();
    for output in outputs {
        let (dtype, shape) = (output.dtype(), output.shape().to_vec());
        if shape.first() != Some(&total) {
            return None;
        }
        let bytes = output.into_shared();
        let row = bytes.len() / usize::try_from(total).ok().filter(|total| *total > 0)?;
        let mut at = 0;
        for (rows, part) in rows.iter().zip(&mut divided) {
            let size = row * usize::try_from(*rows).ok()?;
            let bytes: Bytes = bytes.slice(at..at + size);
            at += size;
            let mut shape = shape.clone();
            shape[0] = *rows;
            part.push(Tensor::of_shared(dtype, shape, bytes).ok()?);
        }
    }
    Some(divided)
}

/// Proves that the first dimension is a batch dimension: random requests give the same results
/// alone and together. `like` is a request whose sizes are used. Returns the reason if the proof
/// fails.
pub(super) fn prove(
    like: &[Tensor],
    limit: u64,
    mut run: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>, EngineError>,
) -> Result<(), String> {
    let rows = rows(like).unwrap_or(1);
    // Different sizes, if the limit allows: a row must not depend on its position either.
    let sizes = match (rows, limit) {
        (rows, limit) if rows.saturating_mul(2) < limit => [rows, rows + 1],
        (rows, limit) => [rows.min(limit / 2), rows.min(limit / 2)],
    };
    let mut varied: Vec<bool> = Vec::new();
    for trial in 0..MAX_TRIALS {
        let request = |which: usize| random(like, sizes[which], 2 * trial + which as u64);
        let (a, b) = (request(0), request(1));
        let (a, b) = (a.map_err(words)?, b.map_err(words)?);
        let mut ask = |inputs: &[Tensor], what: &str| {
            let outputs = run(inputs);
            outputs.map_err(|_| format!("random inputs fail {what}"))
        };
        let alone = [ask(&a, "alone")?, ask(&b, "alone")?];
        let together = ask(&join(&[&a, &b]).map_err(words)?, "together")?;
        let parts = split(together, &sizes)
            .ok_or("the number of output rows differs from the number of input rows")?;
        for (alone, part) in alone.iter().zip(&parts) {
            same(alone, part)?;
        }
        varied.resize(alone[0].len(), false);
        for (varied, (a, b)) in varied.iter_mut().zip(alone[0].iter().zip(&alone[1])) {
            let shorter = a.bytes().len().min(b.bytes().len());
            *varied |= a.bytes()[..shorter] != b.bytes()[..shorter];
        }
        if varied.iter().all(|varied| *varied) {
            return Ok(());
        }
    }
    Err("an output does not depend on random inputs, so the trial is inconclusive".to_owned())
}

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn random(like: &[Tensor], rows: u64, seed: u64) -> Result<Vec<Tensor>, TensorError> {
    let tensors = like.iter().enumerate().map(|(place, tensor)| {
        let mut shape = tensor.shape().to_vec();
        if let Some(first) = shape.first_mut() {
            *first = rows;
        }
        Generator::Random { seed }.tensor(tensor.dtype(), shape, place)
    });
    tensors.collect()
}

/// Compares outputs: floats relative to the largest value, all others exactly.
fn same(alone: &[Tensor], together: &[Tensor]) -> Result<(), String> {
    for (a, b) in alone.iter().zip(together) {
        let mut comparison = Comparison::default();
        let compared = comparison.add(a, b);
        compared.map_err(|_| "the shapes of the outputs differ".to_owned())?;
        let agreement = comparison.agreement();
        let off = match tolerance(a.dtype()) {
            Some(tolerance) => agreement.max_rel > tolerance,
            None => a.bytes() != b.bytes(),
        };
        if off {
            return Err(format!(
                "rows differ between single and batched runs by {:.1e} of the largest value",
                agreement.max_rel
            ));
        }
    }
    Ok(())
}

/// Returns the tolerated relative difference for outputs that were computed in another order;
/// `None` requires equality.
fn tolerance(dtype: DType) -> Option<f64> {
    match dtype {
        // One or two units in the last place.
        DType::Float16 => Some(2e-3),
        DType::Bfloat16 => Some(1.6e-2),
        dtype if dtype.is_float() => Some(1e-4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(rows: u64, values: &[f64]) -> Tensor {
        let shape = vec![rows, values.len() as u64 / rows];
        Tensor::from_f64(DType::Float32, shape, values.iter().copied()).expect("it is small")
    }

    fn rowwise(inputs: &[Tensor]) -> Tensor {
        let values: Vec<f64> = inputs[0].to_f64().map(|value| 2.0 * value + 1.0).collect();
        let shape = inputs[0].shape().to_vec();
        Tensor::from_f64(DType::Float32, shape, values).expect("it is small")
    }

    #[test]
    fn what_is_joined_is_divided_again() {
        let (a, b) = (tensor(1, &[1.0, 2.0]), tensor(2, &[3.0, 4.0, 5.0, 6.0]));
        let (a, b) = ([a], [b]);
        assert!(agree(&a, &b));
        assert!(!agree(&a, &[tensor(1, &[1.0, 2.0, 3.0])]));
        let joined = join(&[&a, &b]).expect("they are small");
        assert_eq!(joined[0].shape(), [3, 2]);
        let parts = split(joined.clone(), &[1, 2]).expect("as many rows");
        assert_eq!(parts, [a, b]);
        assert_eq!(split(joined, &[1, 1]), None);
    }

    #[test]
    fn a_batch_is_proved() {
        let like = [tensor(1, &[0.0, 0.0])];
        for limit in [2, 3, u64::MAX] {
            let mut largest = 0;
            let proved = prove(&like, limit, |inputs| {
                largest = largest.max(inputs[0].shape()[0]);
                Ok(vec![rowwise(inputs)])
            });
            assert_eq!(proved, Ok(()));
            assert!(largest <= limit);
        }
    }

    #[test]
    fn what_mixes_rows_is_no_batch() {
        let like = [tensor(2, &[0.0; 4])];
        let running_sum = |inputs: &[Tensor]| {
            let mut sum = 0.0;
            let values: Vec<f64> = inputs[0]
                .to_f64()
                .map(|value| {
                    sum += value;
                    sum
                })
                .collect();
            let shape = inputs[0].shape().to_vec();
            let output = Tensor::from_f64(DType::Float32, shape, values);
            Ok(vec![output.expect("it is small")])
        };
        let error = prove(&like, u64::MAX, running_sum).expect_err("rows are mixed");
        assert!(error.contains("rows differ"), "{error}");
        let total = |_: &[Tensor]| Ok(vec![tensor(1, &[1.0])]);
        assert!(prove(&like, u64::MAX, total).is_err());
    }

    #[test]
    fn what_says_nothing_proves_nothing() {
        let like = [tensor(1, &[0.0, 0.0])];
        let constant = |inputs: &[Tensor]| {
            let shape = inputs[0].shape().to_vec();
            Ok(vec![
                Tensor::zeros(DType::Float32, shape).expect("it is small"),
            ])
        };
        let error = prove(&like, u64::MAX, constant).expect_err("it is the same for all");
        assert!(error.contains("does not depend"), "{error}");
    }
}
