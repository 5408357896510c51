//! Requests with a picture, a sound or a text to speak, which a recipe answers: how a request gives it, and in which
//! form the answer comes.

mod faults;
mod form;
mod request;

pub(super) use faults::{failed, interpreted, misfit};
pub(super) use form::MediaAnswerForm;
pub use request::FormFields;
pub(super) use request::{MediaRequest, RecipeOption};
