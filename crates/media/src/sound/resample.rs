//! Conversion of samples to another rate.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a clamped sample is a small number"
)]

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler as _};

/// Least number of samples that are converted at a time.
const CHUNK: usize = 4096;

/// Converts samples to another rate as they come.
pub(super) enum Resampler {
    /// The rate is right already.
    Same,
    Fft(Box<FftResampler>),
}

pub(super) struct FftResampler {
    fft: Fft<f32>,
    /// Samples per second that come in and go out.
    from: u32,
    to: u32,
    /// Samples that wait for a complete chunk.
    waiting: Vec<f32>,
    /// Samples that the filter puts in front of the sound, and that are left to drop.
    delay: usize,
    /// Samples that came in and went out.
    taken: u64,
    made: u64,
}

impl Resampler {
    pub(super) fn new(from: u32, to: u32) -> Result<Self, String> {
        if from == to {
            return Ok(Self::Same);
        }
        let rates = (from, to);
        let (from, to) = (from as usize, to as usize);
        // An even number of periods: the middle of the filter is a sample of both rates.
        let unit = 2 * from / common_divisor(from, to);
        let chunk = unit * CHUNK.div_ceil(unit);
        let fft = Fft::new(from, to, chunk, 1, FixedSync::Both);
        let fft = fft.map_err(|error| format!("{from} samples per second: {error}"))?;
        Ok(Self::Fft(Box::new(FftResampler {
            delay: fft.output_delay(),
            fft,
            from: rates.0,
            to: rates.1,
            waiting: Vec::new(),
            taken: 0,
            made: 0,
        })))
    }

    /// Adds samples, and appends what is complete.
    pub(super) fn add(&mut self, samples: &[f32], made: &mut Vec<i16>) -> Result<(), String> {
        match self {
            Self::Same => made.extend(samples.iter().map(|sample| rounded(*sample))),
            Self::Fft(fft) => {
                fft.taken += samples.len() as u64;
                fft.waiting.extend_from_slice(samples);
                while fft.waiting.len() >= fft.fft.input_frames_next() {
                    fft.convert(made, u64::MAX)?;
                }
            }
        }
        Ok(())
    }

    /// Appends the rest.
    pub(super) fn finish(&mut self, made: &mut Vec<i16>) -> Result<(), String> {
        let Self::Fft(fft) = self else {
            return Ok(());
        };
        let wanted = (fft.taken * u64::from(fft.to)).div_ceil(u64::from(fft.from));
        while fft.made < wanted {
            fft.convert(made, wanted)?;
        }
        Ok(())
    }
}

impl FftResampler {
    /// Converts a chunk; zeros stand for samples that are missing.
    fn convert(&mut self, made: &mut Vec<i16>, wanted: u64) -> Result<(), String> {
        let fault = |error: &dyn std::error::Error| format!("resampling: {error}");
        let whole = self.fft.input_frames_next();
        let partial = (self.waiting.len() < whole).then_some(self.waiting.len());
        let length = self.waiting.len();
        let input = InterleavedSlice::new(&self.waiting[..], 1, length);
        let input = input.map_err(|error| fault(&error))?;
        let indexing = partial.map(|length| Indexing::new().partial_len(length));
        let output = self.fft.process(&input, indexing.as_ref());
        let output = output.map_err(|error| fault(&error))?.take_data();
        self.waiting.drain(..length.min(whole));
        let skipped = self.delay.min(output.len());
        self.delay -= skipped;
        let left = usize::try_from(wanted - self.made).unwrap_or(usize::MAX);
        let output = &output[skipped..];
        let output = &output[..output.len().min(left)];
        made.extend(output.iter().map(|sample| rounded(*sample)));
        self.made += output.len() as u64;
        Ok(())
    }
}

fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

/// Returns the whole number for a sample between −1 and 1. Not a number becomes 0.
fn rounded(sample: f32) -> i16 {
    (sample * 32768.0).round().clamp(-32768.0, 32767.0) as i16
}

#[cfg(test)]
mod tests {
    use super::super::RATE;
    use super::*;

    #[test]
    fn tones_keep_their_length_height_and_place() {
        for rate in [
            8000_u32, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000, 12_347,
        ] {
            let count = rate as usize / 2;
            let tone = |at: usize, rate: u32| {
                let phase = std::f64::consts::TAU * 440.0 * at as f64 / f64::from(rate);
                (phase.sin() * 0.5) as f32
            };
            let samples: Vec<f32> = (0..count).map(|at| tone(at, rate)).collect();
            let mut made = Vec::new();
            let mut resampler = Resampler::new(rate, RATE).expect("a rate");
            for part in samples.chunks(1000) {
                resampler.add(part, &mut made).expect("samples");
            }
            resampler.finish(&mut made).expect("the rest");
            assert!(made.len().abs_diff(8000) <= 1, "{rate}: {}", made.len());
            // The filter rings at both ends.
            for (at, sample) in made.iter().enumerate().take(7600).skip(400) {
                let expected = tone(at, RATE) * 32768.0;
                assert!(
                    (f32::from(*sample) - expected).abs() < 40.0,
                    "{rate} {at} {sample} {expected}"
                );
            }
        }
    }
}
