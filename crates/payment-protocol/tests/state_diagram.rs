//! The committed state diagram is the one that the code generates.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::path::Path;

use payment_protocol::state_diagram::mermaid;

/// Set to `1`, this variable makes the test write the file.
const UPDATE: &str = "UPDATE_STATE_DIAGRAM";

#[test]
fn the_state_diagram_document_matches_the_table_of_transitions() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/state-diagram.md");
    let expected = document();
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        std::fs::write(&file, &expected).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        committed == expected,
        "docs/state-diagram.md differs from PaymentState::successors(); regenerate the file with \
         {UPDATE}=1 cargo test -p payment-protocol --test state_diagram"
    );
}

fn document() -> String {
    format!(
        "# State diagram of a payment\n\
         Generated from `PaymentState::successors()` in `crates/payment-protocol/src/state.rs`; a test compares this file \
         with the code. Regenerate:\n\
         `{UPDATE}=1 cargo test -p payment-protocol --test state_diagram`\n\
         \n\
         The [glossary](glossary.md) explains the states. The explorer compares every change of state that it reaches \
         with the same table.\n\
         \n\
         ```mermaid\n{}```\n",
        mermaid()
    )
}
