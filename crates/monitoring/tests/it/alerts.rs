//! The rules are what the code gives, and no value of an enum is without one.

use std::collections::BTreeSet;

use monitoring::metrics::METRICS;
use monitoring::{alerts, document};
use payment_ledger::ExceptionKind;
use payment_ledger::audit::reconcile::drift::Drift;
use payment_ledger::operator::alerts::AlertKind;
use payment_protocol::{OperatorReason, PaymentState};
use service_kit::metrics::Kind;

use crate::read;

#[test]
fn s0_15_the_files_are_what_the_code_gives() {
    let alerts = alerts();
    let again = "run ./dev generate-alerts and commit deploy/alerts";
    assert!(read("deploy/alerts/payments.rules.yml") == document::rules(&alerts), "{again}");
    let tables = document::tables(&alerts, METRICS, mock_switch::METRICS);
    assert!(read("deploy/alerts/README.md") == tables, "{again}");
}

#[test]
fn s0_15_every_state_reason_and_kind_has_its_alert() {
    let alerts = alerts();
    let names: BTreeSet<_> = alerts.iter().map(|alert| alert.name.as_str()).collect();
    assert_eq!(names.len(), alerts.len(), "two alerts of one name");
    let states = PaymentState::ALL.iter().map(|state| ("state", state.as_str()));
    let reasons = OperatorReason::ALL.iter().map(|reason| ("reason", reason.as_str()));
    let exceptions = ExceptionKind::ALL.iter().map(|kind| ("kind", kind.as_str()));
    let drifts = Drift::ALL.iter().map(|kind| ("kind", kind.as_str()));
    let kinds = AlertKind::ALL.iter().map(|kind| ("kind", kind.as_str()));
    for (label, word) in states.chain(reasons).chain(exceptions).chain(drifts).chain(kinds) {
        let of = format!("{{{label}=\"{word}\"}}");
        let found = alerts.iter().find(|alert| alert.expr.contains(&of) && alert.page.section == word);
        assert!(found.is_some(), "no alert on {of}");
    }
    for alert in &alerts {
        let texts = [&alert.summary, &alert.because];
        assert!(texts.iter().all(|text| text.len() > 10), "{}", alert.name);
    }
}

/// A rule on a metric or label that nobody exports would never fire.
#[test]
fn s0_15_alerts_speak_of_metrics_that_are_there() {
    for alert in alerts() {
        let mut metrics = 0;
        // What is in quotes is a value of a label.
        let plain: String = alert.expr.split('"').step_by(2).collect::<Vec<_>>().join("\"\"");
        for word in plain.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            let histogram = word.strip_suffix("_count");
            let listed = METRICS.iter().map(|listed| &listed.metric).find(|metric| {
                metric.name == word || (metric.kind == Kind::Histogram && Some(metric.name) == histogram)
            });
            let Some(metric) = listed else {
                assert!(!word.contains('_'), "{}: {word} is no metric", alert.name);
                continue;
            };
            metrics += 1;
            for labels in plain.split(word).skip(1).filter_map(|rest| rest.strip_prefix('{')) {
                let label = labels.split(|c: char| !(c.is_ascii_lowercase() || c == '_')).next().unwrap();
                assert!(metric.labels.contains(&label), "{}: {word} has no label {label}", alert.name);
            }
        }
        // Prometheus itself makes `up`.
        assert!(metrics > 0 || plain.contains("up{job"), "{}: {}", alert.name, alert.expr);
    }
}
