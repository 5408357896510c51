//! Several things to run side by side: paths × precisions × engines, each with a label.

use std::path::{Path, PathBuf};

use super::target_args::{TargetArgs, engine_parser, named_engine};
use crate::cli::exit::Failure;
use crate::runtime::selection::Selection;
use crate::runtime::target::{Candidate, Wish};

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
