//! What one run shows: the steps in order, and the account with and without idempotency keys.

use serde::Serialize;

use crate::schedule::{Fault, Instant};

/// The amount of every payment of the playground, in minor units: 42.00 USD.
pub const AMOUNT_MINOR: i64 = 4_200;
/// The opening balance of every account of the playground, in minor units.
pub const OPENING_MINOR: i64 = 20_000;

/// Which of the two clients a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// This service.
    WithKeys,
    /// The naive client (see `naive.rs`).
    WithoutKeys,
}

/// Who acts in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Actor {
    /// The customer.
    Customer,
    /// The process that carries the payment.
    Worker,
    /// The books of the bank.
    Ledger,
    /// The payment switch.
    Switch,
    /// The network between bank and switch.
    Network,
    /// Temporal and what starts workflows on it.
    Temporal,
    /// The operators of the bank.
    Operator,
}

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Which client.
    pub side: Side,
    /// The instant that it belongs to.
    pub at: Instant,
    /// Who acts.
    pub actor: Actor,
    /// What happens, in a sentence.
    pub text: String,
    /// The fault, if this step is the one that the visitor dropped.
    pub fault: Option<Fault>,
    /// Milliseconds since the start; `None` in the simulation, which has no clock.
    pub after_ms: Option<u64>,
}

/// One line of the account statement, in minor units; negative if the customer pays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// What was booked.
    pub text: String,
    /// The change of the balance.
    pub amount_minor: i64,
}

/// How one side ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The last answer to the customer: for this service the final state of the payment.
    pub answer: String,
    /// The customer's account statement.
    pub entries: Vec<Entry>,
    /// What the customer was charged, in minor units.
    pub charged_minor: i64,
    /// What the bank charged to its own claims account and asks back from the switch, in minor units.
    pub claimed_minor: i64,
    /// What left the bank at the switch and did not come back, in minor units.
    pub left_minor: i64,
}

impl Outcome {
    /// Whether exactly what left the bank was charged, once at most, and the customer got that answer.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let answered_settled = self.answer == "settled";
        let charged_minor = self.charged_minor + self.claimed_minor;
        charged_minor == self.left_minor
            && charged_minor <= AMOUNT_MINOR
            && answered_settled == (charged_minor > 0)
    }
}

/// The result of one run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// The steps of both sides, in order.
    pub steps: Vec<Step>,
    /// How the payment ended with keys.
    pub with_keys: Outcome,
    /// How the payment ended without keys.
    pub without_keys: Outcome,
}
