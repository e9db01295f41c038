//! Fuzz targets: each reads bytes of somebody else, and has a property that must hold for all of them.
//!
//! | module | reads |
//! |---|---|
//! | `callback` | the headers and the body of a switch's callback |
//! | `answers` | a switch's answers to submit, query, cancel and recall |
//! | `lists` | a switch's statement, and its listing of transfers |
//! | `switch` | (the switch that answers with an input) |
//! | `amount` | the amount of a payment request |
//! | `json` | the body of a request, for its canonical form |
//! | `stored` | records in the database and in Temporal's histories |
//!
//! `./dev fuzz` runs them with coverage; `tests/corpus.rs` runs the kept inputs, and changed ones, in `./dev test`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "what does not hold ends the run")]

mod amount;
mod answers;
mod callback;
mod json;
mod lists;
mod stored;
mod switch;

pub use stored::records;

/// A fuzz target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of the folder of its inputs.
    pub name: &'static str,
    /// Reads an input; returns whether the input was taken for what the target reads. Panics if the property does not hold.
    pub check: fn(&[u8]) -> bool,
}

/// Every target.
pub const TARGETS: [Target; 8] = [
    Target { name: "amount", check: amount::check },
    Target { name: "callback_body", check: callback::check_body },
    Target { name: "callback_headers", check: callback::check_headers },
    Target { name: "canonical_json", check: json::check },
    Target { name: "stored_records", check: stored::check },
    Target { name: "switch_answers", check: answers::check },
    Target { name: "switch_listing", check: lists::check_listing },
    Target { name: "switch_statement", check: lists::check_statement },
];
