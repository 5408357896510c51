//! Pictures of texts: the denoiser and the painter that a recipe needs beside its encoder, and their settings.

use super::FittedRecipe;
use crate::diffusion::{DiffusionOptions, DiffusionRun, DiffusionShape, PromptTokens};

impl FittedRecipe {
    /// Starts a picture for a negative text and a text.
    pub fn diffusion_run(
        &self,
        shape: DiffusionShape,
        [negative, text]: [&PromptTokens; 2],
    ) -> Result<DiffusionRun, String> {
        let inputs = |tokens: &PromptTokens| self.preparation.prompt(tokens);
        let prompts = [inputs(negative)?, inputs(text)?];
        DiffusionRun::new(self.diffusion_options()?, shape, prompts)
    }

    /// Returns the tokens of the recipe's negative text and of a text. `encode` converts a text to at most this many
    /// tokens; `padding` is the tokenizer's.
    pub fn prompts(
        &self,
        text: &str,
        padding: Option<u32>,
        encode: impl Fn(&str, usize) -> Result<Vec<u32>, String>,
    ) -> Result<[PromptTokens; 2], String> {
        let negative = self.diffusion_options()?.negative;
        let most = self.preparation.prompt_length()?;
        let encoded = [encode(&negative, most)?, encode(text, most)?];
        Ok(PromptTokens::pair(encoded, padding))
    }

    /// Returns the settings of diffusion.
    pub fn diffusion_options(&self) -> Result<DiffusionOptions, String> {
        let arguments = self.last_arguments()?;
        let word = |name: &str| arguments.word(name).to_owned();
        Ok(DiffusionOptions {
            guidance: arguments.number("guidance"),
            steps: arguments.whole("steps"),
            seed: arguments.whole("seed") as u64,
            negative: word("negative"),
            size: [arguments.whole("width"), arguments.whole("height")],
            sampler: word("sampler"),
            prediction: word("prediction"),
            betas: word("betas"),
            beta_range: [arguments.number("beta_start"), arguments.number("beta_end")],
            train_steps: arguments.whole("train_steps"),
            offset: arguments.whole("offset"),
            spacing: word("spacing"),
            final_one: arguments.flag("final_one"),
            clip: arguments.flag("clip"),
            scaling: arguments.number("scaling"),
            range: word("range"),
        })
    }
}
