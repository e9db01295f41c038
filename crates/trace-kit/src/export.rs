//! The exporter of a process: OTLP over gRPC, in batches, beside the work.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::global;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter as ExportSpans};

use crate::span::SpanIds;

/// Time for one batch to reach the collector.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for the last batch when the process stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

static IS_EXPORTING: AtomicBool = AtomicBool::new(false);

/// Whether this process records and exports spans.
#[must_use]
pub fn is_exporting() -> bool {
    IS_EXPORTING.load(Ordering::Relaxed)
}

/// The exporter of this process. At most 2,048 spans wait for the collector; more are dropped, so a collector that hangs or is
/// down costs spans and never a payment.
#[derive(Debug)]
#[must_use]
pub struct Exporter(Option<SdkTracerProvider>);

/// The exporter could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The exporter refused its options.
    #[error("the exporter of traces could not be set up; check the variables OTEL_EXPORTER_OTLP_*")]
    Build(#[from] ExporterBuildError),
}

impl Exporter {
    /// Exports the spans of the process `service` to `OTEL_EXPORTER_OTLP_ENDPOINT` if that is set. `OTEL_TRACES_SAMPLER`,
    /// `OTEL_RESOURCE_ATTRIBUTES` and `OTEL_BSP_*` have their standard meaning; by default every trace is recorded whose caller
    /// does not say otherwise. Must be called inside a tokio runtime, once.
    ///
    /// # Errors
    /// [`ExporterError`]. An address that this exporter does not speak to, or a collector that does not answer, is no error: the
    /// log says so, and payments go on.
    pub fn start(service: &'static str) -> Result<Self, ExporterError> {
        let endpoint = std::env::var("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_default();
        let is_disabled =
            std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"));
        if endpoint.is_empty() || is_disabled { Ok(Self(None)) } else { Self::start_to(service, endpoint) }
    }

    /// As [`Exporter::start`], to a given collector.
    ///
    /// # Errors
    /// [`ExporterError`].
    pub fn start_to(service: &'static str, endpoint: String) -> Result<Self, ExporterError> {
        // The address is not repeated in a log: it may hold a password.
        let protocol = std::env::var("OTEL_EXPORTER_OTLP_PROTOCOL").unwrap_or_else(|_| "grpc".into());
        if !endpoint.starts_with("http://") || protocol != "grpc" {
            tracing::error!(
                protocol,
                "the process exports no traces: set OTEL_EXPORTER_OTLP_ENDPOINT to the http:// address of an OpenTelemetry collector that listens for OTLP over gRPC, such as http://127.0.0.1:4317, and leave out OTEL_EXPORTER_OTLP_PROTOCOL"
            );
            return Ok(Self(None));
        }
        let otlp = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(EXPORT_TIMEOUT)
            .build()?;
        let resource = Resource::builder()
            .with_service_name(service)
            .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .with_attribute(opentelemetry::KeyValue::new("process.pid", i64::from(std::process::id())))
            .build();
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(ReportingExporter { otlp, is_failing: AtomicBool::new(false) })
            .with_id_generator(SpanIds::default())
            .with_resource(resource)
            .build();
        global::set_tracer_provider(provider.clone());
        IS_EXPORTING.store(true, Ordering::Relaxed);
        tracing::info!("the process exports its traces");
        Ok(Self(Some(provider)))
    }

    /// Exports what is left, within three seconds.
    pub async fn stop(self) {
        if let Some(provider) = self.0 {
            // The shutdown blocks its thread until the collector has answered.
            let stopped =
                tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(STOP_TIMEOUT)).await;
            if !matches!(stopped, Ok(Ok(()))) {
                tracing::warn!("the process could not export its last traces before it stopped");
            }
        }
    }
}

/// Says in the log when the collector stops answering, and when it answers again; not for every batch.
#[derive(Debug)]
struct ReportingExporter {
    otlp: SpanExporter,
    is_failing: AtomicBool,
}

impl ExportSpans for ReportingExporter {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let result = self.otlp.export(batch).await;
        let was_failing = self.is_failing.swap(result.is_err(), Ordering::Relaxed);
        match &result {
            Err(error) if !was_failing => {
                tracing::warn!(%error, "the collector of traces does not accept spans; spans are lost until it does, and payments go on");
            }
            Ok(()) if was_failing => {
                tracing::info!("the collector of traces accepts spans again");
            }
            _ => {}
        }
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.otlp.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.otlp.set_resource(resource);
    }
}
