//! Fits the weights of a classifier with L-BFGS.

use std::cell::RefCell;

use argmin::core::{CostFunction, Error, Executor, Gradient, IterState};
use argmin::solver::linesearch::MoreThuenteLineSearch;
use argmin::solver::quasinewton::LBFGS;

use super::super::options::FitOptions;
use super::loss::{Loss, LossAndGradient};
use super::sets::{SetExamples, SetWeights};
use super::{Classifier, Examples};

/// Number of previous steps that L-BFGS estimates the curvature from.
const HISTORY_STEPS: usize = 10;

/// A fitted classifier with statistics of the fit.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// The classifier.
    pub classifier: Classifier,
    /// Final loss: the mean loss of the rows plus the penalty.
    pub loss: f64,
    /// Number of evaluations of the loss.
    pub evaluations: u64,
    /// True if the fit reached the tolerance, rather than only the maximum number of iterations.
    pub converged: bool,
}

/// Errors of a fit.
#[derive(Debug, thiserror::Error)]
pub enum FitError {
    /// The caller stopped the fit.
    #[error("the fit was stopped")]
    Stopped,
    /// The vectors contain NaN or infinity.
    #[error("the embeddings contain non-finite numbers; the model is unsuitable for training")]
    NotFinite,
    /// The optimizer failed.
    #[error("fitting the weights failed: {0}")]
    Failed(String),
}

/// Fits a classifier to rows with the given row `weights` and penalty `l2`. `goes_on` receives the
/// number of evaluations before each one and returns `false` to stop the fit.
pub fn fit(
    examples: Examples<'_>,
    weights: Vec<f64>,
    l2: f64,
    options: &FitOptions,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<Fitted, FitError> {
    minimize(Loss::new(examples, weights, l2), options, goes_on)
}

/// Fits a classifier to rows with sets of labels, as [`fit`].
pub fn fit_sets(
    examples: SetExamples<'_>,
    weights: &SetWeights,
    l2: f64,
    options: &FitOptions,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<Fitted, FitError> {
    minimize(Loss::of_sets(examples, weights, l2), options, goes_on)
}

fn minimize(
    loss: Loss<'_>,
    options: &FitOptions,
    goes_on: &dyn Fn(u64) -> bool,
) -> Result<Fitted, FitError> {
    if !loss.is_finite() {
        return Err(FitError::NotFinite);
    }
    let search = LossSearch {
        loss,
        tolerance: options.tolerance,
        goes_on,
        seen: RefCell::default(),
    };
    let first = vec![0.0; search.loss.parameters()];
    let line = MoreThuenteLineSearch::new();
    let solver: LBFGS<_, Vec<f64>, Vec<f64>, f64> = LBFGS::new(line, HISTORY_STEPS);
    // `LossSearch` decides when to stop, because the library measures the gradient differently.
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
    // Near the end, the line search may fail to see the gain of a tiny step. The best point so far
    // is then good enough.
    let Some((parameters, loss)) = &seen.best else {
        return Err(FitError::Failed("the loss is not finite".to_owned()));
    };
    Ok(Fitted {
        classifier: search.loss.classifier(parameters),
        loss: *loss,
        evaluations: seen.evaluations,
        converged: seen.converged,
    })
}

/// The minimization of a loss.
struct LossSearch<'a> {
    loss: Loss<'a>,
    tolerance: f64,
    goes_on: &'a dyn Fn(u64) -> bool,
    seen: RefCell<SearchState>,
}

/// Intermediate results of the search.
#[derive(Default)]
struct SearchState {
    /// The last evaluated point. The library requests loss and gradient of a point one after the
    /// other.
    last: Option<(Vec<f64>, LossAndGradient)>,
    best: Option<(Vec<f64>, f64)>,
    evaluations: u64,
    converged: bool,
    stopped: bool,
}

/// Ends the search: the caller stopped it or the gradient is small enough. The library measures the
/// norm of the gradient, this module its greatest component.
#[derive(Debug, thiserror::Error)]
#[error("the search has ended")]
struct SearchEnded;

impl LossSearch<'_> {
    fn evaluate(&self, at: &[f64]) -> Result<LossAndGradient, Error> {
        let mut seen = self.seen.borrow_mut();
        if let Some((place, slope)) = &seen.last
            && place == at
        {
            return Ok(slope.clone());
        }
        if seen.converged || seen.stopped {
            return Err(SearchEnded.into());
        }
        if !(self.goes_on)(seen.evaluations) {
            seen.stopped = true;
            return Err(SearchEnded.into());
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
            return Err(SearchEnded.into());
        }
        seen.last = Some((at.to_vec(), slope.clone()));
        Ok(slope)
    }
}

impl CostFunction for &LossSearch<'_> {
    type Param = Vec<f64>;
    type Output = f64;

    fn cost(&self, at: &Self::Param) -> Result<f64, Error> {
        Ok(self.evaluate(at)?.loss)
    }
}

impl Gradient for &LossSearch<'_> {
    type Param = Vec<f64>;
    type Gradient = Vec<f64>;

    fn gradient(&self, at: &Self::Param) -> Result<Vec<f64>, Error> {
        Ok(self.evaluate(at)?.gradient)
    }
}
