//! Optimised arithmetic for the embedded engine, where tract is slow: products, convolutions and
//! elementwise functions.
//!
//! It supports float32 and quantised bytes. An operator packs its weights once and then runs any
//! number of times on dense slices; images are `[n, h, w, c]`. The kernels are independent of
//! graphs and files.
//!
//! The instruction set is chosen when an operator is created ([`Cpu`]). All instruction sets
//! compute the same integers. Floats differ only by the order of summation. All `unsafe` code is in
//! [`simd`].

pub mod bytes;
pub mod cpu;
pub mod float;
mod largest;
mod length;
pub mod resize;
pub mod rows;
mod simd;
pub mod split;
pub mod transposed;
pub mod turn;
pub mod window;

pub use cpu::Cpu;
pub use split::Split;
