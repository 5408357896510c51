//! Answers for pictures: the model runs once; a reader runs once for each line that it finds.

use image::RgbImage;

use super::{AnsweringModel, GivenMedia, misfit, unsuited};
use crate::cli::exit::Failure;
use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::Tensor;
use pkgtool_media::answer::{LineAnswer, TextAnswer, TypedAnswer};
use pkgtool_media::picture::{Geometry, Quad};
use pkgtool_media::worker;

/// A picture as the model takes it.
pub(super) struct DecodedPicture {
    picture: RgbImage,
    pub(super) inputs: Vec<Tensor>,
    geometry: Geometry,
}

/// Decodes the picture and prepares the model's inputs.
pub(super) fn inputs(
    model: &AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<DecodedPicture, Failure> {
    let path = given.file(model.takes())?;
    let args = model.target.args;
    let picture = args.within("reading the picture", || super::picture(path))?;
    let preparation = &model.recipe().preparation;
    let prepare = || preparation.run(picture.clone());
    let prepared = args.within("preparing the picture", prepare);
    let (inputs, geometry) = prepared.map_err(|reason| unsuited(path, &reason))?;
    Ok(DecodedPicture {
        picture,
        inputs,
        geometry,
    })
}

/// Answers.
pub(super) fn answer(
    model: &mut AnsweringModel<'_>,
    given: GivenMedia<'_>,
) -> Result<TypedAnswer, Failure> {
    let prepared = inputs(model, given)?;
    let outputs = model.run(RunStart::Anew, &prepared.inputs)?;
    let recipe = model.recipe();
    let interpret = || recipe.interpret(&outputs, prepared.geometry);
    let answer = model
        .target
        .args
        .within("interpreting the outputs", interpret);
    let answer = answer.map_err(|reason| model.misfit(&reason))?;
    let texts = match &answer {
        TypedAnswer::Lines(lines) => read_lines(model, lines, given, &prepared.picture)?,
        _ => None,
    };
    Ok(answer.with_texts(texts))
}

/// Reads the lines of an answer, if the package has a model for it. Without lines, the model does not start.
fn read_lines(
    model: &mut AnsweringModel<'_>,
    lines: &LineAnswer,
    given: GivenMedia<'_>,
    picture: &RgbImage,
) -> Result<Option<Vec<TextAnswer>>, Failure> {
    let Some(reader) = &model.choice.reader else {
        return Ok(None);
    };
    let path = given.file(model.takes())?;
    let recipe = &reader.recipe.fitted;
    let quads: Vec<Quad> = lines.lines.iter().map(|line| line.quad).collect();
    let mut texts = Vec::new();
    while texts.len() < quads.len() {
        let left = &quads[texts.len()..];
        let cut = || worker::cut_out(&recipe.preparation, picture, left);
        let parts = model.target.args.within("cutting out the lines", cut);
        for part in parts.map_err(|reason| unsuited(path, &reason))? {
            let (target, selection) = (model.target, &reader.selection);
            let second = &mut model.second;
            let outputs = second.run(target, selection, RunStart::Anew, &part.inputs)?;
            let text = recipe.interpret_text(&outputs, part.geometry);
            texts.push(text.map_err(|reason| misfit(recipe, &reason))?);
        }
    }
    Ok(Some(texts))
}
