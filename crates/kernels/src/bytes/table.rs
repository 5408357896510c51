//! A function on quantised bytes, as a table of its 256 results.

use super::elementwise::{Grid, IntegerRange};
use crate::length::check_length;
use crate::simd::compiled;
use crate::{Cpu, Split};

compiled! {
    fn looked_up(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
        for (to, byte) in to.iter_mut().zip(from) {
            *to = table[usize::from(*byte)];
        }
    }
}

/// The result for each byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteTable([u8; 256]);

impl ByteTable {
    /// Builds the table of a function from its 256 real results, which are quantised to a grid. NaN
    /// becomes the minimum.
    pub fn new(numbers: &[f32], to: Grid, range: IntegerRange) -> Result<Self, String> {
        let mut table = [0; 256];
        to.round(Cpu::PLAIN, range, numbers, &mut table, Split::ONE)?;
        Ok(Self(table))
    }

    /// Looks up each byte.
    pub fn look_up(
        &self,
        cpu: Cpu,
        input: &[u8],
        output: &mut [u8],
        split: Split,
    ) -> Result<(), String> {
        check_length("the input", input.len(), &[output.len()])?;
        split.rows(output, 1, 1, |first, to| {
            looked_up(cpu, &self.0, &input[first..first + to.len()], to);
        });
        Ok(())
    }
}
