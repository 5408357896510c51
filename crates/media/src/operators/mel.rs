//! The logarithmic mel spectrum of a sound, as Whisper reads it.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "frequencies and weights need no more precision"
)]

use realfft::RealFftPlanner;

use super::{Array, Data, DataKind, Operator, StepContext};
use crate::operators::{Arguments, Parameter, ParameterKind, sounds};
use crate::sound;

/// Maximum number of samples of a window, a minute.
const MAX_SAMPLES: u64 = 60 * sound::RATE as u64;

/// Least power that has a logarithm of its own.
const MIN_POWER: f32 = 1e-10;

/// Range of the logarithms below the largest one.
const RANGE: f32 = 8.0;

/// Frequency up to which Slaney's mel scale is linear, in hertz, and its value there.
const LINEAR: (f64, f64) = (1000.0, 15.0);

pub(super) const TABLE: &[Operator] = &[Operator {
    name: "log_mel",
    from: &[DataKind::Sound],
    to: DataKind::Values,
    parameters: &[
        Parameter {
            name: "bands",
            kind: ParameterKind::Whole(1, 512),
            default: None,
        },
        // Samples of the window; zeros fill a shorter sound.
        Parameter {
            name: "samples",
            kind: ParameterKind::Whole(1, MAX_SAMPLES),
            default: None,
        },
        Parameter {
            name: "length",
            kind: ParameterKind::Whole(16, 4096),
            default: Some("400"),
        },
        Parameter {
            name: "hop",
            kind: ParameterKind::Whole(16, 4096),
            default: Some("160"),
        },
    ],
    run: log_mel,
}];

fn log_mel(from: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let [bands, samples, length, hop] =
        ["bands", "samples", "length", "hop"].map(|name| arguments.whole(name));
    let mut window = sounds::sound(from)?.to_vec();
    window.resize(samples, 0.0);
    let half = length / 2;
    if samples <= half {
        return Err(format!(
            "`samples` {samples} is too small for `length` {length}"
        ));
    }
    let window = reflected(&window, half);
    let frames = samples / hop;
    let mut spectrum = PowerSpectrum::new(length);
    let filters = filters(bands, length);
    let mut values = vec![0.0_f32; bands * frames];
    for frame in 0..frames {
        let power = spectrum.of(&window[frame * hop..][..length])?;
        for (band, filter) in filters.iter().enumerate() {
            let weights = filter.weights.iter().zip(&power[filter.start..]);
            let sum: f32 = weights.map(|(weight, power)| weight * power).sum();
            values[band * frames + frame] = sum.max(MIN_POWER).log10();
        }
    }
    let most = values.iter().copied().fold(f32::MIN, f32::max);
    for value in &mut values {
        *value = (value.max(most - RANGE) + 4.0) / 4.0;
    }
    Ok(Data::Values(Array {
        shape: vec![1, bands, frames],
        values,
    }))
}

/// Returns the samples with `half` mirrored ones on each side.
fn reflected(samples: &[f32], half: usize) -> Vec<f32> {
    let before = samples[1..=half].iter().rev();
    let after = samples[samples.len() - half - 1..samples.len() - 1]
        .iter()
        .rev();
    before.chain(samples).chain(after).copied().collect()
}

/// The power of each frequency of a frame.
struct PowerSpectrum {
    taper: Vec<f32>,
    fft: std::sync::Arc<dyn realfft::RealToComplex<f32>>,
    frame: Vec<f32>,
    made: Vec<realfft::num_complex::Complex<f32>>,
    power: Vec<f32>,
}

impl PowerSpectrum {
    fn new(length: usize) -> Self {
        let fft = RealFftPlanner::new().plan_fft_forward(length);
        Self {
            taper: sounds::taper("hann", length),
            frame: fft.make_input_vec(),
            made: fft.make_output_vec(),
            power: Vec::new(),
            fft,
        }
    }

    fn of(&mut self, samples: &[f32]) -> Result<&[f32], String> {
        let tapered = samples.iter().zip(&self.taper);
        for (value, (sample, weight)) in self.frame.iter_mut().zip(tapered) {
            *value = sample * weight;
        }
        let done = self.fft.process(&mut self.frame, &mut self.made);
        done.map_err(|error| error.to_string())?;
        self.power.clear();
        self.power.extend(
            self.made
                .iter()
                .map(realfft::num_complex::Complex::norm_sqr),
        );
        Ok(&self.power)
    }
}

/// The weights of a band, from its first frequency on.
struct MelFilter {
    start: usize,
    weights: Vec<f32>,
}

/// Returns triangles of equal area on Slaney's mel scale, from 0 to half of the rate.
fn filters(bands: usize, length: usize) -> Vec<MelFilter> {
    let rate = f64::from(sound::RATE);
    let top = mel(rate / 2.0);
    let edge = |place: usize| hertz(top * place as f64 / (bands + 1) as f64);
    let bins = length / 2 + 1;
    let filters = (0..bands).map(|band| {
        let [left, middle, right] = [band, band + 1, band + 2].map(edge);
        let weight = |bin: usize| {
            let at = rate * bin as f64 / length as f64;
            let height = ((at - left) / (middle - left)).min((right - at) / (right - middle));
            height.max(0.0) * 2.0 / (right - left)
        };
        let weights: Vec<f64> = (0..bins).map(weight).collect();
        let start = weights.iter().position(|weight| *weight > 0.0).unwrap_or(0);
        let end = weights
            .iter()
            .rposition(|weight| *weight > 0.0)
            .map_or(start, |it| it + 1);
        MelFilter {
            start,
            weights: weights[start..end]
                .iter()
                .map(|weight| *weight as f32)
                .collect(),
        }
    });
    filters.collect()
}

fn mel(hertz: f64) -> f64 {
    let (limit, value) = LINEAR;
    if hertz < limit {
        return hertz * value / limit;
    }
    value + (hertz / limit).ln() / step()
}

fn hertz(mel: f64) -> f64 {
    let (limit, value) = LINEAR;
    if mel < value {
        return mel * limit / value;
    }
    limit * ((mel - value) * step()).exp()
}

/// Logarithm of the ratio of frequencies that are one mel apart.
fn step() -> f64 {
    6.4_f64.ln() / 27.0
}
