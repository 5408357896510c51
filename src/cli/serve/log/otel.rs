//! Traces of requests and tasks, exported with OpenTelemetry's protocol (OTLP) over HTTP.
//!
//! The standard environment variables of OpenTelemetry configure the export
//! (`OTEL_EXPORTER_OTLP_ENDPOINT` and others). Without an endpoint, nothing is traced.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// Environment variables that set an endpoint.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// Target of the exported spans.
const TARGET: &str = "pkgtool::trace";

/// Exports the pending spans when it is dropped.
pub(super) struct SpanGuard(SdkTracerProvider);

impl Drop for SpanGuard {
    fn drop(&mut self) {
        // If the collector is unreachable, the spans are lost.
        let _ = self.0.shutdown();
    }
}

/// Returns the layer that exports spans, if an endpoint is set.
pub(super) fn layer<S>() -> Result<Option<(impl Layer<S> + Send + Sync, SpanGuard)>, String>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let named = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.iter().any(named) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().build();
    let exporter = exporter.map_err(|error| format!("cannot export traces: {error}"))?;
    let resource = Resource::builder().with_service_name("pkgtool").build();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("pkgtool"))
        .with_filter(Targets::new().with_target(TARGET, LevelFilter::TRACE));
    Ok(Some((layer, SpanGuard(provider))))
}
