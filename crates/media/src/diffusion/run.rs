//! The runs of the three models of a picture.

use image::RgbImage;
use pkgtool_engine::tensor::{DType, Tensor};

use super::noise::normal;
use super::sampler::NoiseSampler;
use super::{DiffusionOptions, DiffusionShape};
use crate::answer::PictureAnswer;

/// Pixels of a side for each number of the latents, if the painter leaves it open.
const USUAL_FACTOR: usize = 8;

/// Side of a picture in pixels, if the models leave it open.
const USUAL_SIDE: usize = 512;

/// Maximum side of a picture, in pixels.
const MAX_SIDE: usize = 4096;

/// The tokens of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptTokens {
    /// The ids, with those around the text.
    pub ids: Vec<u32>,
    /// The id that fills the encoder's input.
    pub padding: u32,
}

impl PromptTokens {
    /// Returns the tokens of a negative text and a text. `padding` is the tokenizer's; without it, the last token of each
    /// text fills the rest.
    pub fn pair(encoded: [Vec<u32>; 2], padding: Option<u32>) -> [Self; 2] {
        encoded.map(|ids| Self {
            padding: padding.or(ids.last().copied()).unwrap_or_default(),
            ids,
        })
    }
}

/// A model of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffusionModel {
    /// Converts tokens to states.
    Encoder,
    /// Predicts the noise in latents.
    Denoiser,
    /// Converts latents to a picture.
    Painter,
}

#[derive(Debug)]
enum DiffusionStage {
    /// The text to encode: the negative one first.
    Encode(usize),
    /// The outputs of a step so far.
    Denoise(Vec<Vec<f32>>),
    Paint,
    Done(RgbImage),
}

/// The runs that make a picture.
#[derive(Debug)]
pub struct DiffusionRun {
    options: DiffusionOptions,
    models: DiffusionShape,
    sampler: NoiseSampler,
    /// Inputs of the encoder: the negative text, unless the guidance needs none, and the text.
    prompts: Vec<Vec<Tensor>>,
    states: Vec<Tensor>,
    latents: Vec<f32>,
    /// Channels, height and width of the latents.
    shape: [usize; 3],
    stage: DiffusionStage,
}

impl DiffusionRun {
    /// Starts a picture. `prompts` are the encoder's inputs for the negative text and for the text.
    pub fn new(
        options: DiffusionOptions,
        models: DiffusionShape,
        [negative, text]: [Vec<Tensor>; 2],
    ) -> Result<Self, String> {
        let sampler = NoiseSampler::new(&options)?;
        let is_guided = (options.guidance - 1.0).abs() > 1e-9 || models.batch == 2;
        let prompts = if is_guided {
            vec![negative, text]
        } else {
            vec![text]
        };
        let shape = shape(&options, &models)?;
        let latents = normal(options.seed, shape.iter().product());
        let scale = sampler.first_scale();
        let latents = latents.into_iter().map(|value| scaled(value, scale));
        Ok(Self {
            latents: latents.collect(),
            stage: DiffusionStage::Encode(0),
            states: Vec::new(),
            options,
            models,
            sampler,
            prompts,
            shape,
        })
    }

    /// Returns the numbers of steps so far and in all.
    pub fn progress(&self) -> [usize; 2] {
        [self.sampler.done(), self.sampler.count()]
    }

    /// Returns the next model and its inputs; `None` when the picture is complete.
    pub fn next_run(&self) -> Result<Option<(DiffusionModel, Vec<Tensor>)>, String> {
        match &self.stage {
            DiffusionStage::Encode(text) => {
                Ok(Some((DiffusionModel::Encoder, self.prompts[*text].clone())))
            }
            DiffusionStage::Denoise(outputs) => {
                let inputs = self.denoiser_inputs(outputs.len())?;
                Ok(Some((DiffusionModel::Denoiser, inputs)))
            }
            DiffusionStage::Paint => {
                let factor = 1.0 / self.options.scaling;
                let latents = self.latents.iter().map(|value| scaled(*value, factor));
                let input = self.tensor(self.models.painter, latents.collect())?;
                Ok(Some((DiffusionModel::Painter, vec![input])))
            }
            DiffusionStage::Done(_) => Ok(None),
        }
    }

    fn tensor(&self, dtype: DType, values: Vec<f32>) -> Result<Tensor, String> {
        let [channels, height, width] = self.shape.map(|size| size as u64);
        let batch = (values.len() / self.latents.len().max(1)) as u64;
        let values = values.into_iter().map(f64::from);
        let tensor = Tensor::from_f64(dtype, vec![batch, channels, height, width], values);
        tensor.map_err(|error| error.to_string())
    }

    fn denoiser_inputs(&self, done: usize) -> Result<Vec<Tensor>, String> {
        let models = &self.models;
        let scale = self.sampler.input_scale();
        let latents = self.latents.iter().map(|value| scaled(*value, scale));
        let latents: Vec<f32> = latents.collect();
        let states: Vec<&Tensor> = if models.batch == 2 {
            self.states.iter().collect()
        } else {
            self.states.iter().skip(done).take(1).collect()
        };
        let mut shape = states[0].shape().to_vec();
        if let Some(batch) = shape.first_mut() {
            *batch = states.len() as u64;
        }
        let values = states.iter().flat_map(|states| states.to_f64());
        let text = |error: pkgtool_engine::tensor::TensorError| error.to_string();
        let states_tensor = Tensor::from_f64(models.states, shape, values).map_err(text)?;
        let time = self.sampler.time().unwrap_or_default();
        let time = if models.time.is_float() {
            time
        } else {
            time.round()
        };
        let times: u64 = models.time_shape.iter().product();
        let times = (0..times).map(|_| time);
        let time = Tensor::from_f64(models.time, models.time_shape.clone(), times).map_err(text)?;
        let latents = self.tensor(models.latents, latents.repeat(states.len()))?;
        Ok(vec![latents, time, states_tensor])
    }

