//! Step 7: a replay test. Changed workflow code must still fit the histories of the payments that are open; a replay shows
//! before a deployment whether it does.

#![allow(missing_docs, reason = "the macros make undocumented constants of the documented methods")]

use durable_payments_guide::order::Order;
use durable_payments_guide::step_2_activity::{BankActivities, options};
use durable_payments_guide::step_5_compensation::CompensatedPayment;
use temporalio_client::{
    WorkflowFetchHistoryOptions, WorkflowGetResultOptions, WorkflowHistory, WorkflowSignalOptions,
};
use temporalio_common::protos::temporal::api::history::v1::History;
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::workflow_replayer::{WorkflowReplayer, WorkflowReplayerOptions};
use temporalio_sdk::{WorkflowContext, WorkflowResult};

use crate::bank::Bank;

/// The same payment after a careless change: it submits before it reserves.
#[workflow]
#[derive(Default)]
struct ChangedPayment;

#[workflow_methods]
impl ChangedPayment {
    #[run(name = "CompensatedPayment")]
    async fn run(ctx: &mut WorkflowContext<Self>, order: Order) -> WorkflowResult<String> {
        ctx.execute_activity(BankActivities::submit, order.clone(), options()).await?;
        ctx.execute_activity(BankActivities::reserve, order, options()).await?;
        Ok("settled".to_owned())
    }
}

/// Replays a history with the workflow of these options; `None` if it fits.
async fn replay(options: WorkflowReplayerOptions, history: &History) -> anyhow::Result<Option<String>> {
    let mut results =
        WorkflowReplayer::new(options)?.replay_workflows([WorkflowHistory::from(history.clone())]).await?;
    let result = results.pop().ok_or_else(|| anyhow::anyhow!("no result"))?;
    Ok(result.replay_failure.map(|failure| format!("{failure:?}")))
}

#[tokio::test]
async fn step_7_a_replay_finds_workflow_code_that_does_not_fit_an_open_payment() -> anyhow::Result<()> {
    let bank = Bank::open().await?;
    let order = Order::new("FR-CAROL-EUR");
    let history = bank
        .with_worker(async {
            let payment = bank
                .client
                .start_workflow(CompensatedPayment::run, order.clone(), bank.options(&order))
                .await?;
            let transfer = "transfer 1".to_owned();
            payment.signal(CompensatedPayment::confirm, transfer, WorkflowSignalOptions::default()).await?;
            payment.get_result(WorkflowGetResultOptions::default()).await?;
            let history = payment.fetch_history(WorkflowFetchHistoryOptions::default());
            Ok(History { events: history.into_events().await? })
        })
        .await?;
    let same = WorkflowReplayerOptions::new().register_workflow::<CompensatedPayment>()?.build();
    assert_eq!(replay(same, &history).await?, None);
    let changed = WorkflowReplayerOptions::new().register_workflow::<ChangedPayment>()?.build();
    assert!(replay(changed, &history).await?.is_some(), "the changed code must not fit the history");
    Ok(())
}
