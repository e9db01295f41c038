//! The generated files are current, and every enum value has an alert.

use std::collections::BTreeSet;

use monitoring::{alerts, document, metrics};
use payment_protocol::alert::AlertKind;
use payment_protocol::drift::Drift;
use payment_protocol::exception::ExceptionKind;
use payment_protocol::{OperatorReason, PaymentState};
use service_kit::metrics::Kind;

use crate::read;

#[test]
fn s0_15_the_generated_alert_files_match_the_code() {
    let alerts = alerts();
    let instruction = "run ./dev generate-monitoring and commit deploy";
    assert!(read("deploy/alerts/payments.rules.yml") == document::rules(&alerts), "{instruction}");
    let tables = document::tables(&alerts, mock_switch::METRICS);
    assert!(read("deploy/alerts/README.md") == tables, "{instruction}");
}

#[test]
fn s0_15_every_state_operator_reason_exception_and_drift_has_an_alert() {
    let alerts = alerts();
    let names: BTreeSet<_> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(names.len(), alerts.len(), "alert names must be unique");
    let states = PaymentState::ALL.iter().map(|state| ("state", state.as_str()));
    let reasons = OperatorReason::ALL.iter().map(|reason| ("reason", reason.as_str()));
    let exceptions = ExceptionKind::ALL.iter().map(|kind| ("kind", kind.as_str()));
    let drifts = Drift::ALL.iter().map(|kind| ("kind", kind.as_str()));
    let kinds = AlertKind::ALL.iter().map(|kind| ("kind", kind.as_str()));
    for (label, word) in states.chain(reasons).chain(exceptions).chain(drifts).chain(kinds) {
        let selector = format!("{{{label}=\"{word}\"}}");
        let alert = alerts.iter().find(|alert| alert.expr.contains(&selector) && alert.page.section == word);
        assert!(alert.is_some(), "expected an alert on {selector}");
    }
    for alert in &alerts {
        let texts = [&alert.summary, &alert.description];
        assert!(texts.iter().all(|text| text.len() > 10), "{} needs a summary and a description", alert.name);
    }
}

/// A rule on a metric or label that no process exports would never fire.
#[test]
fn s0_15_alert_expressions_use_listed_metrics_and_labels() {
    for alert in alerts() {
        let mut metrics = 0;
        // Quoted parts are label values.
        let unquoted: String = alert.expr.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        for word in unquoted.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            let histogram = word.strip_suffix("_count");
            let listed = metrics::all().map(|entry| &entry.metric).find(|metric| {
                metric.name == word || (metric.kind == Kind::Histogram && Some(metric.name) == histogram)
            });
            let Some(metric) = listed else {
                assert!(!word.contains('_'), "{}: {word} is not a listed metric", alert.name);
                continue;
            };
            metrics += 1;
            for labels in unquoted.split(word).skip(1).filter_map(|rest| rest.strip_prefix('{')) {
                let label = labels.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next().unwrap();
                assert!(metric.labels.contains(&label), "{}: {word} has no label {label}", alert.name);
            }
        }
        // `up` is exported by Prometheus itself.
        assert!(
            metrics > 0 || unquoted.contains("up{job"),
            "{}: expected a metric in {}",
            alert.name,
            alert.expr
        );
    }
}
