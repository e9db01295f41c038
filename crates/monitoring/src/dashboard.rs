//! The generated Grafana dashboard: one panel for each metric, in rows by subject.

use serde_json::{Value, json};
use service_kit::metrics::Kind;

use crate::metrics::{self, MetricEntry, Process};

/// A row of the dashboard.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its title.
    pub title: &'static str,
    /// Its metrics, by name; each metric is in one row.
    pub metrics: &'static [&'static str],
}

/// Every row, the most urgent first.
#[rustfmt::skip]
pub const ROWS: &[Row] = &[
    Row { title: "Attention", metrics: &["payments_needing_operator", "payments_needing_operator_oldest_seconds", "payments_needs_operator_total", "exceptions_open", "exceptions_open_oldest_seconds", "payments_alerted", "payments_alerts_total", "payments_decisions_total", "operator_logins_total", "operator_request_duration_seconds", "ledger_commits_may_be_lost", "reconciliation_last_run_age_seconds", "reconciliation_last_full_run_age_seconds", "reconciliation_unread_sources"] },
    Row { title: "Payments", metrics: &["api_payment_requests_total", "payments_started_total", "payments_ended_total", "payments_open", "payments_open_oldest_seconds", "payments_open_idle_seconds", "payments_resumed_total"] },
    Row { title: "Holds and balances", metrics: &["holds_open", "holds_open_minor", "holds_open_oldest_seconds", "internal_account_balance_minor"] },
    Row { title: "Restored accounts and claims", metrics: &["restores_overdue", "restores_overdue_seconds", "restores_late", "accounts_restored_total", "claims_open", "claims_open_minor", "claims_open_oldest_seconds", "claims_limit_minor", "recalls_unfinished", "recalls_overdue", "recalls_overdue_seconds"] },
    Row { title: "Switches", metrics: &["switch_callbacks_total", "switch_circuit_open", "inbox_undelivered", "inbox_undelivered_oldest_seconds", "inbox_delivered_total", "inbox_delivery_failures_total", "inbox_direct_deliveries_total"] },
    Row { title: "Payments API", metrics: &["http_request_duration_seconds", "api_rate_limited_total", "api_overloaded_total", "http_connections_refused_total", "api_event_streams_open", "api_event_streams_refused_total", "idempotency_circuit_open", "idempotency_batch_requests", "idempotency_batches_redone_total", "idempotency_reaped_total", "idempotency_partitions_dropped_total"] },
    Row { title: "Kill switches and limits", metrics: &["kill_switches_active", "kill_switches_active_oldest_seconds", "limits_configured", "limits_exhausted"] },
    Row { title: "Journal and background tasks", metrics: &["background_task_last_success_timestamp_seconds", "journal_unsealed", "journal_unsealed_oldest_seconds", "journal_sealed_total", "erasures_failing", "erasures_overdue_seconds"] },
    Row { title: "Events", metrics: &["outbox_unpublished", "outbox_unpublished_oldest_seconds", "outbox_published_total", "outbox_rejected_total", "outbox_unconfirmed_rounds_total", "outbox_parked", "events_unprocessed", "events_unprocessed_oldest_seconds", "events_consumed_total", "events_out_of_order_total", "events_deferred_total", "events_parked_total", "consumer_parked_messages"] },
    Row { title: "Outbound webhooks", metrics: &["outbound_webhook_attempts_total", "outbound_webhook_deliveries_pending", "outbound_webhook_deliveries_due", "outbound_webhook_oldest_due_seconds", "outbound_webhook_endpoints_active", "outbound_webhook_endpoints_disabled", "outbound_webhook_endpoints_disabled_total"] },
    Row { title: "Temporal workers", metrics: &["temporal_worker_task_slots_available", "temporal_worker_task_slots_used", "temporal_num_pollers", "temporal_workflow_task_schedule_to_start_latency_seconds", "temporal_activity_schedule_to_start_latency_seconds", "temporal_workflow_task_execution_latency_seconds", "temporal_workflow_task_replay_latency_seconds", "temporal_workflow_task_execution_failed_total", "temporal_activity_execution_latency_seconds", "temporal_local_activity_execution_latency_seconds", "temporal_activity_execution_failed_total", "temporal_sticky_cache_size", "temporal_sticky_cache_hit_total", "temporal_sticky_cache_miss_total", "temporal_sticky_cache_total_forced_eviction_total", "temporal_workflow_task_queue_poll_succeed_total", "temporal_workflow_task_queue_poll_empty_total", "temporal_request_latency_seconds", "temporal_request_failure_total", "temporal_long_request_latency_seconds"] },
    Row { title: "Database", metrics: &["database_connections", "database_connections_idle", "database_connections_max", "ledger_group_steps", "ledger_groups_failed_total"] },
];

/// Width and height of a panel on Grafana's grid of 24 columns.
const PANEL: (usize, usize) = (8, 8);

/// A query of a panel, and the legend of its series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// PromQL; `$__rate_interval` is Grafana's.
    pub expr: String,
    /// Legend, a Grafana template.
    pub legend: String,
}

