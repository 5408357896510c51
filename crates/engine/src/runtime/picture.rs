//! Decodes untrusted images (PNG, JPEG, WebP, GIF) into tensors, in a parser process with limits.
//!
//! Invariant: the size in an image's header is checked before anything is decoded. The limit is
//! [`MAX_PIXELS`] or the size of the model's input, if that is larger.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::runtime::parsers::{
    JobAnswer, JobLimits, ParserClient, ParserError, ParserJob, ParserTask,
};
use crate::tensor::input::{self, InputArgs, InputError};
use crate::tensor::limit::MemoryLimit;
use crate::tensor::{DType, Signature, Tensor};

/// Name of this work, as jobs of parser processes carry it.
pub const IMAGE_WORK: &str = "pictures";

/// Maximum number of pixels of an image that exceeds the model's input: 5120 x 5120, enough for
/// photos of phones.
pub const MAX_PIXELS: u64 = 5120 * 5120;

/// Limits for decoding one image. A progressive JPEG of the maximum size needs six bytes per pixel
/// while it is decoded, and three afterwards.
const LIMITS: JobLimits = JobLimits {
    memory: 256 << 20,
    time: Duration::from_secs(20),
};

/// The request to decode an image.
#[derive(Debug, Serialize, Deserialize)]
struct DecodeRequest {
    signature: Signature,
    input: usize,
    mean: Vec<f32>,
    std: Vec<f32>,
}

/// An error of the image or of an option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PictureFault {
    /// An option is invalid.
    Option {
        /// Name of the option, without dashes.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The image is invalid or does not fit the input.
    Picture {
        /// Name of the input.
        input: String,
        /// The reason.
        reason: String,
    },
    /// Anything else.
    Other(String),
}

/// An image could not be converted to a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// The image or an option is invalid.
    #[error("{0:?}")]
    Fault(PictureFault),
    /// The parser process failed.
    #[error("the image was not decoded: {0}")]
    Parser(#[from] ParserError),
}

/// Converts an image to the tensor of one input, in a parser process.
#[expect(clippy::missing_panics_doc, reason = "a signature always becomes JSON")]
pub fn read(
    client: &ParserClient,
    (signature, input): (&Signature, usize),
    bytes: &[u8],
    (mean, std): (Vec<f32>, Vec<f32>),
) -> Result<Tensor, PictureError> {
    let asked = DecodeRequest {
        signature: signature.clone(),
        input,
        mean,
        std,
    };
    let job = ParserJob {
        work: IMAGE_WORK,
        ask: serde_json::to_vec(&asked).expect("a signature becomes JSON"),
        payload: bytes,
        content: None,
        limits: LIMITS,
    };
    let done = client.ask(&job)?;
    let died = |error: String| PictureError::Parser(ParserError::Died(error));
    let head: Result<(DType, Vec<u64>), PictureFault> =
        done.head().map_err(|error| died(error.to_string()))?;
    let (dtype, shape) = head.map_err(PictureError::Fault)?;
    Tensor::new(dtype, shape, done.payload).map_err(|error| died(error.to_string()))
}

/// Decodes an image in the parser process: the counterpart of [`read`].
pub fn work(task: &ParserTask) -> io::Result<JobAnswer> {
    let asked: DecodeRequest = task.ask()?;
    match decoded(&asked, &task.payload) {
        Ok(tensor) => {
            let head: Result<_, PictureFault> = Ok((tensor.dtype(), tensor.shape()));
            JobAnswer::with(&head, tensor.bytes().to_vec())
        }
        Err(error) => JobAnswer::of(&Err::<(DType, Vec<u64>), _>(fault(&error))),
    }
}

fn decoded(asked: &DecodeRequest, bytes: &[u8]) -> Result<Tensor, InputError> {
    let signature = &asked.signature;
    let args = InputArgs {
        mean: asked.mean.clone(),
        std: asked.std.clone(),
        memory: Some(MemoryLimit::Setting(LIMITS.memory)),
        pixels: Some(MAX_PIXELS),
        ..InputArgs::default()
    };
    let tensor = input::picture(signature, asked.input, bytes, &args, "the picture")?;
    let tensors = [tensor];
    input::check(signature, &tensors)?;
    let [tensor] = tensors;
    Ok(tensor)
}

fn fault(error: &InputError) -> PictureFault {
    match error {
        InputError::Argument { option, reason, .. } => PictureFault::Option {
            name: option.trim_start_matches('-').to_owned(),
            reason: reason.clone(),
        },
        InputError::Value { place, reason, .. } => PictureFault::Picture {
            input: place.to_string(),
            reason: reason.clone(),
        },
        other => PictureFault::Other(other.to_string()),
    }
}
