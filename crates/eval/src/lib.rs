//! Data sets with the truth, and how well answers agree with it.
//!
//! Invariant: every figure counts all items of its data set that were answered, and says how many these are.
//!
//! It does not know how a model runs: an answer comes in, an [`Outcome`] and figures come out.

mod dataset;
mod measure;
mod runs;

pub use dataset::{DatasetError, DatasetItem, EvalDataset, ItemTruth, TrueObject, media_below};
pub use measure::{Agreement, AgreementFigures, EvalTask, Figure, Outcome, Scale, figures};
pub use runs::PixelRuns;
