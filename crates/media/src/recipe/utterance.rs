//! Runs of a model over a text, piece by piece.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a pause has few samples"
)]

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use pkgtool_engine::tensor::Tensor;

use super::fit::PreparedPiece;
use super::{FittedRecipe, FittedSynthesizer, ModelRecipe};
use crate::answer::SpeechAnswer;
use crate::operators::{Array, Data};
use crate::voice::{MAX_PHONEMES, PieceContext, SymbolTable, Voice, pause, pieces};

/// Maximum number of samples of the whole speech.
const MAX_SAMPLES: usize = 64 << 20;

/// The runs of a model over the phonemes of a text.
#[derive(Debug)]
pub struct TextRun {
    symbols: Arc<SymbolTable>,
    voice: Option<Voice>,
    phonemes: String,
    pieces: VecDeque<String>,
    /// The piece that runs, and the results of its steps.
    current: String,
    known: BTreeMap<String, Data>,
    tokens: usize,
    /// Numbers of frames that the durations ask for, and that the model gives.
    frames: [usize; 2],
    made: Option<SpeechAnswer>,
}

impl TextRun {
    /// Starts the runs over phonemes. Reads the voice beside the model.
    pub fn new(recipe: &ModelRecipe, model: &Path, phonemes: &str) -> Result<Self, String> {
        if phonemes.chars().count() > MAX_PHONEMES {
            return Err(format!(
                "the text has more than {MAX_PHONEMES} phonemes: send it in parts"
            ));
        }
        let symbols = Arc::clone(&recipe.symbols);
        let preparation = &recipe.fitted.preparation;
        let known = symbols.known(phonemes);
        let split = pieces(&known, preparation.most_phonemes()?);
        let is_silent = |piece: &String| !piece.chars().any(char::is_alphabetic);
        if split.iter().all(is_silent) {
            return Err("the text has no phoneme that the model knows".to_owned());
        }
        let voice = preparation.voice()?;
        let voice = voice.map(|name| Voice::read(model, &name)).transpose()?;
        Ok(Self {
            symbols,
            voice,
            phonemes: split.join(" "),
            pieces: split.into_iter().filter(|it| !is_silent(it)).collect(),
            current: String::new(),
            known: BTreeMap::new(),
            tokens: 0,
            frames: [0, 0],
            made: None,
        })
    }

    /// Returns the inputs of the next run; `None` after the last one.
    pub fn next_inputs(&mut self, recipe: &FittedRecipe) -> Result<Option<Vec<Tensor>>, String> {
        let Some(piece) = self.pieces.pop_front() else {
            return Ok(None);
        };
        self.current = piece;
        let PreparedPiece {
            inputs,
            tokens,
            known,
        } = recipe.preparation.piece(self.context())?;
        (self.tokens, self.known) = (tokens, known);
        Ok(Some(inputs))
    }

    fn context(&self) -> PieceContext<'_> {
        PieceContext {
            phonemes: &self.current,
            symbols: &self.symbols,
            voice: self.voice.as_ref(),
        }
    }

    /// Converts the outputs of the first model to the inputs of its synthesizer. Returns `None` if the piece takes more
    /// frames than the synthesizer has: its parts come next.
    pub fn synthesizer_inputs(
        &mut self,
        recipe: &FittedRecipe,
        synthesizer: &FittedSynthesizer,
        outputs: &[Tensor],
    ) -> Result<Option<Vec<Tensor>>, String> {
        let mut known = std::mem::take(&mut self.known);
        let named = recipe.outputs.iter().zip(outputs);
        known.extend(named.map(|(name, it)| (name.clone(), Data::Values(Array::of(it)))));
        let of_piece = (self.context(), self.tokens);
        let made = synthesizer.inputs(&recipe.between, &mut known, of_piece)?;
        let [asked, given] = made.frames;
        let length = self.current.chars().count();
        if asked > given && length > 1 {
            for part in pieces(&self.current, length.div_ceil(2)).into_iter().rev() {
                self.pieces.push_front(part);
            }
            return Ok(None);
        }
        self.frames = made.frames;
        Ok(Some(made.inputs))
    }

    /// Adds the outputs of a run: of the synthesizer, if there is one.
    pub fn add(
        &mut self,
        recipe: &FittedRecipe,
        synthesizer: Option<&FittedSynthesizer>,
        outputs: &[Tensor],
    ) -> Result<(), String> {
        let names = synthesizer.map_or(&recipe.outputs, |it| &it.outputs);
        let pairs = names.iter().zip(outputs);
        let cut = pairs.map(|(name, it)| (name.clone(), Array::of(it).cut(self.frames)));
        let speech = recipe.interpret_piece(cut)?;
        let made = self.made.get_or_insert(SpeechAnswer {
            samples: Vec::new(),
            ..speech
        });
        if made.samples.len() + speech.samples.len() > MAX_SAMPLES {
            return Err(format!("the speech has more than {MAX_SAMPLES} samples"));
        }
        made.samples.extend(speech.samples);
        if made.pauses && !self.pieces.is_empty() {
            let pause = f64::from(made.rate) * pause(&self.current);
            let length = made.samples.len() + pause as usize;
            made.samples.resize(length, 0);
        }
        Ok(())
    }

    /// Returns the speech of all runs.
    pub fn answer(self) -> Result<SpeechAnswer, String> {
        let made = self.made.ok_or("the model did not run")?;
        Ok(SpeechAnswer {
            phonemes: self.phonemes,
            ..made
        })
    }
}
