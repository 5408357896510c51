//! Runs of a model over a sound, window by window.

use std::collections::BTreeMap;

use pkgtool_engine::tensor::Tensor;

use super::FittedRecipe;
use super::fit::PreparedWindow;
use super::repeat::WindowRepeat;
use crate::answer::TypedAnswer;
use crate::operators::Array;
use crate::sound::{self, Sound};

/// Maximum length of a sound that a model takes at once, in samples.
const MAX_WHOLE: usize = 600 * sound::RATE as usize;

/// Maximum number of values that all runs together give.
const MAX_VALUES: usize = 16 << 20;

/// The runs of a model over a sound.
#[derive(Debug)]
pub struct SoundRun {
    sound: Sound,
    /// Start of the next window, in samples.
    start: usize,
    /// Rows of the current window, if they are counted.
    rows: Option<usize>,
    /// Outputs for the next run, by the input's name.
    state: BTreeMap<String, Tensor>,
    /// What all runs gave, by output.
    made: Vec<Option<Array>>,
}

impl SoundRun {
    /// Starts the runs over a sound.
    pub fn new(sound: Sound) -> Self {
        Self {
            sound,
            start: 0,
            rows: None,
            state: BTreeMap::new(),
            made: Vec::new(),
        }
    }

    /// Returns the inputs of the next run; `None` after the last one.
    pub fn next_inputs(&mut self, recipe: &FittedRecipe) -> Result<Option<Vec<Tensor>>, String> {
        let length = self.sound.samples().len();
        let (window, hop) = match &recipe.repeat {
            None if length > MAX_WHOLE => {
                let most = MAX_WHOLE / sound::RATE as usize;
                return Err(format!(
                    "the model takes a sound at once: expected at most {most} seconds"
                ));
            }
            None => (self.sound.window(0, 0, length), length),
            Some(repeat) => (
                self.sound.window(self.start, repeat.before, repeat.window),
                repeat.hop,
            ),
        };
        let overlap = recipe.repeat.as_ref().map_or(0, WindowRepeat::overlap);
        let is_first = self.start == 0;
        if self.start + overlap >= length && !is_first {
            return Ok(None);
        }
        let least = recipe.repeat.as_ref().map_or(0, |repeat| repeat.rows);
        let prepared = recipe.preparation.window(window, least, &self.state)?;
        let Some(PreparedWindow { inputs, rows }) = prepared else {
            if !is_first {
                return Ok(None);
            }
            let seconds = self.sound.seconds();
            return Err(format!(
                "the sound has {seconds:.3} seconds, too short for the model"
            ));
        };
        self.rows = rows;
        self.start = self.start.saturating_add(hop.max(1));
        Ok(Some(inputs))
    }

    /// Adds the outputs of a run.
    pub fn add(&mut self, recipe: &FittedRecipe, outputs: Vec<Tensor>) -> Result<(), String> {
        self.made.resize(outputs.len(), None);
        let columns = recipe.repeat.as_ref().map_or(0, |repeat| repeat.columns);
        let names = recipe.outputs.iter();
        for ((name, output), made) in names.zip(outputs).zip(&mut self.made) {
            let states = recipe.repeat.as_ref().map(|repeat| &repeat.state);
            let input = states.and_then(|it| it.iter().find(|(_, from)| *from == name));
            if let Some((input, _)) = input {
                self.state.insert(input.clone(), output);
                continue;
            }
            let array = Array::of(&output);
            if recipe.repeat.is_none() {
                *made = Some(array);
                continue;
            }
            let array = array.part(self.rows, columns)?;
            match made {
                None => *made = Some(array),
                Some(made) => made.append(array)?,
            }
        }
        let count: usize = self.made.iter().flatten().map(|it| it.values.len()).sum();
        if count > MAX_VALUES {
            return Err(format!(
                "the model gives more than {MAX_VALUES} values: send a shorter sound"
            ));
        }
        Ok(())
    }

    /// Converts the outputs of all runs to an answer.
    pub fn answer(self, recipe: &FittedRecipe) -> Result<TypedAnswer, String> {
        let samples = self.sound.samples().len();
        let named = recipe.outputs.iter().zip(self.made);
        let named = named.filter_map(|(name, made)| Some((name.clone(), made?)));
        recipe.interpret_sound(named, samples)
    }
}

impl Array {
    /// Returns the first rows and columns of a tensor as a matrix; `columns` 0 stands for all.
    fn part(self, rows: Option<usize>, columns: usize) -> Result<Self, String> {
        let [all, width] = match self.shape[..] {
            [] | [_] => [1, self.values.len()],
            _ => self.last::<2>()?,
        };
        let rows = rows.map_or(all, |rows| rows.min(all));
        let kept = if columns == 0 {
            width
        } else {
            columns.min(width)
        };
        let lines = self.values.chunks_exact(width.max(1)).take(rows);
        let values = lines.flat_map(|line| &line[..kept]);
        Ok(Self {
            values: values.copied().collect(),
            shape: vec![rows, kept],
        })
    }

    /// Adds the rows of another matrix.
    fn append(&mut self, other: Self) -> Result<(), String> {
        if self.shape.last() != other.shape.last() {
            return Err(format!(
                "the model gives rows of {:?} and {:?} values",
                self.shape.last(),
                other.shape.last()
            ));
        }
        self.shape[0] += other.shape[0];
        self.values.extend(other.values);
        Ok(())
    }
}
