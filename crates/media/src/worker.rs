//! Work of recipes in a parser process: untrusted pictures, sounds and texts are processed there, within limits.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use image::RgbImage;
use pkgtool_engine::runtime::parsers::{
    JobAnswer, JobLimits, ParserClient, ParserError, ParserJob, ParserTask,
};
use pkgtool_engine::runtime::process::attached::{TensorHead, receive_tensors};
use pkgtool_engine::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::answer::TextAnswer;
use crate::draw;
use crate::picture::{self, Geometry, PictureFormat, Quad};
use crate::recipe::{FittedRecipe, Preparation};
use crate::sound::{self, Sound};
use crate::voice;

/// Name of this work, as jobs of parser processes carry it.
pub const RECIPE_WORK: &str = "recipes";

/// Limits for one picture: the largest one decoded, a copy of it, and the planes of the model's input.
const LIMITS: JobLimits = JobLimits {
    memory: 512 << 20,
    time: Duration::from_secs(20),
};

/// Limits for one sound: the longest one decoded, while it grows, and the file.
const SOUND_LIMITS: JobLimits = JobLimits {
    memory: 768 << 20,
    time: Duration::from_mins(2),
};

/// Maximum number of pixels of all parts that are cut out of a picture.
const MAX_CUT_PIXELS: f64 = 64e6;

/// Size of inputs at which a cut ends, in bytes; the next one continues.
const CUT_BYTES: usize = 24 << 20;

/// The task for the process.
#[derive(Debug, Serialize, Deserialize)]
enum RecipeTask<'t> {
    /// Convert the picture to the model's inputs.
    Prepare(Cow<'t, Preparation>),
    /// Draw the answer over the picture. The model's outputs follow the picture in the payload.
    Draw(Box<DrawTask<'t>>),
    /// Decode the sound.
    Hear,
    /// Convert the English text to phonemes.
    English,
    /// Convert each of these parts of the picture to a model's inputs.
    Cut(Cow<'t, Preparation>, Vec<Quad>),
}

#[derive(Debug, Serialize, Deserialize)]
struct DrawTask<'t> {
    recipe: Cow<'t, FittedRecipe>,
    geometry: Geometry,
    outputs: Vec<TensorHead>,
    /// The texts of the lines, if a model has read them.
    texts: Option<Vec<TextAnswer>>,
    format: PictureFormat,
}

/// The model's inputs for a picture.
#[derive(Debug)]
pub struct PreparedPicture {
    /// The inputs, in order.
    pub inputs: Vec<Tensor>,
    /// The relation between the picture and the inputs.
    pub geometry: Geometry,
}

/// A picture was not prepared, or its answer not drawn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeWorkError {
    /// The picture or the outputs do not fit.
    #[error("{0}")]
    Fault(String),
    /// The process failed.
    #[error(transparent)]
    Process(#[from] ParserError),
}

/// Decodes a picture and converts it to a model's inputs, in a parser process.
pub fn prepare(
    client: &ParserClient,
    preparation: &Preparation,
    picture: &[u8],
) -> Result<PreparedPicture, RecipeWorkError> {
    let task = RecipeTask::Prepare(Cow::Borrowed(preparation));
    let ((heads, geometry), payload) = ask(client, &task, picture)?;
    let inputs = receive_tensors(&mut &payload[..], heads);
    let inputs = inputs.map_err(|error| ParserError::Died(error.to_string()))?;
    Ok(PreparedPicture { inputs, geometry })
}

/// Decodes a sound, in a parser process.
pub fn hear(client: &ParserClient, sound: &[u8]) -> Result<Sound, RecipeWorkError> {
    let ((), payload) = ask(client, &RecipeTask::Hear, sound)?;
    let samples = payload.chunks_exact(2);
    let samples = samples.map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]]));
    Ok(Sound::of(samples.collect()))
}

/// Converts an English text to phonemes, in a parser process.
pub fn english(client: &ParserClient, text: &str) -> Result<String, RecipeWorkError> {
    let (phonemes, _) = ask(client, &RecipeTask::English, text.as_bytes())?;
    Ok(phonemes)
}

/// Draws a model's answer over the picture, in a parser process. Returns the encoded picture.
pub fn draw(
    client: &ParserClient,
    recipe: &FittedRecipe,
    picture: &[u8],
    (outputs, geometry): (&[Tensor], Geometry),
    texts: Option<Vec<TextAnswer>>,
    format: PictureFormat,
) -> Result<Vec<u8>, RecipeWorkError> {
    let task = RecipeTask::Draw(Box::new(DrawTask {
        recipe: Cow::Borrowed(recipe),
        geometry,
        outputs: TensorHead::of(outputs),
        texts,
        format,
    }));
    let payload = [vec![picture], bytes_of(outputs)].concat().concat();
    let ((), drawn) = ask(client, &task, &payload)?;
    Ok(drawn)
}

/// Cuts parts out of a picture, as [`cut_out`] does, in a parser process.
pub fn cut(
    client: &ParserClient,
    preparation: &Preparation,
    picture: &[u8],
    quads: Vec<Quad>,
) -> Result<Vec<PreparedPicture>, RecipeWorkError> {
    let task = RecipeTask::Cut(Cow::Borrowed(preparation), quads);
    let (heads, payload): (Vec<(Vec<TensorHead>, Geometry)>, _) = ask(client, &task, picture)?;
    let mut payload = &payload[..];
    let parts = heads.into_iter().map(|(heads, geometry)| {
        let inputs = receive_tensors(&mut payload, heads);
        let inputs = inputs.map_err(|error| ParserError::Died(error.to_string()))?;
        Ok(PreparedPicture { inputs, geometry })
    });
    parts.collect()
}

