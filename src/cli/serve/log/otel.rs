//! Traces of requests and tasks, sent by OpenTelemetry's protocol over HTTP to where its own environment
//! variables say (`OTEL_EXPORTER_OTLP_ENDPOINT` and the like); without an endpoint there are none.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;

/// The variables that name an endpoint.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
];

/// The target of the spans that are sent.
const TARGET: &str = "pkgtool::trace";

/// Sends what waits when it is dropped.
pub(super) struct Guard(SdkTracerProvider);

impl Drop for Guard {
    fn drop(&mut self) {
        // The collector may be gone; its traces are lost then.
        let _ = self.0.shutdown();
    }
}

/// The layer that sends spans, if an endpoint is named.
pub(super) fn layer<S>() -> Result<Option<(impl Layer<S> + Send + Sync, Guard)>, String>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let named = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.iter().any(named) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_http().build();
    let exporter = exporter.map_err(|error| format!("traces cannot be sent: {error}"))?;
    let resource = Resource::builder().with_service_name("pkgtool").build();
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource)
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(provider.tracer("pkgtool"))
        .with_filter(Targets::new().with_target(TARGET, LevelFilter::TRACE));
    Ok(Some((layer, Guard(provider))))
}
