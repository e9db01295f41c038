//! The payment that every step makes.

use serde::{Deserialize, Serialize};

/// What a customer asks for, and what the world does to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Identifies the payment, and is the Workflow ID: a payment has one workflow.
    pub payment_id: String,
    /// Account at another bank.
    pub destination: String,
    /// Amount in minor units.
    pub amount_minor: i64,
    /// How many answers to the submit are lost after the switch has accepted the transfer.
    pub lost_answers: u32,
    /// How long the switch may take to confirm, in milliseconds.
    pub sla_ms: u64,
}

impl Order {
    /// A payment whose switch answers at once and may take a minute to confirm.
    #[must_use]
    pub fn new(destination: &str) -> Self {
        Self {
            payment_id: format!("pay_{}", uuid::Uuid::new_v4().simple()),
            destination: destination.to_owned(),
            amount_minor: 1_250,
            lost_answers: 0,
            sla_ms: 60_000,
        }
    }

    /// The idempotency key of one operation of this payment: the same on every attempt, of any worker.
    #[must_use]
    pub fn key(&self, operation: &str) -> String {
        format!("{}:{operation}", self.payment_id)
    }
}
