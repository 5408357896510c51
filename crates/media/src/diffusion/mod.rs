//! Pictures of texts, as Stable Diffusion makes them: noise becomes a picture step by step.
//!
//! [`DiffusionRun`] asks for runs of an encoder, a denoiser and a painter until the picture is complete. It knows a text as
//! tokens; these come from the caller's tokenizer.

mod noise;
mod options;
mod run;
mod sampler;
mod scheduler;
mod shape;

pub use options::DiffusionOptions;
pub(crate) use options::{BETAS, PREDICTIONS, RANGES, SAMPLERS, SPACINGS};
pub use run::{DiffusionModel, DiffusionRun, PromptTokens};
pub use scheduler::{SCHEDULER_COMPONENT, SchedulerFile};
pub use shape::DiffusionShape;
