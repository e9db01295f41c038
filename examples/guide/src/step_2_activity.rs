//! Step 2: an activity with a key. Temporal runs an activity again whenever it did not hear how it ended; the key makes the
//! second run find what the first one did.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use std::sync::Arc;
use std::time::Duration;

use temporalio_common::RetryPolicy;
use temporalio_macros::{activities, workflow, workflow_methods};
use temporalio_sdk::activities::{ActivityContext, ActivityError};
use temporalio_sdk::{ActivityOptions, WorkflowContext, WorkflowResult};

use crate::books::Books;
use crate::order::Order;

/// A payment that submits its transfer.
#[workflow]
#[derive(Default)]
pub struct SubmittedPayment;

#[workflow_methods]
impl SubmittedPayment {
    #[run(name = "SubmittedPayment")]
    pub async fn run(ctx: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<String> {
        ctx.execute_activity(BankActivities::reserve, order.clone(), options()).await?;
        ctx.execute_activity(BankActivities::submit, order, options()).await?;
        Ok("submitted".to_owned())
    }
}

/// Every attempt has a time limit; their number has none. The workflow decides when it is enough, not the retry policy.
#[must_use]
pub fn options() -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(Duration::from_secs(5))
        .retry_policy(RetryPolicy::builder().initial_interval(Duration::from_millis(50)).build())
        .build()
}

/// What the bank and the switch do, each operation under its key.
pub struct BankActivities {
    pub books: Books,
}

#[activities]
impl BankActivities {
    /// Holds the amount in the customer's account.
    #[activity(name = "reserve")]
    pub async fn reserve(self: Arc<Self>, _ctx: ActivityContext, order: Order) -> Result<(), ActivityError> {
        self.record(&order, "reserve")
    }

    /// Submits the transfer. The switch accepts it, and its answer may be lost.
    #[activity(name = "submit")]
    pub async fn submit(self: Arc<Self>, ctx: ActivityContext, order: Order) -> Result<(), ActivityError> {
        self.record(&order, "submit")?;
        if ctx.info().attempt <= order.lost_answers {
            return Err(anyhow::anyhow!("the switch gave no answer").into());
        }
        Ok(())
    }

    /// Debits the customer: the money left.
    #[activity(name = "debit")]
    pub async fn debit(self: Arc<Self>, _ctx: ActivityContext, order: Order) -> Result<(), ActivityError> {
        self.record(&order, "debit")
    }

    /// Cancels the transfer at the switch; `true` if it had settled before and the cancel came too late.
    #[activity(name = "cancel")]
    pub async fn cancel(self: Arc<Self>, _ctx: ActivityContext, order: Order) -> Result<bool, ActivityError> {
        if self.books.has(&order.key("settled")) {
            return Ok(true);
        }
        self.record(&order, "cancel").map(|()| false)
    }

    /// Releases the hold: the money did not leave.
    #[activity(name = "release")]
    pub async fn release(self: Arc<Self>, _ctx: ActivityContext, order: Order) -> Result<(), ActivityError> {
        self.record(&order, "release")
    }
}

impl BankActivities {
    /// A repeat under the same key succeeds without doing it again.
    fn record(&self, order: &Order, operation: &str) -> Result<(), ActivityError> {
        self.books
            .record(&order.key(operation))
            .map(|_| ())
            .map_err(|error| anyhow::Error::from(error).into())
    }
}