/// The queries of a metric: the rate of a counter, the quantiles of a histogram, the value of a gauge.
#[must_use]
pub fn queries(entry: &MetricEntry) -> Vec<Query> {
    let MetricEntry { exported_by, metric } = entry;
    let (name, labels) = (metric.name, metric.labels);
    let by = |first: &[&str]| {
        let all = [first, labels].concat();
        if all.is_empty() { String::new() } else { format!(" by ({})", all.join(", ")) }
    };
    let legend = |otherwise: &str| {
        if labels.is_empty() {
            otherwise.to_owned()
        } else {
            labels.iter().map(|label| format!("{{{{{label}}}}}")).collect::<Vec<_>>().join(" ")
        }
    };
    let quantile = |percent: u8| Query {
        expr: format!(
            "histogram_quantile(0.{percent}, sum{} (rate({name}_bucket[$__rate_interval])))",
            by(&["le"])
        ),
        legend: if labels.is_empty() { format!("p{percent}") } else { legend("") },
    };
    match metric.kind {
        Kind::Counter => {
            vec![Query {
                expr: format!("sum{} (rate({name}[$__rate_interval]))", by(&[])),
                legend: legend(name),
            }]
        }
        // Several quantiles of several series in one panel cannot be distinguished.
        Kind::Histogram if labels.is_empty() => vec![quantile(50), quantile(95), quantile(99)],
        Kind::Histogram => vec![quantile(99)],
        Kind::Gauge if metric.unit == "seconds since 1970" => {
            vec![Query { expr: format!("time() - max{} ({name})", by(&[])), legend: legend(name) }]
        }
        Kind::Gauge if exported_by.len() > 1 => {
            vec![Query { expr: format!("sum{} ({name})", by(&["job"])), legend: "{{job}}".to_owned() }]
        }
        Kind::Gauge => {
            let function = if is_shared(exported_by) || metric.unit == "0 or 1" { "max" } else { "sum" };
            vec![Query { expr: format!("{function}{} ({name})", by(&[])), legend: legend(name) }]
        }
    }
}

/// Whether each process exports the same value, because all of them read it from the database.
fn is_shared(exported_by: &[Process]) -> bool {
    exported_by.iter().all(|process| matches!(process, Process::BackgroundWorker | Process::Notifier))
}

/// Grafana's unit of a metric's panel.
fn unit(entry: &MetricEntry) -> String {
    let metric = &entry.metric;
    match (metric.kind, metric.unit) {
        (_, "seconds" | "seconds since 1970") => "s".to_owned(),
        (Kind::Counter, unit) => format!("suffix: {unit}/s"),
        (_, "0 or 1") => "bool_yes_no".to_owned(),
        (_, unit) => format!("suffix: {unit}"),
    }
}

/// The dashboard `deploy/dashboards/payments.json`.
#[must_use]
pub fn dashboard() -> String {
    let mut panels = Vec::new();
    let mut top = 0;
    for row in ROWS {
        add(
            &mut panels,
            json!({ "type": "row", "title": row.title, "collapsed": false, "panels": [] }),
            0,
            top,
            (24, 1),
        );
        top += 1;
        let mut in_row = Vec::new();
        if row.title == "Attention" {
            in_row.push(alerts_panel());
        }
        in_row.extend(row.metrics.iter().filter_map(|name| entry(name)).map(metric_panel));
        let lines = in_row.len().div_ceil(24 / PANEL.0);
        for (at, panel) in in_row.into_iter().enumerate() {
            let (column, line) = (at % (24 / PANEL.0), at / (24 / PANEL.0));
            add(&mut panels, panel, column * PANEL.0, top + line * PANEL.1, PANEL);
        }
        top += lines * PANEL.1;
    }
    let dashboard = json!({
        "uid": "payments",
        "title": "Payment service",
        "description": "Generated by ./dev generate-monitoring from crates/monitoring. Do not edit.",
        "tags": ["payments"],
        "schemaVersion": 39,
        "editable": false,
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": [{
            "name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0,
        }] },
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

/// The metric of this name.
#[must_use]
pub fn entry(name: &str) -> Option<&'static MetricEntry> {
    metrics::all().find(|entry| entry.metric.name == name)
}

fn add(panels: &mut Vec<Value>, mut panel: Value, x: usize, y: usize, (width, height): (usize, usize)) {
    if let Some(fields) = panel.as_object_mut() {
        fields.insert("id".into(), json!(panels.len() + 1));
        fields.insert("gridPos".into(), json!({ "x": x, "y": y, "w": width, "h": height }));
    }
    panels.push(panel);
}

fn metric_panel(entry: &MetricEntry) -> Value {
    let name = entry.metric.name;
    panel(name, entry.metric.meaning, &unit(entry), &queries(entry))
}

/// The alerts that fire: a series that Prometheus itself exports.
fn alerts_panel() -> Value {
    let query = Query {
        expr: "count by (severity, alertname) (ALERTS{alertstate=\"firing\"})".to_owned(),
        legend: "{{severity}} {{alertname}}".to_owned(),
    };
    panel("Firing alerts", "Each has its page in deploy/runbook", "suffix: alerts", &[query])
}

fn panel(title: &str, description: &str, unit: &str, queries: &[Query]) -> Value {
    let datasource = json!({ "type": "prometheus", "uid": "${datasource}" });
    let targets: Vec<Value> = queries
        .iter()
        .zip('A'..)
        .map(|(Query { expr, legend }, id)| {
            json!({ "refId": id.to_string(), "datasource": datasource, "expr": expr, "legendFormat": legend })
        })
        .collect();
    json!({
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": datasource,
        "targets": targets,
        "fieldConfig": { "defaults": { "unit": unit }, "overrides": [] },
        "options": { "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi" } },
    })
}
