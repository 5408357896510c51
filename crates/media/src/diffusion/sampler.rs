//! Steps from noise to a picture: PNDM (without Runge-Kutta steps), DDIM and Euler, as the diffusers library has them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "steps are few, latents have few digits"
)]

use std::f64::consts::FRAC_PI_2;

use super::DiffusionOptions;

/// Weights of the last outputs, newest first, by their number.
const MULTISTEP: [&[f64]; 4] = [
    &[1.0],
    &[3.0 / 2.0, -1.0 / 2.0],
    &[23.0 / 12.0, -16.0 / 12.0, 5.0 / 12.0],
    &[55.0 / 24.0, -59.0 / 24.0, 37.0 / 24.0, -9.0 / 24.0],
];

/// The largest growth of noise in a cosine schedule.
const MAX_BETA: f64 = 0.999;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepRule {
    Pndm,
    Ddim,
    Euler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prediction {
    Noise,
    Velocity,
    Picture,
}

/// The steps of a run.
#[derive(Debug)]
pub(super) struct NoiseSampler {
    rule: StepRule,
    prediction: Prediction,
    /// Share of the picture in the latents, by step of the training.
    alphas: Vec<f64>,
    final_alpha: f64,
    clip: bool,
    /// Steps of the training between two steps.
    ratio: usize,
    times: Vec<f64>,
    /// Noise at each step and behind the last one, for Euler.
    sigmas: Vec<f64>,
    scales_first: f64,
    /// Number of steps so far.
    done: usize,
    /// The last outputs, oldest first.
    outputs: Vec<Vec<f32>>,
    /// The latents before the first step.
    first: Vec<f32>,
}

impl NoiseSampler {
    pub(super) fn new(options: &DiffusionOptions) -> Result<Self, String> {
        let rule = match options.sampler.as_str() {
            "ddim" => StepRule::Ddim,
            "euler" => StepRule::Euler,
            _ => StepRule::Pndm,
        };
        let prediction = match options.prediction.as_str() {
            "v_prediction" => Prediction::Velocity,
            "sample" => Prediction::Picture,
            _ => Prediction::Noise,
        };
        if rule == StepRule::Pndm && prediction == Prediction::Picture {
            return Err(
                "the sampler pndm needs a prediction of epsilon or v_prediction".to_owned(),
            );
        }
        if options.steps > options.train_steps {
            let (steps, most) = (options.steps, options.train_steps);
            return Err(format!("{steps} steps: expected at most {most}"));
        }
        let alphas = alphas(options);
        let times = times(options, rule);
        let last = times.iter().copied().fold(0.0, f64::max);
        if last > (alphas.len() - 1) as f64 {
            let (steps, offset) = (options.steps, options.offset);
            return Err(format!(
                "{steps} steps with the offset {offset} lie behind the training's {}: set fewer steps",
                alphas.len()
            ));
        }
        let mut sampler = Self {
            final_alpha: if options.final_one { 1.0 } else { alphas[0] },
            clip: options.clip,
            ratio: options.train_steps / options.steps,
            rule,
            prediction,
            times,
            sigmas: Vec::new(),
            scales_first: 1.0,
            done: 0,
            outputs: Vec::new(),
            first: Vec::new(),
            alphas,
        };
        if rule == StepRule::Euler {
            let noise = |time: f64| sampler.noise_at(time);
            sampler.sigmas = sampler.times.iter().map(|time| noise(*time)).collect();
            let most = sampler.sigmas.iter().copied().fold(0.0, f64::max);
            let is_leading = spacing(options, rule) == "leading";
            sampler.scales_first = if is_leading { most.hypot(1.0) } else { most };
            sampler.sigmas.push(0.0);
        }
        Ok(sampler)
    }

    /// Returns the noise over the picture at a time between steps of the training.
    fn noise_at(&self, time: f64) -> f64 {
        let of_step = |step: usize| ((1.0 - self.alphas[step]) / self.alphas[step]).sqrt();
        let (low, high) = (time.floor() as usize, time.ceil() as usize);
        let share = time - time.floor();
        of_step(low) * (1.0 - share) + of_step(high) * share
    }

    /// Returns the number of steps.
    pub(super) fn count(&self) -> usize {
        self.times.len()
    }

    /// Returns the number of steps so far.
    pub(super) fn done(&self) -> usize {
        self.done
    }

    /// Returns the time of the next step; `None` behind the last one.
    pub(super) fn time(&self) -> Option<f64> {
        self.times.get(self.done).copied()
    }

    /// Returns the factor of the first noise.
    pub(super) fn first_scale(&self) -> f64 {
        self.scales_first
    }

    /// Returns the factor of the latents as the denoiser takes them.
    pub(super) fn input_scale(&self) -> f64 {
        match self.rule {
            StepRule::Euler => 1.0 / self.sigmas[self.done].hypot(1.0),
            _ => 1.0,
        }
    }

    /// Returns the latents behind a step, for the denoiser's output.
    pub(super) fn step(&mut self, latents: &[f32], output: Vec<f32>) -> Vec<f32> {
        let next = match self.rule {
            StepRule::Pndm => self.pndm(latents, output),
            StepRule::Ddim => self.ddim(latents, &output),
            StepRule::Euler => self.euler(latents, &output),
        };
        self.done += 1;
        next
    }

    fn alpha(&self, time: f64) -> f64 {
        if time < 0.0 {
            self.final_alpha
        } else {
            self.alphas[time as usize]
        }
    }

    fn pndm(&mut self, latents: &[f32], output: Vec<f32>) -> Vec<f32> {
        let time = self.times[self.done];
        let ratio = self.ratio as f64;
        let (mut from, mut to) = (time, time - ratio);
        let (mixed, start) = if self.done == 1 {
            // The second step repeats the first one with the mean of both outputs.
            (from, to) = (time + ratio, time);
            let first = &self.outputs[0];
            let pairs = output.iter().zip(first);
            let mean = pairs.map(|(a, b)| (a + b) / 2.0).collect();
            (mean, std::mem::take(&mut self.first))
        } else {
            if self.done == 0 {
                self.first = latents.to_vec();
            }
            self.outputs.push(output);
            let kept = self.outputs.len().saturating_sub(MULTISTEP.len());
            self.outputs.drain(..kept);
            let weights = MULTISTEP[self.outputs.len() - 1];
            let mut mixed = vec![0.0_f32; latents.len()];
            for (weight, output) in weights.iter().zip(self.outputs.iter().rev()) {
                for (sum, value) in mixed.iter_mut().zip(output) {
                    *sum += *weight as f32 * value;
                }
            }
            (mixed, latents.to_vec())
        };
        let (a, b) = (self.alpha(from), self.alpha(to));
        let factor = (b / a).sqrt();
        let divisor = a * (1.0 - b).sqrt() + (a * (1.0 - a) * b).sqrt();
        let noise_factor = (b - a) / divisor;
        let pairs = start.iter().zip(&mixed);
        let next = pairs.map(|(latent, output)| {
            let (latent, output) = (f64::from(*latent), f64::from(*output));
            let noise = match self.prediction {
                Prediction::Velocity => a.sqrt() * output + (1.0 - a).sqrt() * latent,
                _ => output,
            };
            (factor * latent - noise_factor * noise) as f32
        });
        next.collect()
    }

    fn ddim(&self, latents: &[f32], output: &[f32]) -> Vec<f32> {
        let time = self.times[self.done];
        let (a, b) = (self.alpha(time), self.alpha(time - self.ratio as f64));
        let (signal, spread) = (a.sqrt(), (1.0 - a).sqrt());
        let pairs = latents.iter().zip(output);
        let next = pairs.map(|(latent, output)| {
            let (latent, output) = (f64::from(*latent), f64::from(*output));
            let (picture, noise) = match self.prediction {
                Prediction::Noise => ((latent - spread * output) / signal, output),
                Prediction::Picture => (output, (latent - signal * output) / spread),
                Prediction::Velocity => (
                    signal * latent - spread * output,
                    signal * output + spread * latent,
                ),
            };
            let picture = if self.clip {
                picture.clamp(-1.0, 1.0)
            } else {
                picture
            };
            (b.sqrt() * picture + (1.0 - b).sqrt() * noise) as f32
        });
        next.collect()
    }

    fn euler(&self, latents: &[f32], output: &[f32]) -> Vec<f32> {
        let (sigma, next) = (self.sigmas[self.done], self.sigmas[self.done + 1]);
        let pairs = latents.iter().zip(output);
        let next = pairs.map(|(latent, output)| {
            let (latent, output) = (f64::from(*latent), f64::from(*output));
            let slope = match self.prediction {
                Prediction::Noise => output,
                Prediction::Picture => (latent - output) / sigma,
                Prediction::Velocity => {
                    let power = sigma * sigma + 1.0;
                    let picture = latent / power - output * sigma / power.sqrt();
                    (latent - picture) / sigma
                }
            };
            (latent + slope * (next - sigma)) as f32
        });
        next.collect()
    }
}

/// Returns the share of the picture in the latents at each step of the training.
fn alphas(options: &DiffusionOptions) -> Vec<f64> {
    let count = options.train_steps;
    let [start, end] = options.beta_range;
    let last = count.saturating_sub(1).max(1) as f64;
    let cosine = |step: usize| {
        let share = step as f64 / count as f64;
        ((share + 0.008) / 1.008 * FRAC_PI_2).cos().powi(2)
    };
    let beta = |step: usize| {
        let share = step as f64 / last;
        match options.betas.as_str() {
            "linear" => start + share * (end - start),
            "squaredcos_cap_v2" => (1.0 - cosine(step + 1) / cosine(step)).min(MAX_BETA),
            _ => (start.sqrt() + share * (end.sqrt() - start.sqrt())).powi(2),
        }
    };
    let betas = (0..count).map(beta);
    let alphas = betas.scan(1.0, |product, beta| {
        *product *= 1.0 - beta;
        Some(*product)
    });
    alphas.collect()
}

fn spacing(options: &DiffusionOptions, rule: StepRule) -> &str {
    match (options.spacing.as_str(), rule) {
        ("auto", StepRule::Euler) => "linspace",
        ("auto", _) => "leading",
        (spacing, _) => spacing,
    }
}

/// Returns the steps of the training that a run takes, the noisiest first.
fn times(options: &DiffusionOptions, rule: StepRule) -> Vec<f64> {
    let (steps, all) = (options.steps, options.train_steps);
    let rounded = |time: f64| match rule {
        StepRule::Euler => time,
        _ => time.round_ties_even(),
    };
    let ascending: Vec<f64> = match spacing(options, rule) {
        "linspace" => {
            let share = (all - 1) as f64 / (steps.saturating_sub(1).max(1)) as f64;
            (0..steps)
                .map(|step| rounded(step as f64 * share))
                .collect()
        }
        "trailing" => {
            let ratio = all as f64 / steps as f64;
            let times = (1..=steps).map(|step| (step as f64 * ratio).round_ties_even() - 1.0);
            times.collect()
        }
        _ => {
            let ratio = all / steps;
            (0..steps)
                .map(|step| (step * ratio + options.offset) as f64)
                .collect()
        }
    };
    let mut times: Vec<f64> = ascending.into_iter().rev().collect();
    if rule == StepRule::Pndm && times.len() > 1 {
        // The second step is taken twice.
        times.insert(1, times[1]);
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value as Json;

    fn options(case: &Json) -> DiffusionOptions {
        let whole = |name: &str| case[name].as_u64().expect("a number") as usize;
        let word = |name: &str| case[name].as_str().expect("a word").to_owned();
        let flag = |name: &str| case[name].as_bool().expect("a flag");
        let beta = |place: usize| case["beta_range"][place].as_f64().expect("a number");
        DiffusionOptions {
            guidance: 1.0,
            steps: whole("steps"),
            seed: 0,
            negative: String::new(),
            size: [0, 0],
            sampler: word("sampler"),
            prediction: word("prediction"),
            betas: word("betas"),
            beta_range: [beta(0), beta(1)],
            train_steps: whole("train_steps"),
            offset: whole("offset"),
            spacing: word("spacing"),
            final_one: flag("final_one"),
            clip: flag("clip"),
            scaling: 1.0,
            range: "auto".to_owned(),
        }
    }

    fn numbers(list: &Json) -> Vec<f64> {
        let list = list.as_array().expect("a list").iter();
        list.map(|value| value.as_f64().expect("a number"))
            .collect()
    }

    /// The truth is that of `tests/golden/diffusion.py`.
    #[test]
    fn steps_are_those_of_numpy() {
        let truth = include_str!("../../tests/golden/diffusion.json");
        let truth: Json = serde_json::from_str(truth).expect("JSON");
        for case in truth["cases"].as_array().expect("a list") {
            let mut sampler = NoiseSampler::new(&options(case)).expect("valid");
            let scale = sampler.first_scale();
            let start = numbers(&truth["start"]).into_iter();
            let mut latents: Vec<f32> = start.map(|value| (value * scale) as f32).collect();
            while let Some(time) = sampler.time() {
                let scale = sampler.input_scale();
                let output = latents.iter().enumerate().map(|(place, latent)| {
                    let latent = f64::from(*latent) * scale;
                    ((2.5 * latent + place as f64).sin() * 0.8 + time / 2000.0) as f32
                });
                let output = output.collect();
                latents = sampler.step(&latents, output);
            }
            for (own, expected) in latents.iter().zip(numbers(&case["latents"])) {
                let own = f64::from(*own);
                assert!(
                    (own - expected).abs() < 2e-4 * expected.abs().max(1.0),
                    "{own} {expected} {case}"
                );
            }
        }
    }

    #[test]
    fn steps_beyond_the_training_have_a_reason() {
        let truth = include_str!("../../tests/golden/diffusion.json");
        let truth: Json = serde_json::from_str(truth).expect("JSON");
        let usual = options(&truth["cases"][0]);
        for (changed, part) in [
            (
                DiffusionOptions {
                    steps: 1001,
                    ..usual.clone()
                },
                "expected at most 1000",
            ),
            (
                DiffusionOptions {
                    steps: 1000,
                    ..usual.clone()
                },
                "set fewer steps",
            ),
            (
                DiffusionOptions {
                    prediction: "sample".to_owned(),
                    ..usual
                },
                "needs a prediction of epsilon",
            ),
        ] {
            let error = NoiseSampler::new(&changed).expect_err("a fault");
            assert!(error.contains(part), "{error}");
        }
    }
}
