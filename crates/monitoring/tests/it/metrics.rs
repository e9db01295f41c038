//! The list of metrics and the exported metrics are the same.

use std::collections::BTreeMap;

use monitoring::metrics::METRICS;

use crate::{arguments, literals, sources};

/// Kind and labels by name, as the `metrics` macros in the sources have them.
fn exported() -> BTreeMap<String, (&'static str, Vec<String>)> {
    let mut exported = BTreeMap::new();
    for (path, code) in sources(&["crates", "workers", "webhook", "operator-api"]) {
        for kind in ["counter", "gauge", "histogram"] {
            let opener = format!("metrics::{kind}!(");
            for (at, _) in code.match_indices(&opener) {
                let arguments = arguments(&code, at + opener.len() - 1);
                let name = literals(arguments).first().expect("a name in quotes").to_string();
                let mut labels: Vec<String> = arguments
                    .split("=>")
                    .map(|before| literals(before).last().map(|label| (*label).to_owned()))
                    .take(arguments.matches("=>").count())
                    .flatten()
                    .collect();
                labels.sort();
                let metric = (kind, labels);
                let earlier = exported.insert(name.clone(), metric.clone());
                assert!(
                    earlier.is_none_or(|earlier| earlier == metric),
                    "{path}: {name} is exported elsewhere with another kind or other labels"
                );
            }
        }
    }
    exported
}

#[test]
fn s0_15_every_metric_is_listed_once_with_its_kind_and_labels() {
    let bank = METRICS.iter().map(|entry| &entry.metric);
    let all: Vec<_> = bank.chain(mock_switch::METRICS).collect();
    let listed: BTreeMap<_, _> = all
        .iter()
        .map(|metric| {
            let mut labels: Vec<_> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
            labels.sort();
            (metric.name.to_owned(), (metric.kind.as_str(), labels))
        })
        .collect();
    assert_eq!(listed.len(), all.len(), "each metric must be listed once");
    assert_eq!(listed, exported(), "left: crates/monitoring/src/metrics.rs; right: the sources");
    for metric in all {
        assert!(
            metric.meaning.len() > 5 && !metric.unit.is_empty(),
            "{} needs a meaning and a unit",
            metric.name
        );
        let is_total = metric.name.ends_with("_total");
        assert_eq!(
            is_total,
            metric.kind.as_str() == "counter",
            "{}: only counters end in _total",
            metric.name
        );
    }
}
