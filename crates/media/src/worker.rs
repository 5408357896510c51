//! Work of recipes in a parser process: untrusted pictures are decoded there, within limits.

use std::io;
use std::time::Duration;

use pkgtool_engine::runtime::parsers::{
    JobAnswer, JobLimits, ParserClient, ParserError, ParserJob, ParserTask,
};
use pkgtool_engine::tensor::{DType, Tensor};
use serde::{Deserialize, Serialize};

use crate::draw;
use crate::picture::{self, Geometry, PictureFormat};
use crate::recipe::{FittedRecipe, Preparation};

/// Name of this work, as jobs of parser processes carry it.
pub const RECIPE_WORK: &str = "recipes";

/// Limits for one picture: the largest one decoded, a copy of it, and the planes of the model's input.
const LIMITS: JobLimits = JobLimits {
    memory: 512 << 20,
    time: Duration::from_secs(20),
};

/// What the process shall do with the picture.
#[derive(Debug, Serialize, Deserialize)]
enum RecipeTask {
    /// Convert it to the model's inputs.
    Prepare(Box<Preparation>),
    /// Draw the answer over it. The model's outputs follow the picture in the payload.
    Draw(Box<DrawTask>),
}

#[derive(Debug, Serialize, Deserialize)]
struct DrawTask {
    recipe: FittedRecipe,
    geometry: Geometry,
    outputs: Vec<SentTensor>,
    format: PictureFormat,
}

/// A tensor without its elements.
#[derive(Debug, Serialize, Deserialize)]
struct SentTensor {
    dtype: DType,
    shape: Vec<u64>,
    bytes: usize,
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
    let task = RecipeTask::Prepare(Box::new(preparation.clone()));
    let (head, payload): ((Vec<SentTensor>, Geometry), _) = ask(client, &task, picture)?;
    let (heads, geometry) = head;
    let inputs = tensors(&heads, &payload).map_err(ParserError::Died)?;
    Ok(PreparedPicture { inputs, geometry })
}

/// Draws a model's answer over the picture, in a parser process. Returns the encoded picture.
pub fn draw(
    client: &ParserClient,
    recipe: FittedRecipe,
    picture: &[u8],
    (outputs, geometry): (&[Tensor], Geometry),
    format: PictureFormat,
) -> Result<Vec<u8>, RecipeWorkError> {
    let task = RecipeTask::Draw(Box::new(DrawTask {
        recipe,
        geometry,
        outputs: outputs.iter().map(SentTensor::of).collect(),
        format,
    }));
    let mut payload = picture.to_vec();
    for output in outputs {
        payload.extend(output.bytes());
    }
    let ((), drawn) = ask(client, &task, &payload)?;
    Ok(drawn)
}

fn ask<T: serde::de::DeserializeOwned>(
    client: &ParserClient,
    task: &RecipeTask,
    payload: &[u8],
) -> Result<(T, Vec<u8>), RecipeWorkError> {
    let job = ParserJob {
        work: RECIPE_WORK,
        ask: serde_json::to_vec(task).map_err(|error| RecipeWorkError::Fault(error.to_string()))?,
        payload,
        content: None,
        limits: LIMITS,
    };
    let done = client.ask(&job)?;
    let head: Result<T, String> = done
        .head()
        .map_err(|error| ParserError::Died(error.to_string()))?;
    Ok((head.map_err(RecipeWorkError::Fault)?, done.payload))
}

/// Does a job in the parser process: the counterpart of [`prepare`] and [`draw`].
pub fn work(task: &ParserTask) -> io::Result<JobAnswer> {
    match task.ask()? {
        RecipeTask::Prepare(preparation) => {
            let decoded = picture::decode(&task.payload);
            match decoded.and_then(|picture| preparation.run(picture)) {
                Ok((inputs, geometry)) => {
                    let heads: Vec<_> = inputs.iter().map(SentTensor::of).collect();
                    let payload = inputs.iter().flat_map(Tensor::bytes);
                    let payload = payload.copied().collect();
                    JobAnswer::with(&Ok::<_, String>((heads, geometry)), payload)
                }
                Err(reason) => JobAnswer::of(&Err::<(), _>(reason)),
            }
        }
        RecipeTask::Draw(asked) => match drawn(&asked, &task.payload) {
            Ok(picture) => JobAnswer::with(&Ok::<_, String>(()), picture),
            Err(reason) => JobAnswer::of(&Err::<(), _>(reason)),
        },
    }
}

fn drawn(task: &DrawTask, payload: &[u8]) -> Result<Vec<u8>, String> {
    let bytes = task.outputs.iter().map(|output| output.bytes).sum();
    let parts = payload
        .len()
        .checked_sub(bytes)
        .map(|at| payload.split_at(at));
    let (picture, outputs) = parts.ok_or("the outputs are incomplete")?;
    let outputs = tensors(&task.outputs, outputs)?;
    let answer = task.recipe.interpret(&outputs, task.geometry)?;
    let drawn = draw::draw(&answer, &picture::decode(picture)?);
    let drawn = drawn.ok_or("the answer has no places in the picture")?;
    task.format.encode(&drawn)
}

impl SentTensor {
    fn of(tensor: &Tensor) -> Self {
        Self {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
            bytes: tensor.bytes().len(),
        }
    }
}

/// Splits a payload into tensors.
fn tensors(heads: &[SentTensor], mut payload: &[u8]) -> Result<Vec<Tensor>, String> {
    let tensors = heads.iter().map(|head| {
        let parts = payload.split_at_checked(head.bytes);
        let (own, rest) = parts.ok_or("a tensor is incomplete")?;
        payload = rest;
        let tensor = Tensor::new(head.dtype, head.shape.clone(), own.to_vec());
        tensor.map_err(|error| error.to_string())
    });
    tensors.collect()
}