fn ask<T: serde::de::DeserializeOwned>(
    client: &ParserClient,
    task: &RecipeTask<'_>,
    payload: &[u8],
) -> Result<(T, Vec<u8>), RecipeWorkError> {
    let job = ParserJob {
        work: RECIPE_WORK,
        ask: serde_json::to_vec(task).map_err(|error| RecipeWorkError::Fault(error.to_string()))?,
        payload,
        content: None,
        limits: match task {
            RecipeTask::Hear => SOUND_LIMITS,
            _ => LIMITS,
        },
    };
    let done = client.ask(&job)?;
    let head: Result<T, String> = done
        .head()
        .map_err(|error| ParserError::Died(error.to_string()))?;
    Ok((head.map_err(RecipeWorkError::Fault)?, done.payload))
}

/// Does a job in the parser process: the counterpart of [`prepare`] and [`draw()`].
pub fn work(task: &ParserTask) -> io::Result<JobAnswer> {
    match task.ask()? {
        RecipeTask::Prepare(preparation) => {
            let decoded = picture::decode(&task.payload);
            match decoded.and_then(|picture| preparation.run(picture)) {
                Ok((inputs, geometry)) => {
                    let head = (TensorHead::of(&inputs), geometry);
                    JobAnswer::with(&Ok::<_, String>(head), bytes_of(&inputs).concat())
                }
                Err(reason) => JobAnswer::of(&Err::<(), _>(reason)),
            }
        }
        RecipeTask::Hear => match sound::decode(&task.payload) {
            Ok(sound) => {
                let samples = sound.samples().iter();
                let bytes = samples.flat_map(|sample| sample.to_le_bytes());
                JobAnswer::with(&Ok::<_, String>(()), bytes.collect())
            }
            Err(reason) => JobAnswer::of(&Err::<(), _>(reason)),
        },
        RecipeTask::English => {
            let text = std::str::from_utf8(&task.payload).map_err(|error| error.to_string());
            JobAnswer::of(&text.and_then(voice::english))
        }
        RecipeTask::Cut(preparation, quads) => {
            let decoded = picture::decode(&task.payload);
            match decoded.and_then(|picture| cut_out(&preparation, &picture, &quads)) {
                Ok(parts) => {
                    let heads = parts
                        .iter()
                        .map(|part| (TensorHead::of(&part.inputs), part.geometry));
                    let bytes = parts.iter().map(|part| bytes_of(&part.inputs).concat());
                    let payload = bytes.collect::<Vec<_>>().concat();
                    JobAnswer::with(&Ok::<_, String>(heads.collect::<Vec<_>>()), payload)
                }
                Err(reason) => JobAnswer::of(&Err::<(), _>(reason)),
            }
        }
        RecipeTask::Draw(asked) => match drawn(*asked, &task.payload) {
            Ok(picture) => JobAnswer::with(&Ok::<_, String>(()), picture),
            Err(reason) => JobAnswer::of(&Err::<(), _>(reason)),
        },
    }
}

/// Cuts parts out of a picture and converts each to a model's inputs: all of them, or the first ones if they are
/// large.
pub fn cut_out(
    preparation: &Preparation,
    picture: &RgbImage,
    quads: &[Quad],
) -> Result<Vec<PreparedPicture>, String> {
    let area: f64 = quads.iter().map(Quad::area).sum();
    if area > MAX_CUT_PIXELS {
        return Err(format!(
            "the lines have {area:.0} pixels, at most {MAX_CUT_PIXELS:.0} are possible: send a smaller picture"
        ));
    }
    let mut bytes = 0;
    let mut parts = Vec::new();
    for quad in quads {
        let (inputs, geometry) = preparation.run(quad.crop(picture))?;
        bytes += inputs
            .iter()
            .map(|input| input.bytes().len())
            .sum::<usize>();
        parts.push(PreparedPicture { inputs, geometry });
        if bytes >= CUT_BYTES {
            break;
        }
    }
    Ok(parts)
}

fn drawn(task: DrawTask<'_>, payload: &[u8]) -> Result<Vec<u8>, String> {
    let text = |error: io::Error| error.to_string();
    let bytes = TensorHead::bytes(&task.outputs).map_err(text)?;
    let bytes = usize::try_from(bytes).ok();
    let start = bytes.and_then(|bytes| payload.len().checked_sub(bytes));
    let (picture, mut outputs) = payload.split_at(start.ok_or("the outputs are incomplete")?);
    let outputs = receive_tensors(&mut outputs, task.outputs).map_err(text)?;
    let answer = task.recipe.interpret(&outputs, task.geometry)?;
    let answer = answer.with_texts(task.texts);
    let drawn = draw::draw(&answer, &picture::decode(picture)?);
    let drawn = drawn.ok_or("the answer has no places in the picture")?;
    task.format.encode(&drawn)
}

fn bytes_of(tensors: &[Tensor]) -> Vec<&[u8]> {
    tensors.iter().map(Tensor::bytes).collect()
}
