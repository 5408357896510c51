//! Several things to run side by side: paths × precisions × engines, each with a label; and the inputs
//! that they are run on, which are the same for all.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::target_args::{TargetArgs, engine_parser, named_engine};
use crate::cli::exit::Failure;
use crate::cli::output;
use crate::runtime::selection::Selection;
use crate::runtime::target::{Candidate, Wish};
use crate::source::text::defuse_line;
use crate::tensor::input::{InputArgs, Joint, Party};
use crate::tensor::{Tensor, TensorSpec};

/// Lists that are multiplied out.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SideArgs {
    /// Precisions of the package, several for a comparison of them
    #[arg(long, value_name = "TOKEN,…", value_delimiter = ',')]
    precision: Vec<String>,

    /// Engines, several for a comparison of them; `auto` takes the best that works
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "auto", value_parser = engine_parser())]
    engine: Vec<String>,
}

/// One thing to run.
#[derive(Debug, Clone)]
pub(super) struct Side {
    /// The method of a model.
    pub(super) selection: Selection,
    /// The engine that was named.
    pub(super) engine: Option<String>,
}

impl SideArgs {
    /// Every path with every precision on every engine, in this order of importance.
    pub(super) fn sides(
        &self,
        paths: &[PathBuf],
        target: &TargetArgs,
    ) -> Result<Vec<Side>, Failure> {
        let mut sides = Vec::new();
        for path in paths {
            for selection in self.selections(path, target)? {
                for engine in &self.engine {
                    sides.push(Side {
                        selection: selection.clone(),
                        engine: named_engine(engine).map(str::to_owned),
                    });
                }
            }
        }
        Ok(sides)
    }

    fn selections(&self, path: &Path, target: &TargetArgs) -> Result<Vec<Selection>, Failure> {
        if self.precision.is_empty() {
            return Ok(vec![super::selected(target, path, None)?]);
        }
        let precisions = self.precision.iter();
        precisions
            .map(|precision| super::selected(target, path, Some(precision)))
            .collect()
    }
}

impl Side {
    /// What is to be run.
    pub(super) fn wish(&self, target: &TargetArgs) -> Wish {
        target.wish(&self.selection, self.engine.as_deref())
    }

    /// `glimpse decoder int8 (qnn), ort on cpu`: what tells it from the others.
    pub(super) fn label(&self, candidate: Candidate) -> String {
        format!("{}, {candidate}", what(&self.selection))
    }
}

/// What all sides take in common, and the arguments for it. The user hears where a size has nothing to do.
pub(super) fn joint(
    sides: &[Side],
    labels: impl Fn(usize, &Side) -> String,
    given: &InputArgs,
) -> Result<(Joint, InputArgs), Failure> {
    let parties = sides.iter().enumerate().map(|(place, side)| Party {
        label: labels(place, side),
        signature: side.selection.signature.clone(),
    });
    let fail = |error: &dyn fmt::Display| Failure::Other(error.to_string());
    let joint = Joint::of(parties.collect()).map_err(|error| fail(&error))?;
    let (args, notes) = joint.args(given).map_err(|error| fail(&error))?;
    for note in notes {
        output::note(&note);
    }
    Ok((joint, args))
}

/// The head of a tensor that a side was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct GivenInput {
    name: String,
    dtype: &'static str,
    shape: Vec<u64>,
}

impl GivenInput {
    /// Those of a side.
    pub(super) fn list(specs: &[TensorSpec], tensors: &[Tensor]) -> Vec<Self> {
        let pairs = specs.iter().zip(tensors);
        pairs
            .map(|(spec, tensor)| Self {
                name: spec.name.clone(),
                dtype: tensor.dtype().name(),
                shape: tensor.shape().to_vec(),
            })
            .collect()
    }

    /// Several on one line.
    pub(super) fn line(inputs: &[Self]) -> String {
        let texts: Vec<String> = inputs.iter().map(Self::to_string).collect();
        if texts.is_empty() {
            return "no inputs".to_owned();
        }
        texts.join(", ")
    }
}

/// `image float32[1, 3, 64, 64]`.
impl fmt::Display for GivenInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dtype, shape } = self;
        write!(f, "{} {dtype}{shape:?}", defuse_line(name))
    }
}

/// What a selection is, in a few words: `glimpse int8 for qnn`, or the model file's name.
pub(super) fn what(selection: &Selection) -> String {
    let Some(variant) = &selection.variant else {
        let name = selection.model.file_name().unwrap_or_default();
        return name.to_string_lossy().into_owned();
    };
    let mut words = vec![variant.package.clone()];
    words.extend(variant.component.clone());
    words.extend(variant.precision.clone());
    if let Some(backend) = variant.backend {
        words.push(format!("for {backend}"));
    }
    words.join(" ")
}
