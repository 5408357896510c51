//! Settings of runs that go beyond one model: transcripts, and words about a picture.

use super::FittedRecipe;
use crate::labels::AUTO;
use crate::speech::SpeechOptions;
use pkgtool_engine::tensor::Tensor;

/// Settings of words about a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyOptions {
    /// The question for a picture that comes without one.
    pub prompt: String,
    /// Maximum number of tokens of the answer.
    pub most: u32,
}

impl FittedRecipe {
    /// Returns the settings of a transcript.
    pub fn speech_options(&self) -> Result<SpeechOptions, String> {
        let arguments = self.last_arguments()?;
        let language = arguments.word("language");
        Ok(SpeechOptions {
            language: (language != AUTO).then(|| language.to_owned()),
            translate: arguments.flag("translate"),
            temperature: arguments.single("temperature"),
            most: arguments.whole("most"),
            keeps_tokens: false,
        })
    }

    /// Returns the settings of a reply.
    pub fn reply_options(&self) -> Result<ReplyOptions, String> {
        let arguments = self.last_arguments()?;
        Ok(ReplyOptions {
            prompt: arguments.word("prompt").to_owned(),
            most: u32::try_from(arguments.whole("most")).unwrap_or(u32::MAX),
        })
    }

    /// Returns the rows of embeddings among the outputs for one picture.
    pub fn rows(&self, outputs: &[Tensor]) -> Result<Vec<Vec<f32>>, String> {
        let rows = outputs.first().map(|tensor| (tensor.shape(), tensor));
        let Some(([1, _, width] | [_, width], tensor)) = rows else {
            return Err(format!(
                "expected rows of embeddings, [1, rows, width], got {outputs:?}"
            ));
        };
        let width = usize::try_from(*width).unwrap_or(0).max(1);
        let values = tensor.to_f32();
        Ok(values.chunks_exact(width).map(<[f32]>::to_vec).collect())
    }
}
