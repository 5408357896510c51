//! A function on quantised bytes, as a table of its 256 results.

use crate::length::check_length;
use crate::{Cpu, Split};

/// The result for each byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteTable([u8; 256]);

impl ByteTable {
    /// Returns the table of a function from its 256 results.
    pub fn new(results: &[u8]) -> Result<Self, String> {
        let table = results.try_into();
        table
            .map(Self)
            .map_err(|_| format!("a table of {} results: expected 256", results.len()))
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

fn looked_up(cpu: Cpu, table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if let crate::cpu::Level::Avx512 | crate::cpu::Level::Avx512Vnni = cpu.level() {
        crate::simd::inside!(
            "avx512f,avx512bw,avx512dq,avx512vl",
            of_words,
            table: &[u8; 256],
            from: &[u8],
            to: &mut [u8]
        );
        return;
    }
    let _ = cpu;
    one_by_one(table, from, to);
}

fn one_by_one(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    for (to, byte) in to.iter_mut().zip(from) {
        *to = table[usize::from(*byte)];
    }
}

/// Looks up 32 bytes at a time: a word of two results by the upper seven bits, then one of the two by the lowest bit.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn of_words(table: &[u8; 256], from: &[u8], to: &mut [u8]) {
    use std::arch::x86_64::{
        _mm512_cvtepi16_epi8, _mm512_cvtepu8_epi16, _mm512_mask_blend_epi16,
        _mm512_permutex2var_epi16, _mm512_set1_epi16, _mm512_srli_epi16, _mm512_test_epi16_mask,
    };

    use crate::simd::x86::{load_bytes_256, load_bytes_512, store_bytes_256};

    let mut words = [load_bytes_512(&[0; 64]); 4];
    for (words, part) in words.iter_mut().zip(table.as_chunks().0) {
        *words = load_bytes_512(part);
    }
    let [a, b, c, d] = words;
    let (from, from_rest) = from.as_chunks::<32>();
    let (to, to_rest) = to.as_chunks_mut::<32>();
    for (to, from) in to.iter_mut().zip(from) {
        let bytes = _mm512_cvtepu8_epi16(load_bytes_256(from));
        let place = _mm512_srli_epi16::<1>(bytes);
        let lower = _mm512_permutex2var_epi16(a, place, b);
        let upper = _mm512_permutex2var_epi16(c, place, d);
        let is_upper = _mm512_test_epi16_mask(bytes, _mm512_set1_epi16(0x80));
        let both = _mm512_mask_blend_epi16(is_upper, lower, upper);
        let is_odd = _mm512_test_epi16_mask(bytes, _mm512_set1_epi16(1));
        let one = _mm512_mask_blend_epi16(is_odd, both, _mm512_srli_epi16::<8>(both));
        store_bytes_256(to, _mm512_cvtepi16_epi8(one));
    }
    one_by_one(table, from_rest, to_rest);
}
