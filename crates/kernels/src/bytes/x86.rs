//! x86-64 registers of the byte kernels.
//!
//! Dot products multiply unsigned bytes by signed ones. Processors without an instruction for that
//! multiply pairs of integers of 16 bits.

/// Defines operations on 512-bit registers, and the kernels on them.
macro_rules! of_512_bits {
    ($name:ident, $features:literal, $(#[$dot:meta])* dot: $($dots:tt)*) => {
        #[doc = concat!("Registers of 512 bits with ", $features, ".")]
        pub(super) mod $name {
            use std::arch::x86_64::*;
            use crate::bytes::ByteLimits;
            use crate::bytes::dense::{Dense, BytePanel, Part, DenseRows};
            use crate::bytes::depthwise::{ByteDepthwise, WindowView};
            use crate::bytes::tiles::{CHANNELS, Line, TilePlace, TileTarget, blocks, chunk, dot_products, part, tiles};
            use crate::simd::x86::*;

            /// Sums of 16 channels.
            type Register = __m512i;
            /// Number of registers for a line of weights.
            const PARTS: usize = 1;
            /// Number of lines for a word of a block.
            const BLOCK_LINES: usize = 4;
            /// Number of channels in a block.
            const WIDTH: usize = 64;

            #[target_feature(enable = $features)]
            #[inline]
            fn zero() -> Register {
                _mm512_setzero_si512()
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn integers(from: &[i32; 16]) -> [Register; PARTS] {
                [load_integers_512(from)]
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn weights(line: &Line) -> [Register; PARTS] {
                [load_bytes_512(&line.0)]
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn flipped<const FLIP: bool>(bytes: Register) -> Register {
                if FLIP {
                    _mm512_xor_si512(bytes, _mm512_set1_epi8(i8::MIN))
                } else {
                    bytes
                }
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn splat<const FLIP: bool>(word: [u8; 4]) -> Register {
                flipped::<FLIP>(_mm512_set1_epi32(i32::from_ne_bytes(word)))
            }

            /// Returns the numbers to store, in 32 bits each.
            #[target_feature(enable = $features)]
            #[inline]
            fn rounded(sums: Register, factors: &[f32; 16], limits: ByteLimits) -> Register {
                let scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), load_floats_512(factors));
                let raised = _mm512_max_ps(scaled, _mm512_set1_ps(limits.least));
                let held = _mm512_min_ps(raised, _mm512_set1_ps(limits.most));
                _mm512_add_epi32(_mm512_cvtps_epi32(held), _mm512_set1_epi32(limits.zero))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn store_bytes(
                to: &mut [u8; 16],
                [sums]: [Register; PARTS],
                factors: &[f32; 16],
                limits: ByteLimits,
            ) {
                store_bytes_128(to, _mm512_cvtepi32_epi8(rounded(sums, factors, limits)));
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn store_wide(
                to: &mut [u8; WIDTH],
                sums: [[Register; PARTS]; BLOCK_LINES],
                factors: &[[f32; 16]],
                limits: ByteLimits,
            ) {
                let low_byte = _mm512_set1_epi32(0xff);
                let a = _mm512_and_si512(rounded(sums[0][0], &factors[0], limits), low_byte);
                let b = _mm512_and_si512(rounded(sums[1][0], &factors[1], limits), low_byte);
                let c = _mm512_and_si512(rounded(sums[2][0], &factors[2], limits), low_byte);
                let d = _mm512_and_si512(rounded(sums[3][0], &factors[3], limits), low_byte);
                let (low, high) = (_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
                store_bytes_512(to, _mm512_packus_epi16(low, high));
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn store_integers(to: &mut [i32; 16], [sums]: [Register; PARTS]) {
                store_integers_512(to, sums);
            }

            $($dots)*

            tiles!(
                #[target_feature(enable = $features)]
                rows: [1 2 3 4 5 6 7 8 9 10], lines: [1 2]
            );
            dot_products!(#[target_feature(enable = $features)]);
        }
    };
}

/// Defines operations on 256-bit registers, and the kernels on them.
macro_rules! of_256_bits {
    ($name:ident, $features:literal, { $($dots:tt)* } $($kernels:tt)*) => {
        #[doc = concat!("Registers of 256 bits with ", $features, ".")]
        pub(super) mod $name {
            use std::arch::x86_64::*;
            use crate::bytes::ByteLimits;
            use crate::bytes::depthwise::{ByteDepthwise, WindowView};
            use crate::bytes::tiles::{Line, blocks, chunk, part};
            use crate::simd::x86::*;

            /// Sums of 8 channels.
            type Register = __m256i;
            /// Number of registers for a line of weights.
            const PARTS: usize = 2;
            /// Number of lines for a word of a block.
            const BLOCK_LINES: usize = 2;
            /// Number of channels in a block.
            const WIDTH: usize = 32;

            #[target_feature(enable = $features)]
            #[inline]
            fn zero() -> Register {
                _mm256_setzero_si256()
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn integers(from: &[i32; 16]) -> [Register; PARTS] {
                let [low, high] = halves(from);
                [load_integers_256(low), load_integers_256(high)]
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn weights(line: &Line) -> [Register; PARTS] {
                let [low, high] = halves(&line.0);
                [load_bytes_256(low), load_bytes_256(high)]
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn flipped<const FLIP: bool>(bytes: Register) -> Register {
                if FLIP {
                    _mm256_xor_si256(bytes, _mm256_set1_epi8(i8::MIN))
                } else {
                    bytes
                }
            }

            /// Returns the numbers to store, in the low byte of 32 bits each.
            #[target_feature(enable = $features)]
            #[inline]
            fn rounded(
                [low, high]: [Register; PARTS],
                factors: &[f32; 16],
                limits: ByteLimits,
            ) -> Register {
                let [of_low, of_high] = halves(factors);
                let low = _mm256_mul_ps(_mm256_cvtepi32_ps(low), load_floats_256(of_low));
                let high = _mm256_mul_ps(_mm256_cvtepi32_ps(high), load_floats_256(of_high));
                let (least, most) = (_mm256_set1_ps(limits.least), _mm256_set1_ps(limits.most));
                let low = _mm256_min_ps(_mm256_max_ps(low, least), most);
                let high = _mm256_min_ps(_mm256_max_ps(high, least), most);
                let zero = _mm256_set1_epi32(limits.zero);
                let low_byte = _mm256_set1_epi32(0xff);
                let low = _mm256_add_epi32(_mm256_cvtps_epi32(low), zero);
                let high = _mm256_add_epi32(_mm256_cvtps_epi32(high), zero);
                let low = _mm256_and_si256(low, low_byte);
                _mm256_packs_epi32(low, _mm256_and_si256(high, low_byte))
            }

            #[target_feature(enable = $features)]
            #[inline]
            fn store_wide(
                to: &mut [u8; WIDTH],
                [low, high]: [[Register; PARTS]; BLOCK_LINES],
                factors: &[[f32; 16]],
                limits: ByteLimits,
            ) {
                let low = rounded(low, &factors[0], limits);
                let high = rounded(high, &factors[1], limits);
                store_bytes_256(to, _mm256_packus_epi16(low, high));
            }

            $($dots)*


            $($kernels)*
        }
    };
}

/// Defines the remaining operations of tiles on 256-bit registers.
macro_rules! tiles_of_256_bits {
    ($features:literal) => {
        use crate::bytes::dense::{Dense, BytePanel, Part, DenseRows};
        use crate::bytes::tiles::{CHANNELS, TilePlace, TileTarget, dot_products, tiles};

        #[target_feature(enable = $features)]
        #[inline]
        fn splat<const FLIP: bool>(word: [u8; 4]) -> Register {
            flipped::<FLIP>(_mm256_set1_epi32(i32::from_ne_bytes(word)))
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_bytes(
            to: &mut [u8; 16],
            sums: [Register; PARTS],
            factors: &[f32; 16],
            limits: ByteLimits,
        ) {
            let pairs = rounded(sums, factors, limits);
            let ordered = _mm256_permute4x64_epi64::<0b11_01_10_00>(pairs);
            let low = _mm256_castsi256_si128(ordered);
            let high = _mm256_extracti128_si256::<1>(ordered);
            store_bytes_128(to, _mm_packus_epi16(low, high));
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn store_integers(to: &mut [i32; 16], [low, high]: [Register; PARTS]) {
            if let [to_low, to_high] = to.as_chunks_mut::<8>().0 {
                store_integers_256(to_low, low);
                store_integers_256(to_high, high);
            }
        }

        tiles!(#[target_feature(enable = $features)] rows: [1 2 3 4 5 6], lines: [1]);
        dot_products!(#[target_feature(enable = $features)]);
    };
}

/// Defines dot products of four bytes, with a single instruction.
macro_rules! dot_of_bytes {
    ($features:literal, $dot:ident, $load:ident
     $low_bytes:ident $high_bytes:ident $low_pairs:ident $high_pairs:ident, $words:ident) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn dot(sums: Register, words: Register, weights: Register) -> Register {
            $dot(sums, words, weights)
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn interleaved<const FLIP: bool>(
            taps: [&[u8; WIDTH]; 4],
        ) -> [[Register; PARTS]; BLOCK_LINES] {
            let [a, b, c, d] = taps;
            let (a, b) = (flipped::<FLIP>($load(a)), flipped::<FLIP>($load(b)));
            let (c, d) = (flipped::<FLIP>($load(c)), flipped::<FLIP>($load(d)));
            let (low, high) = ($low_bytes(a, b), $high_bytes(a, b));
            let (lower, higher) = ($low_bytes(c, d), $high_bytes(c, d));
            $words!(
                $low_pairs(low, lower), $high_pairs(low, lower),
                $low_pairs(high, higher), $high_pairs(high, higher)
            )
        }

        blocks!(#[target_feature(enable = $features)] taps: 4 [a b c d]);
    };
}

/// Defines dot products of two integers of 16 bits.
macro_rules! dot_of_pairs {
    ($features:literal, $multiply:ident $add:ident $none:ident, $load:ident
     $low_bytes:ident $high_bytes:ident, $words:ident) => {
        #[target_feature(enable = $features)]
        #[inline]
        fn dot(sums: Register, words: Register, weights: Register) -> Register {
            $add(sums, $multiply(words, weights))
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn interleaved<const FLIP: bool>(
            taps: [&[u8; WIDTH]; 2],
        ) -> [[Register; PARTS]; BLOCK_LINES] {
            let [a, b] = taps;
            let (a, b) = (flipped::<FLIP>($load(a)), flipped::<FLIP>($load(b)));
            let (low, high) = ($low_bytes(a, b), $high_bytes(a, b));
            let none = $none();
            $words!(
                $low_bytes(low, none), $high_bytes(low, none),
                $low_bytes(high, none), $high_bytes(high, none)
            )
        }

        blocks!(#[target_feature(enable = $features)] taps: 2 [a b]);
    };
}

/// Arranges the words of a block in registers of 512 bits.
macro_rules! words_of_512_bits {
    ($a:expr, $b:expr, $c:expr, $d:expr) => {
        [[$a], [$b], [$c], [$d]]
    };
}

/// Arranges the words of a block in registers of 256 bits.
macro_rules! words_of_256_bits {
    ($a:expr, $b:expr, $c:expr, $d:expr) => {
        [[$a, $b], [$c, $d]]
    };
}

/// Returns the two halves of an array.
#[inline]
fn halves<T, const WHOLE: usize, const HALF: usize>(whole: &[T; WHOLE]) -> [&[T; HALF]; 2] {
    const { assert!(WHOLE == 2 * HALF, "two halves") };
    match whole.as_chunks() {
        ([low, high], _) => [low, high],
        _ => unreachable!("an array of two halves"),
    }
}

of_512_bits!(
    vnni_512, "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    dot: dot_of_bytes!(
        "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", _mm512_dpbusd_epi32, load_bytes_512
        _mm512_unpacklo_epi8 _mm512_unpackhi_epi8 _mm512_unpacklo_epi16 _mm512_unpackhi_epi16,
        words_of_512_bits
    );
);
of_512_bits!(
    pairs_512, "avx512f,avx512bw,avx512dq,avx512vl",
    dot: dot_of_pairs!(
        "avx512f,avx512bw,avx512dq,avx512vl",
        _mm512_madd_epi16 _mm512_add_epi32 _mm512_setzero_si512, load_bytes_512
        _mm512_unpacklo_epi8 _mm512_unpackhi_epi8, words_of_512_bits
    );
);
of_256_bits!(
    narrow_vnni_512,
    "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
    {
        use super::halves;
        dot_of_bytes!(
            "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni",
            _mm256_dpbusd_epi32, load_bytes_256
            _mm256_unpacklo_epi8 _mm256_unpackhi_epi8 _mm256_unpacklo_epi16 _mm256_unpackhi_epi16,
            words_of_256_bits
        );
    }
);
of_256_bits!(
    vnni_256, "avx2,fma,avxvnni",
    {
        use super::halves;
        dot_of_bytes!(
            "avx2,fma,avxvnni", _mm256_dpbusd_avx_epi32, load_bytes_256
            _mm256_unpacklo_epi8 _mm256_unpackhi_epi8 _mm256_unpacklo_epi16 _mm256_unpackhi_epi16,
            words_of_256_bits
        );
    }
    tiles_of_256_bits!("avx2,fma,avxvnni");
);
of_256_bits!(
    pairs_256, "avx2,fma",
    {
        use super::halves;
        dot_of_pairs!(
            "avx2,fma", _mm256_madd_epi16 _mm256_add_epi32 _mm256_setzero_si256, load_bytes_256
            _mm256_unpacklo_epi8 _mm256_unpackhi_epi8, words_of_256_bits
        );
    }
    tiles_of_256_bits!("avx2,fma");
);
