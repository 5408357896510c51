//! The messages between a worker process and its parent.
//!
//! A message is the head of a frame, followed by the bytes of the tensors that the head lists, in
//! order. Invariant: a length is checked against a limit before memory is allocated for it.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::library::NativeBackend;
use crate::runtime::process::attached::TensorHead;
use crate::runtime::process::frame;
use crate::runtime::process::sandbox::Sandbox;
use crate::runtime::process_facts::ProcessFacts;
use crate::runtime::pss::MemoryCourse;
use crate::tensor::Tensor;
use crate::{AssignedOperators, EngineError, LoadRequest, Placement, Profile, RunStart};

/// A request of the parent.
#[derive(Debug, Serialize, Deserialize)]
#[expect(clippy::large_enum_variant, reason = "a model is loaded once")]
pub(super) enum WorkerRequest {
    /// Load a model with an engine.
    Load {
        /// Name of the engine.
        engine: String,
        /// The model and its options.
        request: LoadRequest,
        /// Maximum memory of the process, in bytes.
        memory_limit: Option<u64>,
    },
    /// Keep the attached tensors as the inputs of later runs.
    Inputs(Vec<TensorHead>),
    /// Keep the attached tensors, run once, and return the outputs.
    Run {
        /// dtype and shape of each input.
        inputs: Vec<TensorHead>,
        /// The state of earlier runs with which it begins.
        begins: RunStart,
    },
    /// Run repeatedly: `runs` times or until `nanoseconds` have passed, at least once.
    Repeat {
        /// The state with which the first run begins.
        begins: RunStart,
        /// Maximum number of runs.
        runs: u64,
        /// Time after which no further run begins.
        nanoseconds: u64,
    },
    /// Run repeatedly and record each node: `runs` times or until `nanoseconds` have passed, at
    /// least once, with the inputs of the last run.
    Profile {
        /// Maximum number of runs.
        runs: u64,
        /// Time after which no further run begins.
        nanoseconds: u64,
    },
    /// Return where nodes ran.
    Placement,
    /// Return which provider will run which operators.
    Assigned,
    /// Return the process's peak memory.
    PeakMemory,
    /// Return the process's sandbox.
    Sandbox,
    /// Return what the process says about itself.
    Process,
    /// Sample the proportional memory during runs: `runs` of them or until `nanoseconds` have passed, at least one.
    Memory {
        /// Maximum number of runs.
        runs: u64,
        /// Time after which no further run begins.
        nanoseconds: u64,
    },
    /// Drop the model's files from the system's cache.
    DropFromCache,
    /// Return the backends in an engine's library, by the engine's name.
    Backends(String),
}

/// A reply of the worker.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WorkerReply {
    /// The model is loaded; holds the load time in nanoseconds.
    Loaded(u64),
    /// The inputs are stored.
    Kept,
    /// A run succeeded; its outputs are attached.
    Ran {
        /// dtype and shape of each output.
        outputs: Vec<TensorHead>,
        /// Time of the engine, in nanoseconds.
        nanoseconds: u64,
    },
    /// Time of each run, in nanoseconds.
    Repeated(Vec<u64>),
    /// The recorded runs; `None` if the engine cannot record this model.
    Profile(Option<Profile>),
    /// The placement of nodes.
    Placement(Placement),
    /// The operators of each provider.
    Assigned(Vec<AssignedOperators>),
    /// Peak memory in bytes, if the system reports it.
    PeakMemory(Option<u64>),
    /// The process's sandbox.
    Sandbox(Sandbox),
    /// The facts about the process.
    Process(ProcessFacts),
    /// The proportional memory, if the system reports it.
    Memory(Option<MemoryCourse>),
    /// The files are dropped; holds their size in bytes.
    Dropped(u64),
    /// The backends in an engine's library.
    Backends(Vec<NativeBackend>),
    /// The request failed.
    Failed(EngineError),
}

/// Sends a head and the bytes of `tensors`, which the head must list. Small tensors are sent with
/// it in one piece, large ones without copying.
pub(super) fn send(
    stream: &mut impl Write,
    head: &impl Serialize,
    tensors: &[Tensor],
) -> io::Result<()> {
    frame::send_with(stream, head, tensors.iter().map(Tensor::bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::process::attached::receive_tensors;
    use crate::tensor::DType;

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
        let head = WorkerRequest::Inputs(TensorHead::of(&tensors));
        send(&mut bytes, &head, &tensors).expect("memory can be written");
        let mut stream = &bytes[..];
        let WorkerRequest::Inputs(heads) = frame::receive(&mut stream).expect("it is whole") else {
            panic!("another request");
        };
        let received = receive_tensors(&mut stream, heads).expect("they are whole");
        assert_eq!(received, tensors);
        assert!(stream.is_empty());
    }
}
