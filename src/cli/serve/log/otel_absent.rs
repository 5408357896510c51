//! Replaces traces in builds without OpenTelemetry: nothing is traced.

use tracing_subscriber::layer::Identity;

/// Has no values.
pub(super) enum SpanGuard {}

/// Always returns `None`.
#[expect(clippy::unnecessary_wraps, reason = "with OpenTelemetry it can fail")]
pub(super) fn layer() -> Result<Option<(Identity, SpanGuard)>, String> {
    Ok(None)
}
