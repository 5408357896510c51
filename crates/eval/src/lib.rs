//! Data sets with the truth, and how well answers agree with it.
//!
//! Invariant: every figure counts all items of its data set that were answered, and says how many these are.
//!
//! It does not know how a model runs: an answer comes in, an [`Outcome`] and figures come out.

mod dataset;
mod measure;
mod runs;
mod task;

pub use dataset::{DatasetItem, EvalDataset, EvalDatasetError, ItemTruth, TrueObject, media_below};
pub use measure::{AnswerAgreement, Figure, Outcome, Scale, figures};
pub use runs::PixelRuns;
pub use task::EvalTask;
