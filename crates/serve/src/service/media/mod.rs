//! Requests with a picture or a sound, which a recipe answers: how a request gives it, and in which form the
//! answer comes.

mod form;
mod request;

pub(super) use form::MediaAnswerForm;
pub use request::FormFields;
pub(super) use request::{MediaRequest, RecipeOption};
