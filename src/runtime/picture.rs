//! Pictures of others, decoded in processes with limits.
//!
//! Invariant: the size that a picture's header tells is checked before anything is decoded, against
//! [`MOST_PIXELS`] or what the model takes, whichever is more.

use std::io;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::runtime::parsers::{Answer, Client, Job, Limits, ParserError, Task};
use crate::tensor::input::{self, InputArgs, InputError};
use crate::tensor::limit::MemoryLimit;
use crate::tensor::{DType, Signature, Tensor};

/// The name of this work.
pub const WORK: &str = "pictures";

/// Most pixels of a picture that is larger than what the model takes: 5120 x 5120, and so the pictures
/// of telephones.
pub const MOST_PIXELS: u64 = 5120 * 5120;

/// What decoding one picture may take. A progressive JPEG of the most pixels takes six bytes of each
/// while it is decoded, and three when it is.
const LIMITS: Limits = Limits {
    memory: 256 << 20,
    time: Duration::from_secs(20),
};

/// What is asked.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    signature: Signature,
    input: usize,
    mean: Vec<f32>,
    std: Vec<f32>,
}

/// Why a picture is no tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PictureFault {
    /// An option is wrong.
    Option {
        /// Its name, without dashes.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The picture does not fit the input, or is none.
    Picture {
        /// The input.
        input: String,
        /// What is wrong.
        reason: String,
    },
    /// Anything else.
    Other(String),
}

/// Why there is no tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PictureError {
    /// The picture or an option is wrong.
    #[error("{0:?}")]
    Fault(PictureFault),
    /// The process that decodes did not.
    #[error("the picture was not decoded: {0}")]
    Parser(#[from] ParserError),
}

/// Makes the tensor of a PNG or JPEG picture for one input, in another process.
#[expect(clippy::missing_panics_doc, reason = "a signature always becomes JSON")]
pub fn read(
    client: &Client,
    (signature, input): (&Signature, usize),
    bytes: &[u8],
    (mean, std): (Vec<f32>, Vec<f32>),
) -> Result<Tensor, PictureError> {
    let asked = Asked {
        signature: signature.clone(),
        input,
        mean,
        std,
    };
    let job = Job {
        work: WORK,
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

/// Decodes a picture: the other end of [`read`].
pub fn work(task: &Task) -> io::Result<Answer> {
    let asked: Asked = task.ask()?;
    match decoded(&asked, &task.payload) {
        Ok(tensor) => {
            let head: Result<_, PictureFault> = Ok((tensor.dtype(), tensor.shape()));
            Answer::with(&head, tensor.bytes().to_vec())
        }
        Err(error) => Answer::of(&Err::<(DType, Vec<u64>), _>(fault(&error))),
    }
}

fn decoded(asked: &Asked, bytes: &[u8]) -> Result<Tensor, InputError> {
    let signature = &asked.signature;
    let args = InputArgs {
        mean: asked.mean.clone(),
        std: asked.std.clone(),
        memory: Some(MemoryLimit::Setting(LIMITS.memory)),
        pixels: Some(MOST_PIXELS),
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
