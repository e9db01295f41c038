//! Prometheus accepts the rules, and the rules under test fire as expected.

use std::path::Path;
use std::process::Command;

use crate::root;

pub(crate) fn promtool(arguments: &[&str]) {
    let program = std::env::var_os("TEST_PROMTOOL").unwrap_or_else(|| "promtool".into());
    let output = Command::new(&program).args(arguments).current_dir(root().join("deploy/alerts")).output();
    let output = output.unwrap_or_else(|error| {
        let program = Path::new(&program).display();
        panic!("{program}: {error}; run the tests by `./dev test`, which installs promtool, or install Prometheus")
    });
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "promtool {arguments:?}:\n{text}");
}

#[test]
fn s0_15_prometheus_accepts_the_alert_rules() {
    promtool(&["check", "rules", "payments.rules.yml"]);
}

#[test]
fn s0_15_alert_rules_fire_at_their_conditions_and_not_before() {
    promtool(&["test", "rules", "payments.test.yml"]);
}
