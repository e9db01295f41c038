//! Exports metrics of the Temporal SDK beside those of the process: the ones that `monitoring::metrics::SDK_METRICS` lists, with
//! the listed labels only: each further label would multiply the series.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Key, Label, Level, Metadata};
use monitoring::metrics::SDK_METRICS;
use service_kit::metrics::{Kind, Metric};
use temporalio_common::telemetry::metrics::{
    CoreMeter, Counter, CounterBase, Gauge, GaugeBase, GaugeF64, Histogram, HistogramDuration,
    HistogramDurationBase, HistogramF64, MetricAttributable, MetricAttributes, MetricParameters,
    NewAttributes, NoOpCoreMeter, TemporalMeter, UpDownCounter,
};
use temporalio_common::telemetry::{METRIC_PREFIX, TaskQueueLabelStrategy, TelemetryOptions};
use temporalio_sdk::runtime::RuntimeOptions;

/// Options of a runtime whose metrics go to the recorder of this process; install the recorder first.
///
/// # Errors
/// The SDK refuses the options, which does not occur.
pub(crate) fn runtime_options() -> anyhow::Result<RuntimeOptions> {
    let meter: Arc<dyn CoreMeter> = Arc::new(RecorderMeter { prefix: "" });
    let telemetry = TelemetryOptions::builder().metrics(meter).attach_service_name(false).build();
    RuntimeOptions::builder().telemetry_options(telemetry).build().map_err(anyhow::Error::msg)
}

/// The meter of a client: its requests and polls.
pub(crate) fn client_meter() -> TemporalMeter {
    let meter = RecorderMeter { prefix: METRIC_PREFIX };
    TemporalMeter::new(Arc::new(meter), NewAttributes::default(), TaskQueueLabelStrategy::UseNormal)
}

/// Creates the SDK's instruments: on the recorder for listed metrics, without effect for others.
#[derive(Debug)]
struct RecorderMeter {
    /// The prefix that the instruments' names lack: a runtime adds it itself, a client does not.
    prefix: &'static str,
}

impl RecorderMeter {
    /// The listed metric of an instrument. The SDK's names have no suffix; the exported ones have the suffix of their kind.
    fn listed(&self, kind: Kind, params: &MetricParameters, suffix: &str) -> Option<&'static Metric> {
        let name = format!("{}{}{suffix}", self.prefix, params.name);
        SDK_METRICS
            .iter()
            .map(|entry| &entry.metric)
            .find(|metric| metric.kind == kind && metric.name == name)
    }
}

impl CoreMeter for RecorderMeter {
    fn new_attributes(&self, attributes: NewAttributes) -> MetricAttributes {
        NoOpCoreMeter.new_attributes(attributes)
    }

    fn extend_attributes(&self, existing: MetricAttributes, attributes: NewAttributes) -> MetricAttributes {
        NoOpCoreMeter.extend_attributes(existing, attributes)
    }

    fn counter(&self, params: MetricParameters) -> Counter {
        match self.listed(Kind::Counter, &params, "_total") {
            Some(metric) => Counter::new(Arc::new(Instrument(metric))),
            None => NoOpCoreMeter.counter(params),
        }
    }

    fn histogram(&self, params: MetricParameters) -> Histogram {
        NoOpCoreMeter.histogram(params)
    }

    fn histogram_f64(&self, params: MetricParameters) -> HistogramF64 {
        NoOpCoreMeter.histogram_f64(params)
    }

    fn histogram_duration(&self, params: MetricParameters) -> HistogramDuration {
        match self.listed(Kind::Histogram, &params, "_seconds") {
            Some(metric) => HistogramDuration::new(Arc::new(Instrument(metric))),
            None => NoOpCoreMeter.histogram_duration(params),
        }
    }

    fn gauge(&self, params: MetricParameters) -> Gauge {
        match self.listed(Kind::Gauge, &params, "") {
            Some(metric) => Gauge::new(Arc::new(Instrument(metric))),
            None => NoOpCoreMeter.gauge(params),
        }
    }

    fn gauge_f64(&self, params: MetricParameters) -> GaugeF64 {
        NoOpCoreMeter.gauge_f64(params)
    }

