//! Checks the sequence lengths of `GroupQueryAttention` against its KV cache.
//!
//! The library appends new tokens to the whole cache and attends to all of it. That is correct if
//! every sequence of the batch fills the cache. The answer would be wrong if the cache is longer
//! than a sequence, or is a buffer for future tokens.

use tract_onnx::tract_core::internal::*;

use crate::frontends::onnx::node_operator::{Built, same_shape};
use crate::graph::guard::InvalidInput;
use crate::graph::kernel::Kernel;

/// The operator's name. Its inputs are new tokens `[batch, tokens, size]`, which it returns, the
/// sequence lengths minus one, and the cache `[batch, heads, past, size]`.
pub(crate) const FULL_SEQUENCES: &str = "pkgtool full sequences";

/// Builds the operator.
pub(crate) fn build() -> Built {
    same_shape(FULL_SEQUENCES, 3, [None; 2], |prefix, model, inputs| {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let kernel = Kernel::new(FULL_SEQUENCES, tvec!(fact), |inputs: &[TValue]| {
            check(&inputs[0], &inputs[1], &inputs[2])?;
            Ok(tvec!(inputs[0].clone().into_arc_tensor()))
        });
        model.wire_node(prefix, kernel, inputs)
    })
}

fn check(tokens: &Tensor, lengths: &Tensor, past: &Tensor) -> TractResult<()> {
    let (Some(new), Some(past)) = (tokens.shape().get(1), past.shape().get(2)) else {
        bail!("expected tokens in a batch and a cache of heads");
    };
    // In the first run, tokens after a sequence's end do not change those before it.
    if *past == 0 {
        return Ok(());
    }
    let lengths = lengths.cast_to::<i64>()?;
    let lengths = lengths.try_as_plain_ram()?;
    let all = past + new;
    let other = lengths.as_slice::<i64>()?.iter();
    let mut other = other
        .map(|last| last.saturating_add(1))
        .filter(|length| usize::try_from(*length) != Ok(all));
    other.next().map_or(Ok(()), |length| {
        let operator = "com.microsoft::GroupQueryAttention".to_owned();
        let reason = format!(
            "`seqlens_k` has a sequence of {length} tokens, but the cache and the new tokens have {all}; only sequences \
             that fill it are supported: give each one a batch and a cache of its own length"
        );
        Err(InvalidInput { operator, reason }.into())
    })
}
