//! What a worker process and its parent say to each other.
//!
//! The head of a frame, then the bytes of the tensors that the head lists, in order. Invariant:
//! nothing is allocated by a length that was not held against a limit.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use crate::engine::library::NativeBackend;
use crate::engine::{Begins, EngineError, LoadRequest, Placement};
use crate::runtime::process::frame;
use crate::runtime::process::sandbox::Sandbox;
use crate::tensor::{DType, Tensor, byte_size};

/// What the parent asks.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a model is loaded once")]
pub(super) enum Request {
    /// Load a model with an engine.
    Load {
        /// Name of the engine.
        engine: String,
        /// What to load.
        request: LoadRequest,
        /// Most bytes of memory the process may take.
        memory_limit: Option<u64>,
    },
    /// Keep the tensors that come with this as the inputs of later runs.
    Inputs(Vec<TensorHead>),
    /// Keep the tensors that come with this, run once and answer with the outputs.
    Run {
        /// dtype and shape of each input.
        inputs: Vec<TensorHead>,
        /// What it begins with of what the runs before have left.
        begins: Begins,
    },
    /// Run again and again, `runs` times or until `nanoseconds` have passed, at least once.
    Repeat {
        /// What the first of them begins with.
        begins: Begins,
        /// Most runs.
        runs: u64,
        /// Time after which no further run is begun.
        nanoseconds: u64,
    },
    /// Tell where nodes ran.
    Placement,
    /// Tell the process's peak memory.
    PeakMemory,
    /// Tell what confines the process.
    Sandbox,
    /// Tell what the library of an engine, by its name, has for parts of models.
    Backends(String),
}

/// What the worker answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The model is loaded, in so many nanoseconds.
    Loaded(u64),
    /// The inputs are kept.
    Kept,
    /// A run is done: its outputs come with this.
    Ran {
        /// dtype and shape of each output.
        outputs: Vec<TensorHead>,
        /// Nanoseconds of the engine's work.
        nanoseconds: u64,
    },
    /// Nanoseconds of each run.
    Repeated(Vec<u64>),
    /// Where nodes ran.
    Placement(Placement),
    /// Bytes, where the system tells.
    PeakMemory(Option<u64>),
    /// What is in force.
    Sandbox(Sandbox),
    /// What an engine's library has.
    Backends(Vec<NativeBackend>),
    /// It did not work.
    Failed(EngineError),
}

/// dtype and shape of a tensor whose bytes follow.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct TensorHead {
    dtype: DType,
    shape: Vec<u64>,
}

impl TensorHead {
    /// The heads of these tensors.
    pub(super) fn of(tensors: &[Tensor]) -> Vec<Self> {
        let heads = tensors.iter().map(|tensor| Self {
            dtype: tensor.dtype(),
            shape: tensor.shape().to_vec(),
        });
        heads.collect()
    }

    /// How many bytes the tensors of these heads have.
    pub(super) fn bytes(heads: &[Self]) -> io::Result<u64> {
        let sizes = heads.iter().map(|head| {
            let size = byte_size(head.dtype, &head.shape);
            size.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
        });
        sizes.sum()
    }
}

/// Sends a head and the bytes of `tensors`, which it must have listed: small ones with it in one piece,
/// large ones from where they are.
pub(super) fn send(
    stream: &mut impl Write,
    head: &impl Serialize,
    tensors: &[Tensor],
) -> io::Result<()> {
    frame::send_with(stream, head, tensors.iter().map(Tensor::bytes))
}

/// Receives the tensors that a head listed.
pub(super) fn receive_tensors(
    stream: &mut (impl Read + ?Sized),
    heads: Vec<TensorHead>,
) -> io::Result<Vec<Tensor>> {
    let tensors = heads.into_iter().map(|head| {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let size = byte_size(head.dtype, &head.shape).map_err(invalid)?;
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(usize::try_from(size).map_err(|_| io::ErrorKind::OutOfMemory)?)
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        Read::take(&mut *stream, size).read_to_end(&mut bytes)?;
        Tensor::new(head.dtype, head.shape, bytes).map_err(invalid)
    });
    tensors.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_way() {
        let tensors = [
            Tensor::from_f64(DType::Float32, vec![2, 1], [1.0, 2.0]).expect("it is small"),
            Tensor::zeros(DType::Bool, vec![0]).expect("it is small"),
            Tensor::zeros(DType::Uint8, vec![8000]).expect("it is small"),
            Tensor::zeros(DType::Uint8, vec![8193]).expect("it is small"),
            Tensor::zeros(DType::Uint8, vec![8192]).expect("it is small"),
        ];
        let mut bytes = Vec::new();
        let head = Request::Inputs(TensorHead::of(&tensors));
        send(&mut bytes, &head, &tensors).expect("memory can be written");
        let mut stream = &bytes[..];
        let Request::Inputs(heads) = frame::receive(&mut stream).expect("it is whole") else {
            panic!("another request");
        };
        let received = receive_tensors(&mut stream, heads).expect("they are whole");
        assert_eq!(received, tensors);
        assert!(stream.is_empty());
    }
}
