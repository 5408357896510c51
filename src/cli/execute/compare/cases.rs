//! The sets of inputs that two models are compared on: given ones, a directory of them, or random
//! ones. Random sets use the upper bound of dynamic dimensions and a size below it.

use std::fs;
use std::path::{Path, PathBuf};

use super::sweep::{self, SizeSweep};
use crate::cli::exit::Failure;
use pkgtool_engine::tensor::input::{self, Generator, InputArgs, OpenDim};
use pkgtool_engine::tensor::{Signature, Tensor};

/// One set of inputs.
pub(super) struct InputSet {
    /// Label of the set: `seed 3`, `batch=1, seed 3`, or a file name.
    pub(super) label: String,
    /// Set if the sizes of dynamic dimensions were chosen here and not by the user. If neither
    /// model can run at these sizes, the comparison does not fail.
    pub(super) has_chosen_sizes: bool,
    /// The sizes of dynamic dimensions, if several are compared (`--sizes`).
    pub(super) sizes: Option<String>,
    /// The tensors, in the order of the signature.
    pub(super) inputs: Vec<Tensor>,
    /// The reason why the tensors could not be generated.
    pub(super) generation_error: Option<String>,
}

/// The options that determine the inputs.
pub(super) struct InputSources<'a> {
    /// `--input` and `--dim`.
    pub(super) given: &'a InputArgs,
    /// A directory of input files.
    pub(super) directory: Option<&'a Path>,
    /// The sizes to compare at, if the user asks for several.
    pub(super) sizes: Option<&'a SizeSweep>,
    /// The dynamic dimensions of A. They may declare more than the signature that both sides share.
    pub(super) declared: &'a [OpenDim],
    /// Seeds of the random sets, for inputs that are not given.
    pub(super) seeds: std::ops::Range<u64>,
}

/// Returns all sets of inputs for a method.
pub(super) fn input_sets(
    signature: &Signature,
    sources: &InputSources<'_>,
) -> Result<Vec<InputSet>, Failure> {
    if let Some(directory) = sources.directory {
        return from_directory(signature, sources.given, directory);
    }
    let mut cases = Vec::new();
    let mut held = 0;
    for sizes in size_choices(signature, sources)? {
        let mut args = sources.given.clone();
        args.held = held;
        args.dims.extend(sizes.iter().cloned());
        for seed in sources.seeds.clone() {
            args.default = Some(Generator::Random { seed });
            let mut label = sizes.clone();
            label.push(format!("seed {seed}"));
            let made = assemble(signature, &args);
            let (inputs, unmade) = match made {
                Ok(inputs) => (inputs, None),
                // Sizes above the first may exceed the available memory.
                Err(Failure::Other(reason)) if sources.sizes.is_some() && !cases.is_empty() => {
                    (Vec::new(), Some(reason))
                }
                Err(failure) => return Err(failure),
            };
            // All sets are in memory at the same time.
            held += size(&inputs);
            args.held = held;
            cases.push(InputSet {
                label: label.join(", "),
                has_chosen_sizes: !sizes.is_empty(),
                sizes: sources.sizes.map(|_| sizes.join(", ")),
                inputs,
                generation_error: unmade,
            });
        }
    }
    Ok(cases)
}

/// Returns the size of a set of inputs, in bytes.
fn size(inputs: &[Tensor]) -> u64 {
    let sizes = inputs.iter().map(|tensor| tensor.bytes().len() as u64);
    sizes.sum()
}

/// Returns combinations of sizes for the dynamic dimensions that no argument sets, as values of
/// `--dim`.
///
/// Dimensions with a bound get the bound and half of it, others get 1 and 3. Otherwise, faults
/// below the bound, or at any size but the exporter's example, would stay hidden.
fn size_choices(
    signature: &Signature,
    sources: &InputSources<'_>,
) -> Result<Vec<Vec<String>>, Failure> {
    let open = input::open_dims(signature, sources.given);
    let mut open = open.map_err(|error| Failure::Other(error.to_string()))?;
    if let Some(sweep) = sources.sizes {
        for dim in &mut open {
            let declared = sources.declared.iter().find(|it| it.label == dim.label);
            dim.allowed = declared.map_or_else(Vec::new, |it| it.allowed.clone());
        }
        return sweep::combinations(&open, sweep);
    }
    if open.is_empty() {
        return Ok(vec![Vec::new()]);
    }
    let at = |choose: fn(&OpenDim) -> u64| -> Vec<String> {
        let sizes = open.iter();
        sizes
            .map(|dim| format!("{}={}", dim.label, choose(dim)))
            .collect()
    };
    let mut choices = vec![
        at(|dim| dim.bound.unwrap_or(1)),
        at(|dim| dim.bound.map_or(3, |bound| bound.div_ceil(2))),
    ];
    choices.dedup();
    Ok(choices)
}

/// Reads sets of inputs from a directory: each `.npz` file, each subdirectory with one file per
/// input, or, for a method with one input, each file.
fn from_directory(
    signature: &Signature,
    given: &InputArgs,
    directory: &Path,
) -> Result<Vec<InputSet>, Failure> {
    let fail = |reason: String| Failure::Other(format!("{}: {reason}", directory.display()));
    let entries = fs::read_dir(directory).map_err(|error| fail(error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| !is_hidden(path));
    paths.sort();
    let mut cases = Vec::new();
    let mut held = 0;
    for path in paths {
        let mut args = given.clone();
        args.held = held;
        if path.is_dir() {
            let files = fs::read_dir(&path).map_err(|error| fail(error.to_string()))?;
            let mut files: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
            files.retain(|path| !is_hidden(path));
            files.sort();
            for file in files {
                let name = file.file_stem().unwrap_or_default().to_string_lossy();
                args.inputs.push(format!("{name}={}", file.display()));
            }
        } else {
            args.inputs.push(path.display().to_string());
        }
        let inputs = assemble(signature, &args)?;
        held += size(&inputs);
        cases.push(InputSet {
            label: path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            has_chosen_sizes: false,
            sizes: None,
            inputs,
            generation_error: None,
        });
    }
    if cases.is_empty() {
        return Err(fail(
            "no inputs found: expected .npz files, a folder of files per set, or one file per set for \
             a method with one input"
                .to_owned(),
        ));
    }
    Ok(cases)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn assemble(signature: &Signature, args: &InputArgs) -> Result<Vec<Tensor>, Failure> {
    input::assemble(signature, args).map_err(|error| Failure::Other(error.to_string()))
}
