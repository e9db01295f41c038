//! The rules and the lists, as files: `deploy/alerts/payments.rules.yml` and `deploy/alerts/README.md`.

use std::fmt::Write as _;

use service_kit::metrics::Metric;

use crate::alert::Alert;
use crate::metrics::Listed;

/// The rules, as Prometheus reads them.
#[must_use]
pub fn rules(alerts: &[Alert]) -> String {
    let mut text = String::from(
        "# Written by `./dev generate-alerts` from crates/monitoring; a test compares them. Do not edit.\n\
         groups:\n  - name: payments\n    interval: 15s\n    rules:\n",
    );
    for alert in alerts {
        let _ = write!(text, "{alert}");
    }
    text
}

/// Both lists, for people. `switch` is what the switch measures of itself.
#[must_use]
pub fn tables(alerts: &[Alert], bank: &[Listed], switch: &[Metric]) -> String {
    let mut text = String::from(
        "# Alerts and metrics\n\
         Written by `./dev generate-alerts` from [crates/monitoring](../../crates/monitoring); a test compares them. Do not edit.\n\n\
         `payments.rules.yml` is for Prometheus (`rule_files`), which scrapes every process under its name as the job: `webhook`,\n\
         `payment-worker`, `relay`, `notifier`. `payments.test.yml` shows some of them fire: `promtool test rules payments.test.yml`.\n\
         What to do is in the [runbook](../runbook/README.md).\n\n\
         ## Alerts\n\
         | alert | called | after | why then | page |\n|---|---|---|---|---|\n",
    );
    for alert in alerts {
        let Alert { name, held_for, severity, because, page, .. } = alert;
        let (severity, held_s) = (severity.as_str(), held_for.as_secs());
        let _ = writeln!(
            text,
            "| {name} | {severity} | {held_s} s | {because} | [{}](../runbook/{page}) |",
            page.section
        );
    }
    text.push_str("\n## Metrics\n| metric | kind | of | labels | by | what |\n|---|---|---|---|---|---|\n");
    for Listed { by, metric } in bank {
        let by: Vec<_> = by.iter().map(|process| process.as_str()).collect();
        row(&mut text, metric, &by.join(", "));
    }
    switch.iter().for_each(|metric| row(&mut text, metric, "mock-switch"));
    text
}

fn row(text: &mut String, metric: &Metric, by: &str) {
    let Metric { name, kind, unit, labels, meaning } = metric;
    let _ = writeln!(
        text,
        "| `{name}` | {} | {unit} | {} | {by} | {meaning} |",
        kind.as_str(),
        labels.join(", ")
    );
}
