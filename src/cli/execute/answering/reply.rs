//! Words about a picture: an encoder runs once, and a text decoder answers a question about its rows.

use std::ops::ControlFlow;

use super::super::talking::TalkingModel;
use super::{AnsweringModel, GivenMedia, read};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_media::MediaKind;
use pkgtool_media::answer::{ReplyAnswer, TypedAnswer};
use pkgtool_media::picture::decode;
use pkgtool_text::answer::Piece;
use pkgtool_text::chat::ChatRequest;
use pkgtool_text::generation::GenerationEvent;

impl AnsweringModel<'_> {
    /// Converts the file of a picture to rows of embeddings.
    pub(in super::super) fn rows(&mut self, picture: &[u8]) -> Result<Vec<Vec<f32>>, Failure> {
        let args = self.target.args;
        let model = self.choice.selection.model.display().to_string();
        let other = |reason: String| Failure::Other(format!("{model}: {reason}"));
        let preparation = &self.recipe().preparation;
        let prepare = || decode(picture).and_then(|picture| preparation.run(picture));
        let (inputs, _) = args
            .within("preparing the picture", prepare)
            .map_err(other)?;
        let outputs = self.run(RunStart::Anew, &inputs)?;
        self.recipe().rows(&outputs).map_err(other)
    }
}

/// Answers the question of the recipe.
pub(super) fn answer(
    model: &mut AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<TypedAnswer, Failure> {
    let path = given.file(model.takes())?;
    let bytes = read(path, MediaKind::Picture)?;
    let options = model.recipe().reply_options();
    let options = options.map_err(|reason| model.misfit(&reason))?;
    let place = path.display().to_string();
    let chat = ChatRequest::about_picture((&bytes, &place), &options.prompt, options.most);
    let chat = chat.map_err(|error| Failure::Other(error.to_string()))?;
    let target = model.target;
    let mut talking = TalkingModel::start(model.path, target.args, target.which, false)?;
    let turn = talking.prepare(&chat, &mut |picture| model.rows(&picture.bytes))?;
    let mut text = String::new();
    talking.answer(turn, &mut |event| {
        if let GenerationEvent::Piece {
            piece: Piece::Content(piece),
            ..
        } = event
        {
            text.push_str(&piece);
        }
        ControlFlow::Continue(())
    })?;
    Ok(TypedAnswer::Reply(ReplyAnswer { text }))
}
