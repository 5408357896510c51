//! Rows of numbers times weights of 4 or 8 bits, which stay that small in memory.
//!
//! Weights are packed in panels of 32 outputs in the order in which a kernel reads them, so that one row (a
//! token that a language model adds) streams them from memory once. Sums of products are whole numbers and
//! exact; the steps in float32 after them come in XNNPACK's order.

mod byte_tiles;
mod levels;
#[cfg(target_arch = "aarch64")]
mod neon;
mod panels;
mod product;
mod quantize;
mod real_tiles;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use panels::{Bits, Sizes};
pub(crate) use product::{DynamicProduct, PackedProduct};
pub(crate) use quantize::Steps;
