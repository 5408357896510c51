//! A package's models as a service: which variant a predict config chooses, tensors in, tensors out.

use std::time::Duration;

use super::{Answer, CallError, Description, Request};
use crate::account::AccountId;

/// A package's models.
#[derive(Debug)]
pub struct Device {}

/// Tensors for a method.
#[derive(Debug)]
pub struct Prepared {}

impl Device {
    /// Checks a request.
    pub fn prepare(&self, request: &Request) -> Result<Prepared, CallError> {
        unimplemented!()
    }

    /// Runs the method.
    pub async fn predict(
        &self,
        prepared: Prepared,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        unimplemented!()
    }

    /// Checks a predict config by itself, before it is stored.
    pub fn check_config(&self, config: &str) -> Result<(), CallError> {
        unimplemented!()
    }

    /// What it is.
    pub fn description(&self) -> &Description {
        unimplemented!()
    }
}
