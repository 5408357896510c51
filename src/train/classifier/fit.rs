//! Finding a classifier's weights, by L-BFGS.

use std::cell::RefCell;

use argmin::core::{CostFunction, Error, Executor, Gradient, IterState};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;

use super::super::options::FitOptions;
use super::loss::{Loss, Slope};
use super::{Classifier, Examples};

/// Steps that the curvature is guessed from.
const MEMORY: usize = 10;

/// A classifier, and how it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The classifier.
    pub classifier: Classifier,
    /// The loss in the end: the rows' mean, and the penalty.
    pub loss: f64,
    /// How often the loss was looked at.
    pub evaluations: u64,
    /// Whether the tolerance was reached, not only the most iterations.
    pub converged: bool,
}

/// Why there is no classifier.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The caller told to stop.
    #[error("it was told to stop")]
    Stopped,
    /// The vectors are no numbers to calculate with.
    #[error("the embeddings hold numbers that are not finite; the model cannot be trained on")]
    NotFinite,
    /// The method gave nothing.
    #[error("the weights could not be found: {0}")]
    Failed(String),
}

/// Fits a classifier to rows, of which each counts as `weights` says, with the penalty `l2`. `goes_on` is
/// told of each look at the loss, and may stop it.
pub fn fit(
    examples: Examples<'_>,
    weights: Vec<f64>,
    l2: f64,
    options: &FitOptions,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<Fitted, FitError> {
    if !examples.vectors.iter().all(|number| number.is_finite()) {
        return Err(FitError::NotFinite);
    }
    let search = Search {
        loss: Loss::new(examples, weights, l2),
        tolerance: options.tolerance,
        goes_on,
        seen: RefCell::default(),
    };
    let first = vec![0.0; search.loss.parameters()];
    let line = MoreThuenteLineSearch::new();
    let solver: LBFGS<_, Vec<f64>, Vec<f64>, f64> = LBFGS::new(line, MEMORY);
    // It ends where this says so: the library measures in another way.
    let solver = solver
        .with_tolerance_grad(0.0)
        .and_then(|solver| solver.with_tolerance_cost(0.0))
        .map_err(|error| FitError::Failed(error.to_string()))?;
    let begin = |state: IterState<Vec<f64>, Vec<f64>, (), (), (), f64>| {
        state.param(first).max_iters(options.max_iterations)
    };
    let run = Executor::new(&search, solver)
        .configure(begin)
        .timer(false)
        .run();
    let seen = search.seen.borrow();
    if seen.stopped {
        return Err(FitError::Stopped);
    }
    if let Err(error) = run
        && !seen.converged
        && seen.evaluations <= 2
    {
        return Err(FitError::Failed(error.to_string()));
    }
    // Near the end a step may be too small for the search to see its gain: the best is good then.
    let Some((parameters, loss)) = &seen.best else {
        return Err(FitError::Failed("the loss is no number".to_owned()));
    };
    Ok(Fitted {
        classifier: classifier(examples, parameters),
        loss: *loss,
        evaluations: seen.evaluations,
        converged: seen.converged,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "weights are held as the model's other numbers are"
)]
fn classifier(examples: Examples<'_>, parameters: &[f64]) -> Classifier {
    let (weights, intercepts) = parameters.split_at(examples.count * examples.width);
    let narrow = |numbers: &[f64]| numbers.iter().map(|it| *it as f32).collect();
    Classifier {
        width: examples.width,
        weights: narrow(weights),
        intercepts: narrow(intercepts),
    }
}

/// A search for the least loss.
struct Search<'a> {
    loss: Loss<'a>,
    tolerance: f64,
    goes_on: &'a dyn Fn(u64) -> bool,
    seen: RefCell<Seen>,
}

/// What was found so far.
#[derive(Default)]
struct Seen {
    /// The place that was looked at last: loss and gradient are asked for one after the other.
    last: Option<(Vec<f64>, Slope)>,
    best: Option<(Vec<f64>, f64)>,
    evaluations: u64,
    converged: bool,
    stopped: bool,
}

/// Nothing more is to be looked at: the caller told to stop, or the gradient is small enough. (The library measures
/// a gradient's length, this its greatest part.)
#[derive(Debug, thiserror::Error)]
#[error("the search is over")]
struct Over;

impl Search<'_> {
    fn look(&self, at: &[f64]) -> Result<Slope, Error> {
        let mut seen = self.seen.borrow_mut();
        if let Some((place, slope)) = &seen.last
            && place == at
        {
            return Ok(slope.clone());
        }
        if seen.converged || seen.stopped {
            return Err(Over.into());
        }
        if !(self.goes_on)(seen.evaluations) {
            seen.stopped = true;
            return Err(Over.into());
        }
        let slope = self.loss.at(at);
        seen.evaluations += 1;
        let greatest = slope
            .gradient
            .iter()
            .fold(0.0_f64, |most, it| most.max(it.abs()));
        let is_small = greatest <= self.tolerance;
        let is_better = seen
            .best
            .as_ref()
            .is_none_or(|(_, best)| slope.loss < *best);
        if slope.loss.is_finite() && (is_better || is_small) {
            seen.best = Some((at.to_vec(), slope.loss));
        }
        if is_small {
            seen.converged = true;
            return Err(Over.into());
        }
        seen.last = Some((at.to_vec(), slope.clone()));
        Ok(slope)
    }
}

impl CostFunction for &Search<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, at: &Self::Param) -> Result<f64, Error> {
        Ok(self.look(at)?.loss)
    }
}

impl Gradient for &Search<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, at: &Self::Param) -> Result<Vec<f64>, Error> {
        Ok(self.look(at)?.gradient)
    }
}
