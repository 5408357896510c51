//! The run of a variant over the items of a data set.

use std::time::Duration;

use super::EvalArgs;
use super::model::EvalModel;
use super::report::{EvalRow, ItemFault};
use super::store::{self, ItemResult, ResultFile};
use crate::cli::exit::Failure;
use crate::cli::progress;
use pkgtool_engine::runtime::statistics::Times;
use pkgtool_eval::{EvalDataset, ItemTruth, Outcome, figures};

/// Number of first items that may fail before the evaluation ends.
const FIRST_FAULTS: usize = 3;

/// Evaluates a variant.
pub(super) fn evaluate(
    args: &EvalArgs,
    model: &mut EvalModel<'_>,
    dataset: &EvalDataset,
) -> Result<EvalRow, Failure> {
    let opened = args.results.as_ref();
    let opened = opened.map(|directory| ResultFile::open(directory, model, args.target.rounding));
    let (mut store, mut known) = opened.transpose()?.unzip();
    let bar = progress::bar(
        dataset.items.len() as u64,
        "{msg} {bar:30} {pos}/{len}, {eta} left",
    );
    bar.set_message(model.label());
    let mut results: Vec<(&ItemTruth, ItemResult)> = Vec::new();
    let (mut faults, mut continued) = (Vec::new(), 0);
    for item in &dataset.items {
        let state = store
            .as_ref()
            .map_or_else(String::new, |_| store::state(item));
        let kept = known.as_mut().and_then(|known| known.remove(&item.name));
        if let Some(result) = kept.filter(|result| result.state == state) {
            continued += 1;
            results.push((&item.truth, result));
        } else {
            match model.outcome(item) {
                Ok((outcome, time)) => {
                    let result = ItemResult {
                        item: item.name.clone(),
                        state,
                        outcome,
                        milliseconds: time.as_secs_f64() * 1000.0,
                    };
                    if let Some(store) = &mut store {
                        store.add(&result)?;
                    }
                    results.push((&item.truth, result));
                }
                // Without any result, the fault is that of the model or of the whole data set.
                Err(failure)
                    if results.is_empty()
                        && faults.len() + 1 >= FIRST_FAULTS.min(dataset.items.len()) =>
                {
                    return Err(failure);
                }
                Err(failure) => faults.push(ItemFault {
                    item: item.name.clone(),
                    reason: failure.to_string(),
                }),
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let times = results.iter().map(|(_, result)| {
        // The file may have any number.
        Duration::try_from_secs_f64(result.milliseconds / 1000.0).unwrap_or_default()
    });
    let times = Times::of(times);
    let pairs: Vec<(&ItemTruth, &Outcome)> = results
        .iter()
        .map(|(truth, result)| (*truth, &result.outcome))
        .collect();
    let figures = figures(model.task, &pairs);
    Ok(EvalRow::new(
        model,
        figures,
        times,
        (results.len(), continued),
        faults,
    ))
}
