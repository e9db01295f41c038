//! The page in a real Chromium, on both engines, and each fault on the real processes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod real;
mod simulated;
mod traces;

use std::path::Path;

use playground::lessons::{Expected, LESSONS};
use playground::run::AMOUNT_MINOR;
use playground::server::{Page, router};
use serde_json::Value;
use tokio::process::Command;

/// Drives the page as `page.py` says. Returns its lines.
async fn drive(address: &str, engine: &str, picture: Option<&Path>) -> Vec<Value> {
    run_script("page.py", &[address, engine], picture).await
}

/// Runs a script that drives Chromium. Returns its lines.
async fn run_script(script: &str, arguments: &[&str], picture: Option<&Path>) -> Vec<Value> {
    let setting = |name: &str| {
        std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the tests by `./dev test`"))
    };
    let output = Command::new(setting("TEST_PLAYWRIGHT"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page").join(script))
        .args(arguments)
        .arg(setting("TEST_CHROMIUM"))
        .args(picture)
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{script} failed: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Serves the page; returns its address.
async fn serve(page: Page) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router(page)).await });
    address
}

fn dollars(times: i64) -> String {
    format!("${}", times * AMOUNT_MINOR / 100)
}

fn assert_shown(line: &Value, side: &str, expected: Expected) {
    let shown = &line[side];
    assert_eq!(shown["charged"], dollars(expected.charged), "{line}");
    assert_eq!(shown["left"], dollars(expected.left), "{line}");
    let finding = shown["finding"].as_str().unwrap();
    assert!(finding.contains(&format!("the answer is “{}”", expected.answer)), "{line}");
    assert!(finding.starts_with(if side == "with-keys" { "Right: " } else { "Wrong: " }), "{line}");
    let charges = shown["entries"].as_array().unwrap().iter().filter(|entry| **entry == "-42.00");
    assert_eq!(i64::try_from(charges.count()).unwrap(), expected.charged, "{line}");
    assert!(shown["steps"].as_u64().unwrap() > 2, "{line}");
}

/// The page shows the figures of every lesson, in the order of the lessons.
fn assert_lessons(lines: &[Value]) {
    let shown: Vec<&Value> = lines.iter().filter(|line| line["lesson"].is_string()).collect();
    assert_eq!(shown.len(), LESSONS.len());
    for (line, lesson) in shown.into_iter().zip(LESSONS) {
        assert_eq!(line["lesson"], lesson.name);
        assert_shown(line, "with-keys", lesson.with_keys);
        assert_shown(line, "without-keys", lesson.without_keys);
        // A stall is seen at each submit that it holds up.
        let faults = u64::try_from(lesson.schedule.split(',').count()).unwrap();
        assert!(line["with-keys"]["faults"].as_u64().unwrap() >= faults, "{line}");
    }
}
