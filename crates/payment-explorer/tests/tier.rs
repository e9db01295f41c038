//! The short tier: one kind of trouble at a time. With `TEST_LONG`, as of `./dev test --long`, the fast tier: every accepted profile, several
//! kinds together, and every branch that the protocol can reach.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails")]

use std::process::Command;

#[test]
fn r38_the_explorer_finds_no_order_of_events_that_breaks_an_invariant() {
    let tier: &[&str] = if std::env::var_os("TEST_LONG").is_some() { &[] } else { &["--short"] };
    let walked = explore(tier);
    let output = String::from_utf8_lossy(&walked.stdout);
    println!("{output}");
    assert!(walked.status.success(), "{output}");
}

#[test]
fn the_explorer_describes_a_replayed_sequence_in_words() {
    let output = explore(&["--profile", "at_most_once:statement", "--faults", "0", "--replay", "0.0.0"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("ledger: reserve"), "{text}");
}

#[test]
fn the_explorer_refuses_an_unknown_profile_and_lists_the_known_ones() {
    for (args, expected) in [
        (["--profile", "ask:query"], "use one of query, reference"),
        (["--profile", "query:qery"], "use one of query, dedup"),
    ] {
        let refused = explore(&args);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains(expected), "{text}");
    }
}

fn explore(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_explore")).args(args).output().unwrap()
}
