//! Reads a decoder's sizes, limits and tokens from the constant methods of an ExecuTorch program.
//!
//! The method names are those of ExecuTorch's `export_llm` and of its runner. Invariant: a value of
//! an unexpected kind is ignored.

use serde_json::Value as Json;

use pkgtool_model::{ModelInfo, ValueKind};

/// Access to the constant methods of a program.
pub(super) struct Constants<'a>(pub(super) &'a ModelInfo);

impl Constants<'_> {
    /// Returns the number of a constant method that returns exactly one.
    pub(super) fn number(&self, method: &str) -> Option<u64> {
        match self.numbers(method).as_slice() {
            [number] => Some(*number),
            _ => None,
        }
    }

    /// Returns the size that a constant method returns.
    pub(super) fn size(&self, method: &str) -> Option<usize> {
        let size = usize::try_from(self.number(method)?).ok();
        size.filter(|size| *size > 0)
    }

    /// Returns all numbers of a constant method, from several outputs or from a tensor.
    pub(super) fn numbers(&self, method: &str) -> Vec<u64> {
        let Some(method) = self.0.method(method).filter(|method| method.constant) else {
            return Vec::new();
        };
        let mut numbers = Vec::new();
        for output in &method.outputs {
            match &output.kind {
                ValueKind::Int(number) => numbers.extend(u64::try_from(*number).ok()),
                ValueKind::Tensor {
                    data: Some(data), ..
                } => numbers.extend(data.iter().filter_map(Json::as_u64)),
                _ => {}
            }
        }
        numbers
    }

    /// Returns the boolean of a constant method.
    pub(super) fn flag(&self, method: &str) -> Option<bool> {
        let method = self.0.method(method).filter(|method| method.constant)?;
        match method.outputs.first()?.kind {
            ValueKind::Bool(flag) => Some(flag),
            ValueKind::Int(number) => Some(number != 0),
            _ => None,
        }
    }

    /// Returns the token of a constant method.
    pub(super) fn token(&self, method: &str) -> Option<u32> {
        self.number(method).and_then(|id| u32::try_from(id).ok())
    }

    /// Returns the tokens that end a text.
    pub(super) fn ends(&self) -> Vec<u32> {
        let ids = ["get_eos_ids", "get_eos_id"].map(|method| self.numbers(method));
        let ids = ids.into_iter().flatten();
        ids.filter_map(|id| u32::try_from(id).ok()).collect()
    }
}
