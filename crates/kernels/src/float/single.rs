//! Products of one pixel with several panels of output channels at a time.

use super::packed::StoredPanel;
use super::tile::Strip;
use crate::simd::enter;

/// Number of panels computed together. The sums of a single panel would wait for each other.
const TOGETHER: usize = 4;

/// Defines the product of one pixel with `PANELS` panels of numbers that `$load` loads.
macro_rules! beside {
    (#[$set:meta] $name:ident, $number:ty, $values:ident, $load:ident) => {
        #[$set]
        fn $name<const PANELS: usize>(
            strip: &Strip<'_>,
            panels: &[StoredPanel<'_>; PANELS],
            added: Option<&[f32]>,
            output: &mut [f32],
        ) {
            let mut weights: [&[[[$number; LANES]; 2]]; PANELS] = [&[]; PANELS];
            let mut sums = [[splat(0.0); 2]; PANELS];
            for panel in 0..PANELS {
                let (bias, rest) = panels[panel]
                    .values
                    .$values()
                    .as_chunks::<LANES>()
                    .0
                    .as_chunks::<2>()
                    .0
                    .split_at(1);
                weights[panel] = rest;
                for wide in 0..2 {
                    sums[panel][wide] = $load(&bias[0][wide]);
                }
            }
            for tap in strip.taps {
                let mut here = weights;
                for panel in 0..PANELS {
                    (here[panel], weights[panel]) = weights[panel].split_at(tap.len());
                }
                for (place, input) in tap.iter().enumerate() {
                    let input = splat(*input);
                    for panel in 0..PANELS {
                        for wide in 0..2 {
                            let weight = $load(&here[panel][place][wide]);
                            sums[panel][wide] = fused(input, weight, sums[panel][wide]);
                        }
                    }
                }
            }
            let (least, most) = (splat(strip.range[0]), splat(strip.range[1]));
            for panel in 0..PANELS {
                let start = panels[panel].column - strip.column;
                let output = output[start..][..2 * LANES].as_chunks_mut::<LANES>().0;
                for wide in 0..2 {
                    let mut sum = sums[panel][wide];
                    if let Some(added) = added {
                        let added = added[start + wide * LANES..].first_chunk();
                        sum = add(sum, load(added.expect("as much as the output")));
                    }
                    store(&mut output[wide], clamp(sum, least, most));
                }
            }
        }
    };
}

/// Defines the functions for one instruction set.
macro_rules! single {
    (#[$set:meta] $registers:ident) => {
        use super::{StoredPanel, Strip, TOGETHER};
        use crate::float::half::HalfKind;
        use crate::float::packed::PanelValues;
        use crate::float::registers::$registers::{
            LANES, add, clamp, fused, load, load_brain, load_half, splat, store,
        };

        /// Multiplies one pixel by whole panels, several at a time.
        #[$set]
        pub(super) fn single(
            strip: &Strip<'_>,
            panels: &[StoredPanel<'_>],
            added: Option<&[f32]>,
            output: &mut [f32],
        ) {
            let (several, rest) = panels.as_chunks::<TOGETHER>();
            for panels in several {
                beside(strip, panels, added, output);
            }
            for panel in rest {
                beside(strip, &[*panel], added, output);
            }
        }

        /// Multiplies one pixel by `PANELS` panels, which are stored the same way.
        #[$set]
        fn beside<const PANELS: usize>(
            strip: &Strip<'_>,
            panels: &[StoredPanel<'_>; PANELS],
            added: Option<&[f32]>,
            output: &mut [f32],
        ) {
            match panels[0].values {
                PanelValues::Singles(_) => singles(strip, panels, added, output),
                PanelValues::Halves(HalfKind::Half, _) => halves(strip, panels, added, output),
                PanelValues::Halves(HalfKind::Brain, _) => brains(strip, panels, added, output),
            }
        }

        beside!(
            #[$set]
            singles,
            f32,
            singles,
            load
        );
        beside!(
            #[$set]
            halves,
            u16,
            halves,
            load_half
        );
        beside!(
            #[$set]
            brains,
            u16,
            halves,
            load_brain
        );
    };
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    single!(
        #[target_feature(enable = "avx2,fma,f16c")]
        avx2
    );
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    single!(
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        avx512
    );
}

#[cfg(target_arch = "aarch64")]
mod neon {
    single!(
        #[target_feature(enable = "neon")]
        neon
    );
}

mod plain {
    single!(
        #[inline(never)]
        plain
    );
}

enter! {
    /// Multiplies one pixel by panels without zero channels. `output` and `added` start at the
    /// strip's column.
    fn single(strip: &Strip<'_>, panels: &[StoredPanel<'_>], added: Option<&[f32]>, output: &mut [f32]);
}