    /// Takes the outputs of the model that was asked for.
    pub fn add(&mut self, outputs: &[Tensor]) -> Result<(), String> {
        let output = outputs.first().ok_or("the model has no output")?;
        let shape = output.shape();
        match std::mem::replace(&mut self.stage, DiffusionStage::Paint) {
            DiffusionStage::Encode(text) => {
                let is_first = self.states.is_empty();
                let is_alike = || self.states.iter().all(|states| states.shape() == shape);
                if shape.len() != 3 || shape[0] != 1 || !is_first && !is_alike() {
                    return Err(format!(
                        "states of the shape {shape:?}: expected [1, tokens, numbers]"
                    ));
                }
                self.states.push(output.clone());
                self.stage = if text + 1 < self.prompts.len() {
                    DiffusionStage::Encode(text + 1)
                } else {
                    DiffusionStage::Denoise(Vec::new())
                };
            }
            DiffusionStage::Denoise(mut made) => {
                let (count, values) = (self.latents.len(), output.to_f32());
                if values.len() != count * self.models.batch {
                    return Err(format!("noise of the shape {shape:?} for {count} latents"));
                }
                made.extend(values.chunks_exact(count).map(<[f32]>::to_vec));
                self.stage = if made.len() < self.states.len() {
                    DiffusionStage::Denoise(made)
                } else {
                    self.step(made)
                };
            }
            DiffusionStage::Paint => {
                let picture = picture(output, &self.options.range)?;
                self.stage = DiffusionStage::Done(picture);
            }
            DiffusionStage::Done(picture) => self.stage = DiffusionStage::Done(picture),
        }
        Ok(())
    }

    /// Moves the latents by one step. Returns what follows.
    fn step(&mut self, mut outputs: Vec<Vec<f32>>) -> DiffusionStage {
        let output = match (outputs.pop(), outputs.pop()) {
            (Some(text), Some(negative)) => {
                let pairs = negative.iter().zip(&text);
                let guided = pairs.map(|(negative, text)| {
                    negative + scaled(text - negative, self.options.guidance)
                });
                guided.collect()
            }
            (text, _) => text.unwrap_or_default(),
        };
        self.latents = self.sampler.step(&self.latents, output);
        match self.sampler.time() {
            Some(_) => DiffusionStage::Denoise(Vec::new()),
            None => DiffusionStage::Paint,
        }
    }

    /// Returns the picture.
    pub fn answer(self) -> Result<PictureAnswer, String> {
        match self.stage {
            DiffusionStage::Done(picture) => Ok(PictureAnswer { picture }),
            _ => Err("the picture is not complete".to_owned()),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "latents have few digits")]
fn scaled(value: f32, factor: f64) -> f32 {
    (f64::from(value) * factor) as f32
}

/// Returns channels, height and width of the latents.
fn shape(options: &DiffusionOptions, models: &DiffusionShape) -> Result<[usize; 3], String> {
    let side = |axis: usize, name: &str| {
        let asked = options.size[1 - axis];
        let factor = models.factor.unwrap_or(USUAL_FACTOR);
        match models.sides[axis] {
            Some(side) if asked == 0 || asked == side * factor => Ok(side),
            Some(side) => Err(format!(
                "the model makes pictures with a {name} of {} pixels, not {asked}",
                side * factor
            )),
            None => {
                let pixels = if asked == 0 { USUAL_SIDE } else { asked };
                if pixels % factor == 0 && pixels <= MAX_SIDE {
                    Ok(pixels / factor)
                } else {
                    Err(format!(
                        "a {name} of {pixels} pixels: expected a multiple of {factor} up to {MAX_SIDE}"
                    ))
                }
            }
        }
    };
    Ok([models.channels, side(0, "height")?, side(1, "width")?])
}

/// Converts the painter's output to a picture.
fn picture(output: &Tensor, range: &str) -> Result<RgbImage, String> {
    let (shape, values) = (output.shape(), output.to_f32());
    let unfit =
        || format!("a picture of the shape {shape:?}: expected 3 channels in front or behind");
    let sizes: &[u64] = match shape {
        [1, rest @ ..] if rest.len() == 3 => rest,
        rest => rest,
    };
    let (is_planar, height, width) = match *sizes {
        [3, height, width] => (true, height, width),
        [height, width, 3] => (false, height, width),
        _ => return Err(unfit()),
    };
    if values.iter().any(|value| !value.is_finite()) {
        return Err("the picture has values that are not finite".to_owned());
    }
    let is_signed = || values.iter().any(|value| *value < 0.0);
    let [factor, shift] = match range {
        "levels" => [1.0, 0.0],
        "signed" => [127.5, 127.5],
        "unit" => [255.0, 0.0],
        _ if !is_planar => [1.0, 0.0],
        _ if is_signed() => [127.5, 127.5],
        _ => [255.0, 0.0],
    };
    let plane = values.len() / 3;
    let level = |pixel: usize, channel: usize| {
        let at = if is_planar {
            channel * plane + pixel
        } else {
            pixel * 3 + channel
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to levels"
        )]
        let level = (values[at] * factor + shift).clamp(0.0, 255.0).round() as u8;
        level
    };
    let bytes = (0..plane).flat_map(|pixel| [0, 1, 2].map(|channel| level(pixel, channel)));
    let side = |size: u64| u32::try_from(size).ok().filter(|side| *side > 0);
    let known = side(width).zip(side(height));
    let picture =
        known.and_then(|(width, height)| RgbImage::from_raw(width, height, bytes.collect()));
    picture.ok_or_else(unfit)
}
