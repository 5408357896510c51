//! Fields that chat completions and text completions share.

use super::bounds::RequestLimits;
use super::fault::FieldError;
use super::field::RequestField;

/// Streaming options of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streaming {
    /// Send the answer in pieces as it is generated.
    pub stream: bool,
    /// Report token counts in a last piece (`stream_options.include_usage`).
    pub include_usage: bool,
}

impl Streaming {
    pub(super) fn read(request: &RequestField) -> Result<Self, FieldError> {
        let stream = request.get("stream").flag()?;
        let Some(options) = request.get("stream_options").there() else {
            return Ok(Self {
                stream,
                include_usage: false,
            });
        };
        options.object()?;
        if !stream {
            return Err(options.fault("nothing unless `stream` is true"));
        }
        Ok(Self {
            stream,
            include_usage: options.get("include_usage").flag()?,
        })
    }
}

/// Parses the name of the requested model.
pub(super) fn model(request: &RequestField) -> Result<Option<String>, FieldError> {
    request.get("model").optional_text()
}

/// Parses the number of choices.
pub(super) fn choices(request: &RequestField, bounds: &RequestLimits) -> Result<u32, FieldError> {
    let count = request.get("n").count(1..=bounds.choices)?;
    Ok(count.unwrap_or(1))
}

/// Parses the maximum number of tokens of an answer, at least `least`, under either of its two
/// names.
pub(super) fn max_tokens(
    request: &RequestField,
    least: u32,
    bounds: &RequestLimits,
) -> Result<Option<u32>, FieldError> {
    let (old, new) = (
        request.get("max_tokens"),
        request.get("max_completion_tokens"),
    );
    let range = least..=bounds.max_tokens.max(least);
    let (first, second) = (old.count(range.clone())?, new.count(range)?);
    match (first, second) {
        (Some(first), Some(second)) if first != second => {
            Err(new.fault(format!("{first}, as `max_tokens` says")))
        }
        _ => Ok(second.or(first)),
    }
}
