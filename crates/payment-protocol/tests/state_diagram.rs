//! The committed state diagrams, generated from `PaymentState::successors()`: the whole one in docs/state-diagram.md, and the
//! one in the README without `needs_operator`, which has transitions from and to almost every state.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use payment_protocol::state::PaymentState;

/// Set to `1`, this variable makes the tests write the diagrams.
const UPDATE: &str = "UPDATE_STATE_DIAGRAM";

const README_START: &str =
    "<!-- Generated: UPDATE_STATE_DIAGRAM=1 cargo test -p payment-protocol --test state_diagram -->\n";
const README_END: &str = "<!-- End of the generated diagram -->";

#[test]
fn the_state_diagram_document_matches_the_table_of_transitions() {
    let diagram = mermaid(PaymentState::ALL);
    compare(
        &root().join("docs/state-diagram.md"),
        &format!(
            "# State diagram of a payment\n\
             Generated from `PaymentState::successors()` in `crates/payment-protocol/src/state.rs`; a test compares this \
             file with the code. Regenerate:\n\
             `{UPDATE}=1 cargo test -p payment-protocol --test state_diagram`\n\
             \n\
             The [glossary](glossary.md) explains the states. The explorer compares every change of state that it reaches \
             with the same table.\n\
             \n\
             {diagram}"
        ),
    );
}

#[test]
fn the_state_diagram_of_the_readme_matches_the_table_of_transitions() {
    let readme = root().join("README.md");
    let text = std::fs::read_to_string(&readme).unwrap();
    let (before, rest) =
        text.split_once(README_START).expect("README.md has the start marker of the state diagram");
    let (_, after) = rest.split_once(README_END).expect("README.md has the end marker of the state diagram");
    let states: Vec<_> =
        PaymentState::ALL.iter().copied().filter(|&state| state != PaymentState::NeedsOperator).collect();
    compare(&readme, &format!("{before}{README_START}{}{README_END}{after}", mermaid(&states)));
}

/// Compares a file with the generated text, or writes the text if [`UPDATE`] is set.
fn compare(file: &Path, expected: &str) {
    if std::env::var(UPDATE).is_ok_and(|value| value == "1") {
        std::fs::write(file, expected).unwrap();
    }
    let committed = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        committed == expected,
        "{} differs from PaymentState::successors(); regenerate the diagram with \
         {UPDATE}=1 cargo test -p payment-protocol --test state_diagram",
        file.display()
    );
}

/// The transitions among `states` as a Mermaid code block. States have the words of the API.
fn mermaid(states: &[PaymentState]) -> String {
    let mut diagram =
        format!("```mermaid\nstateDiagram-v2\n    direction LR\n    [*] --> {}\n", states[0].as_str());
    for state in states {
        for next in state.successors().iter().filter(|next| states.contains(next)) {
            writeln!(diagram, "    {} --> {}", state.as_str(), next.as_str()).unwrap();
        }
        if state.end().is_some() {
            writeln!(diagram, "    {} --> [*]", state.as_str()).unwrap();
        }
    }
    diagram + "```\n"
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
