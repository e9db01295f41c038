//! Prometheus itself reads the rules, and some of them fire when they should and not before.

use std::path::Path;
use std::process::Command;

use crate::root;

fn promtool(arguments: &[&str]) {
    let program = std::env::var_os("TEST_PROMTOOL").unwrap_or_else(|| "promtool".into());
    let ran = Command::new(&program).args(arguments).current_dir(root().join("deploy/alerts")).output();
    let ran = ran.unwrap_or_else(|error| {
        let program = Path::new(&program).display();
        panic!("{program}: {error}; run the tests by `./dev test`, which installs it, or install prometheus")
    });
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "promtool {arguments:?}:\n{said}");
}

#[test]
fn s0_15_prometheus_reads_the_rules() {
    promtool(&["check", "rules", "payments.rules.yml"]);
}

#[test]
fn s0_15_alerts_fire_when_they_should_and_not_before() {
    promtool(&["test", "rules", "payments.test.yml"]);
}