    fn up_down_counter(&self, params: MetricParameters) -> UpDownCounter {
        NoOpCoreMeter.up_down_counter(params)
    }
}

/// An instrument of a listed metric.
struct Instrument(&'static Metric);

impl Instrument {
    /// The series of these attributes: of its labels, those that are listed.
    fn key(&self, attributes: &MetricAttributes) -> Key {
        let mut labels = Vec::with_capacity(self.0.labels.len());
        if let MetricAttributes::NoOp(values) = attributes {
            labels.extend(
                self.0
                    .labels
                    .iter()
                    .filter_map(|name| values.get(*name).map(|value| Label::new(*name, value.clone()))),
            );
        }
        Key::from_parts(self.0.name, labels)
    }
}

const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

type Bound<B> = Result<Box<B>, Box<dyn Error>>;

impl MetricAttributable<Box<dyn CounterBase>> for Instrument {
    fn with_attributes(&self, attributes: &MetricAttributes) -> Bound<dyn CounterBase> {
        let key = self.key(attributes);
        Ok(Box::new(Series(metrics::with_recorder(|recorder| recorder.register_counter(&key, &METADATA)))))
    }
}

impl MetricAttributable<Box<dyn GaugeBase>> for Instrument {
    fn with_attributes(&self, attributes: &MetricAttributes) -> Bound<dyn GaugeBase> {
        let key = self.key(attributes);
        Ok(Box::new(Series(metrics::with_recorder(|recorder| recorder.register_gauge(&key, &METADATA)))))
    }
}

impl MetricAttributable<Box<dyn HistogramDurationBase>> for Instrument {
    fn with_attributes(&self, attributes: &MetricAttributes) -> Bound<dyn HistogramDurationBase> {
        let key = self.key(attributes);
        Ok(Box::new(Series(metrics::with_recorder(|recorder| recorder.register_histogram(&key, &METADATA)))))
    }
}

/// One series of the recorder.
struct Series<T>(T);

impl CounterBase for Series<metrics::Counter> {
    fn adds(&self, value: u64) {
        self.0.increment(value);
    }
}

impl GaugeBase for Series<metrics::Gauge> {
    #[allow(clippy::cast_precision_loss, reason = "gauges are doubles; counts stay far below 2^53")]
    fn records(&self, value: u64) {
        self.0.set(value as f64);
    }
}

impl HistogramDurationBase for Series<metrics::Histogram> {
    fn records(&self, value: Duration) {
        self.0.record(value.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use temporalio_common::telemetry::metrics::MetricKeyValue;

    use super::*;

    #[test]
    fn a_listed_sdk_metric_is_exported_with_its_listed_labels() {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            let meter = RecorderMeter { prefix: "" };
            let attributes = meter.new_attributes(NewAttributes::new(vec![
                MetricKeyValue::new("namespace", "default"),
                MetricKeyValue::new("task_queue", "payments"),
                MetricKeyValue::new("worker_type", "WorkflowWorker"),
            ]));
            let slots = meter.gauge("temporal_worker_task_slots_available".into());
            slots.record(7, &attributes);
            meter.counter("temporal_sticky_cache_hit".into()).add(2, &attributes);
            meter
                .histogram_duration("temporal_workflow_task_schedule_to_start_latency".into())
                .record(Duration::from_millis(20), &attributes);
            meter.counter("temporal_nexus_poll_no_task".into()).add(1, &attributes);
            RecorderMeter { prefix: METRIC_PREFIX }.counter("request_failure".into()).add(1, &attributes);
        });
        let text = handle.render();
        for line in [
            "temporal_worker_task_slots_available{task_queue=\"payments\",worker_type=\"WorkflowWorker\"} 7",
            "temporal_sticky_cache_hit_total 2",
            "temporal_request_failure_total 1",
            "temporal_workflow_task_schedule_to_start_latency_seconds_sum 0.02",
        ] {
            assert!(text.lines().any(|found| found == line), "expected {line} in\n{text}");
        }
        assert!(!text.contains("nexus"), "{text}");
    }
}
