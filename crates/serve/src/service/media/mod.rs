//! Requests with a picture, which a recipe answers: how a request gives the picture, and in which form the
//! answer comes.

mod form;
mod request;

pub(super) use form::MediaAnswerForm;
pub(super) use request::{MediaRequest, RecipeOption};
