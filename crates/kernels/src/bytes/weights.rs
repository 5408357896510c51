//! Preparation of weights and biases before packing.

use std::borrow::Cow;

use super::Sign;

/// Subtracts zero points from weights.
///
/// If the results need more than 8 bits, the inputs of each output channel are repeated two or
/// three times, with weights that add up to them.
pub(super) fn fit_to_bytes<'a>(
    weights: &'a [i8],
    zeros: &[i32],
    outputs: usize,
) -> Result<Cow<'a, [i8]>, String> {
    if zeros.len() > 1 && zeros.len() != outputs {
        return Err(format!(
            "wrong number of zero points of the weights: got {} for {outputs} output channels",
            zeros.len()
        ));
    }
    for zero in zeros {
        Sign::Signed.check("zero point of the weights", *zero)?;
    }
    if zeros.iter().all(|zero| *zero == 0) {
        return Ok(Cow::Borrowed(weights));
    }
    let each = weights.len() / outputs;
    let rest = weights
        .chunks_exact(each)
        .enumerate()
        .flat_map(|(output, weights)| {
            let zero = zeros[if zeros.len() == 1 { 0 } else { output }];
            weights.iter().map(move |weight| i32::from(*weight) - zero)
        });
    let mut rest: Vec<i32> = rest.collect();
    let mut parts: Vec<Vec<i8>> = Vec::new();
    while parts.is_empty() || rest.iter().any(|weight| *weight != 0) {
        let part = rest.iter_mut().map(|weight| {
            let most = if *weight < 0 { i8::MIN } else { i8::MAX };
            let part = i8::try_from(*weight).unwrap_or(most);
            *weight -= i32::from(part);
            part
        });
        parts.push(part.collect());
    }
    let mut repeated = Vec::with_capacity(parts.len() * weights.len());
    for output in 0..outputs {
        for part in &parts {
            repeated.extend_from_slice(&part[output * each..(output + 1) * each]);
        }
    }
    Ok(Cow::Owned(repeated))
}

/// The inputs of sums.
#[derive(Debug, Clone, Copy)]
pub(super) struct SumInputs {
    /// Sign of the bytes.
    pub(super) sign: Sign,
    /// Zero point.
    pub(super) zero: i32,
    /// Whether the instructions expect the other sign.
    pub(super) flip: bool,
}

impl SumInputs {
    /// Returns the initial sums of each output channel, which cancel out the inputs' zero point.
    pub(super) fn bias(
        self,
        weights: &[i8],
        bias: Option<&[i32]>,
        outputs: usize,
    ) -> Result<Vec<i32>, String> {
        self.sign.check("zero point of the input", self.zero)?;
        if let Some(bias) = bias.filter(|bias| bias.len() != outputs) {
            return Err(format!(
                "wrong number of biases: got {} for {outputs} output channels",
                bias.len()
            ));
        }
        let zero = zero_of(self.sign, self.flip, self.zero);
        let each = weights.len() / outputs;
        let sums = weights
            .chunks_exact(each)
            .enumerate()
            .map(|(output, weights)| {
                let sum = weights
                    .iter()
                    .fold(0_i32, |sum, weight| sum.wrapping_add((*weight).into()));
                let bias = bias.map_or(0, |bias| bias[output]);
                bias.wrapping_sub(sum.wrapping_mul(zero))
            });
        Ok(sums.collect())
    }
}

/// Returns the zero point of inputs as they are multiplied. If the instructions expect another
/// sign, the highest bit is flipped, which adds or subtracts 128.
pub(super) const fn zero_of(sign: Sign, flip: bool, zero: i32) -> i32 {
    match (flip, sign) {
        (false, _) => zero,
        (true, Sign::Signed) => zero + 128,
        (true, Sign::Unsigned) => zero - 128,
    }
}
