//! The debit: a step of our ledger that may begin with a query of the switch.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::sync::Arc;

use payment_ledger::LedgerError;
use payment_protocol::debit;
use payment_protocol::ids::PaymentId;
use payment_protocol::port::DebitOutcome;
use service_kit::error_chain;
use temporalio_macros::activities;
use temporalio_sdk::activities::{ActivityContext, ActivityError};

use super::ledger::LedgerActivities;
use super::ledger_failure;
use super::switch::SwitchActivities;
use crate::adapters::debit::DebitAdapter;

/// Dependencies of the debit.
pub struct DebitActivities {
    /// The ledger's steps.
    pub ledger: Arc<LedgerActivities>,
    /// The attempts at switches.
    pub switch: Arc<SwitchActivities>,
}

impl DebitActivities {
    async fn attempt(&self, payment_id: &PaymentId) -> Result<DebitOutcome, LedgerError> {
        let (payment, needs_query) = self.ledger.ledger.before_debit(payment_id).await?;
        let adapter = DebitAdapter { switch: &self.switch, payment: &payment, needs_query };
        debit::attempt(&adapter, &payment).await
    }
}

#[activities]
impl DebitActivities {
    /// Debits the hold.
    #[activity(name = "debit")]
    pub async fn debit(
        self: Arc<Self>,
        _ctx: ActivityContext,
        payment_id: PaymentId,
    ) -> Result<DebitOutcome, ActivityError> {
        let outcome = match self.attempt(&payment_id).await {
            Err(error) if error.is_final() => DebitOutcome::Failed { detail: error_chain(&error) },
            outcome => outcome.map_err(ledger_failure)?,
        };
        self.ledger.wake_relay.fire();
        if outcome == DebitOutcome::Done {
            metrics::counter!("payments_ended_total", "state" => "settled").increment(1);
        }
        Ok(outcome)
    }
}
