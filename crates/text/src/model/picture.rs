//! Pictures in prompts.
//!
//! The chat template writes a mark for each picture. A picture's identity follows its mark in the text of the prompt, so
//! texts of different pictures differ, and places of the picture take the mark among the tokens. Invariant: a text of a
//! client never counts as a mark.

use super::TextError;
use crate::chat::{ChatPicture, ChatRequest, FieldError};
use crate::decoder::DecoderModel;
use crate::slot::PictureId;
use crate::template::{Renderer, Template, TemplateTakes};
use crate::tokenizer::Tokenizer;

/// Marks of known models, for packages that name none.
const KNOWN_MARKS: [&str; 7] = [
    "<image>",
    "<|image_pad|>",
    "<image_soft_token>",
    "<|image|>",
    "<|IMAGE|>",
    "[IMG]",
    "<image_placeholder>",
];

/// Encloses an identity in the text of a prompt.
const FENCE: char = '\0';

/// How a model takes pictures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PictureSlots {
    /// The text that stands for a picture.
    mark: String,
    /// The token of this text.
    token: u32,
    /// Number of places that a picture takes.
    rows: usize,
}

/// The pictures of a prompt.
#[derive(Debug, Clone)]
pub(super) struct PromptPictures {
    slots: PictureSlots,
    pub(super) given: Vec<ChatPicture>,
}

impl PictureSlots {
    /// Finds the mark of a model whose pictures take `rows` places.
    pub fn find(
        tokenizer: &Tokenizer,
        decoder: &DecoderModel,
        rows: usize,
    ) -> Result<Self, TextError> {
        let stated = decoder.picture.and_then(|token| {
            let text = tokenizer.vocabulary().bytes(token)?;
            Some(String::from_utf8_lossy(text).into_owned())
        });
        let named = tokenizer.image_token().map(str::to_owned);
        let known = KNOWN_MARKS.map(str::to_owned).into_iter();
        let mut marks = stated.into_iter().chain(named).chain(known);
        let found = marks.find_map(|mark| {
            let token = tokenizer.id_of(&mark)?;
            Some(Self { mark, token, rows })
        });
        found.ok_or(TextError::NoMark)
    }

    /// Renders a prompt with pictures. Templates that do not write marks get them as texts.
    pub(super) fn render(
        &self,
        chat: &ChatRequest,
        (renderer, template, takes): (&Renderer, &Template, TemplateTakes),
    ) -> Result<(String, PromptPictures), TextError> {
        let given: Vec<ChatPicture> = chat.pictures().cloned().collect();
        if let Some(place) = chat.message_with(&self.mark) {
            return Err(TextError::Fault(FieldError {
                path: format!("messages[{place}].content"),
                expected: format!("a text without `{}`, beside pictures", self.mark),
                found: "this text, which stands for a picture".to_owned(),
            }));
        }
        let render = |mark| renderer.render(template, &chat.conversation(takes, mark));
        let count = |text: &str| text.matches(&self.mark).count();
        let fits = |text: &String| count(text) == given.len();
        let as_parts = if takes.parts {
            Some(render(None)).filter(|it| it.as_ref().is_ok_and(fits))
        } else {
            None
        };
        let text = as_parts.unwrap_or_else(|| render(Some(&self.mark)))?;
        if !fits(&text) {
            let found = count(&text);
            return Err(TextError::Pictures {
                mark: self.mark.clone(),
                found,
                given: given.len(),
            });
        }
        let mut pictures = given.iter();
        let mut marked = String::with_capacity(text.len());
        for (place, part) in text.split(&self.mark).enumerate() {
            if place > 0 {
                let id = pictures.next().map(|it| it.id.to_text());
                marked.push_str(&self.mark);
                marked.push(FENCE);
                marked.push_str(&id.unwrap_or_default());
                marked.push(FENCE);
            }
            marked.push_str(part);
        }
        let slots = self.clone();
        Ok((marked, PromptPictures { slots, given }))
    }
}

impl PromptPictures {
    /// Encodes a text with marks and identities. `encode` encodes plain texts.
    pub(super) fn encode(
        &self,
        text: &str,
        encode: impl FnOnce(&str) -> Result<Vec<u32>, TextError>,
    ) -> Result<Vec<u32>, TextError> {
        let PictureSlots { mark, token, rows } = &self.slots;
        let mut pictures = Vec::new();
        let mut plain = String::with_capacity(text.len());
        for (place, part) in text.split(mark.as_str()).enumerate() {
            if place == 0 {
                plain.push_str(part);
                continue;
            }
            plain.push_str(mark);
            let (id, rest) = fenced(part).unwrap_or((None, part));
            pictures.extend(id);
            plain.push_str(rest);
        }
        let tokens = encode(&plain)?;
        let marks = tokens.iter().filter(|it| *it == token).count();
        if marks != pictures.len() {
            return Err(TextError::Pictures {
                mark: mark.clone(),
                found: marks,
                given: pictures.len(),
            });
        }
        let mut pictures = pictures.into_iter();
        let mut placed = Vec::with_capacity(tokens.len() + marks * rows);
        for id in tokens {
            match (id == *token).then(|| pictures.next()).flatten() {
                Some(picture) => placed.extend((0..*rows).map(|row| picture.slot(row))),
                None => placed.push(id),
            }
        }
        Ok(placed)
    }
}

/// Splits the identity off the text after a mark.
fn fenced(text: &str) -> Option<(Option<PictureId>, &str)> {
    let rest = text.strip_prefix(FENCE)?;
    let (id, rest) = rest.split_at_checked(PictureId::LETTERS)?;
    Some((PictureId::of_text(id), rest.strip_prefix(FENCE)?))
}
