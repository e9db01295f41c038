//! The state diagram of a payment, generated from [`PaymentState::successors`].

use std::fmt::Write as _;

use crate::state::PaymentState;

/// The state diagram as Mermaid source (`stateDiagram-v2`), with a newline at the end. States have the words
/// of the API.
#[must_use]
pub fn mermaid() -> String {
    let mut diagram = "stateDiagram-v2\n    direction LR\n".to_owned();
    for (n, state) in PaymentState::ALL.iter().enumerate() {
        if n == 0 {
            add_transition(&mut diagram, "[*]", state.as_str());
        }
        for next in state.successors() {
            add_transition(&mut diagram, state.as_str(), next.as_str());
        }
        if state.end().is_some() {
            add_transition(&mut diagram, state.as_str(), "[*]");
        }
    }
    diagram
}

fn add_transition(diagram: &mut String, from: &str, to: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(diagram, "    {from} --> {to}");
}
