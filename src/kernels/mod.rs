//! Arithmetic of the embedded engine that its library is slow at: convolutions and products of packed
//! weights, in float32 and in bytes.
//!
//! An operator here packs its weights once and then runs any number of times over dense slices; images are
//! `[n, h, w, c]`. It knows neither graphs nor files. The instructions that it runs with are chosen when it
//! is made ([`Cpu`]); every choice gives the same integers, and floats that differ only by the order of
//! their sums. Everything `unsafe` is in [`simd`].

pub(crate) mod bytes;
pub(crate) mod cpu;
pub(crate) mod float;
mod length;
pub(crate) mod rows;
mod simd;
pub(crate) mod split;
pub(crate) mod turn;
pub(crate) mod window;

pub(crate) use cpu::Cpu;
pub(crate) use split::Split;
