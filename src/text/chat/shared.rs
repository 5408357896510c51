//! Fields that chats and completions have in common.

use super::bounds::Bounds;
use super::fault::Fault;
use super::field::Field;

/// How an answer is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Streaming {
    /// In pieces, as they come.
    pub stream: bool,
    /// With a last piece that counts tokens (`stream_options.include_usage`).
    pub include_usage: bool,
}

impl Streaming {
    pub(super) fn read(request: &Field) -> Result<Self, Fault> {
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

/// The name of the model that is asked.
pub(super) fn model(request: &Field) -> Result<Option<String>, Fault> {
    request.get("model").optional_text()
}

/// Number of choices.
pub(super) fn choices(request: &Field, bounds: &Bounds) -> Result<u32, Fault> {
    let count = request.get("n").count(1..=bounds.choices)?;
    Ok(count.unwrap_or(1))
}

/// Most tokens of an answer, of at least `least`, under either of its names.
pub(super) fn max_tokens(
    request: &Field,
    least: u32,
    bounds: &Bounds,
) -> Result<Option<u32>, Fault> {
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
