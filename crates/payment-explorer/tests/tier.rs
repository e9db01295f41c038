//! The fast tier: every accepted profile, and everything the protocol can come to.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on fails")]

use std::process::Command;

#[test]
fn r38_no_order_of_events_breaks_an_invariant() {
    let walked = Command::new(env!("CARGO_BIN_EXE_explore")).output().unwrap();
    let said = String::from_utf8_lossy(&walked.stdout);
    println!("{said}");
    assert!(walked.status.success(), "{said}");
}

#[test]
fn a_sequence_is_told_in_words_and_a_wrong_name_says_what_to_do() {
    let explore = |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_explore")).args(args).output().unwrap();
    let told = explore(&["--profile", "at_most_once:statement", "--faults", "0", "--replay", "0.0.0"]);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success() && text.contains("ledger: Reserve"), "{text}");
    for (args, says) in [
        (["--profile", "ask:query"], "there are query, reference"),
        (["--profile", "query:qery"], "there are query, dedup"),
    ] {
        let refused = explore(&args);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains(says), "{text}");
    }
}
