//! The generated dashboard is current, shows every metric once, and asks for nothing else.

use std::collections::BTreeSet;

use monitoring::{dashboard, metrics};
use serde_json::Value;

use crate::{promtool::promtool, read};

#[test]
fn s0_15_the_generated_dashboard_matches_the_code() {
    let committed = read("deploy/dashboards/payments.json");
    assert!(committed == dashboard::dashboard(), "run ./dev generate-monitoring and commit deploy");
}

/// A row that names an unknown metric has a panel less; a metric without a row would never be seen.
#[test]
fn s0_15_every_metric_has_one_panel() {
    let rows = dashboard::ROWS;
    let in_rows: Vec<&str> = rows.iter().flat_map(|row| row.metrics.iter().copied()).collect();
    let unknown: Vec<_> = in_rows.iter().filter(|name| dashboard::entry(name).is_none()).collect();
    assert!(unknown.is_empty(), "no metric has these names: {unknown:?}");
    let names: BTreeSet<&str> = in_rows.iter().copied().collect();
    assert_eq!(names.len(), in_rows.len(), "a metric must be in one row only");
    let missing: Vec<_> =
        metrics::all().map(|entry| entry.metric.name).filter(|name| !names.contains(name)).collect();
    assert!(missing.is_empty(), "add these metrics to a row in dashboard.rs: {missing:?}");
    // One panel for each metric, one for each row, and the one of the firing alerts.
    let dashboard: Value = serde_json::from_str(&dashboard::dashboard()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    assert_eq!(panels.len(), names.len() + rows.len() + 1);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len());
}

/// No panel lies on another one.
#[test]
fn s0_15_the_panels_of_the_dashboard_do_not_overlap() {
    let dashboard: Value = serde_json::from_str(&dashboard::dashboard()).unwrap();
    let mut taken = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let at = |field: &str| panel["gridPos"][field].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            assert!(x < 24, "{panel}");
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{panel}");
            }
        }
    }
}

/// Prometheus parses every query: each is the expression of a recording rule here.
#[test]
fn s0_15_prometheus_accepts_the_queries_of_the_dashboard() {
    let dashboard: Value = serde_json::from_str(&dashboard::dashboard()).unwrap();
    let targets = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array())
        .flatten();
    let rules: Vec<Value> = targets
        .enumerate()
        .map(|(n, target)| {
            let expr = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m");
            serde_json::json!({ "record": format!("panel_{n}"), "expr": expr })
        })
        .collect();
    assert!(rules.len() > metrics::all().count());
    // JSON is YAML.
    let file = std::env::temp_dir().join(format!("dashboard-queries-{}.yml", std::process::id()));
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(&file, rules.to_string()).unwrap();
    promtool(&["check", "rules", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
}
