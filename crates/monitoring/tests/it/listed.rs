//! Every metric that a process exports is in the list, and everything in the list is exported.

use std::collections::BTreeMap;

use monitoring::metrics::METRICS;

use crate::{arguments, literals, sources};

/// Kind and labels by name, as the sources have them.
fn exported() -> BTreeMap<String, (&'static str, Vec<String>)> {
    let mut found = BTreeMap::new();
    for (path, code) in sources(&["crates", "workers", "payments-api"]) {
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
                let this = (kind, labels);
                let before = found.insert(name.clone(), this.clone());
                assert!(before.is_none_or(|before| before == this), "{path}: {name} is not always the same");
            }
        }
    }
    found
}

#[test]
fn s0_15_every_metric_is_listed_once_with_its_kind_and_labels() {
    let bank = METRICS.iter().map(|listed| &listed.metric);
    let all: Vec<_> = bank.chain(mock_switch::METRICS).collect();
    let listed: BTreeMap<_, _> = all
        .iter()
        .map(|metric| {
            let mut labels: Vec<_> = metric.labels.iter().map(|label| (*label).to_owned()).collect();
            labels.sort();
            (metric.name.to_owned(), (metric.kind.as_str(), labels))
        })
        .collect();
    assert_eq!(listed.len(), all.len(), "a metric is listed twice");
    assert_eq!(listed, exported(), "left: crates/monitoring/src/metrics.rs; right: the sources");
    for metric in all {
        assert!(metric.meaning.len() > 5 && !metric.unit.is_empty(), "{}", metric.name);
        let is_total = metric.name.ends_with("_total");
        assert_eq!(is_total, metric.kind.as_str() == "counter", "{}: only counters end so", metric.name);
    }
}
