//! Path C where the receiving bank answers a recall after days (SCT Inst, FedNow, RTP): the payment ends settled, charged to the bank, and
//! the recall goes on until its money is back or the bank gives it up (S0.10).

use std::time::Duration;

use serde_json::json;
use testkit::system::{AcceptedPayment, OPENING_MINOR, SystemOptions};
use testkit::wait::until;
use testkit::{System, TestCallback};

use crate::kinds::{fednow, rtp, sct_inst};

const WITHIN: Duration = Duration::from_secs(30);

/// A payment that settled at the switch after its account was frozen, so that the bank was charged; and the switch's name of its transfer.
async fn charged_to_the_bank(
    name: &str,
    options: SystemOptions,
    recall: serde_json::Value,
) -> anyhow::Result<(System, AcceptedPayment, String)> {
    let system = System::start(name, options.with_profile("sla_ms", 30_000)).await?;
    let (payment, id) = charge_the_bank(&system, recall).await?;
    Ok((system, payment, id))
}

/// The same at a system that runs.
async fn charge_the_bank(
    system: &System,
    recall: serde_json::Value,
) -> anyhow::Result<(AcceptedPayment, String)> {
    system.switch.set_default_behaviour(json!({"callback": {"lose": true}, "recall": recall})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let id = system.transfer_name(&payment.payment_id).await?;
    system.set_account_status("ALICE", "frozen").await?;
    let settled = || async {
        Ok((system.switch.transfer_status(&id).await?.as_deref() == Some("SETTLED")).then_some(()))
    };
    until("the switch settles the transfer", WITHIN, settled).await?;
    assert_eq!(system.post_callback(&TestCallback::success(&id, 500)).await?, 200);
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR, "the customer pays nothing");
    assert_eq!(system.exceptions(&payment.payment_id).await?, ["debited_to_claims"]);
    Ok((payment, id))
}

/// Waits until the recall of the system's only payment has this status.
async fn wait_for_recall(system: &System, status: &str) -> anyhow::Result<()> {
    let read = || async {
        let now: Option<String> =
            sqlx::query_scalar("SELECT status FROM recalls").fetch_optional(&system.database.pool).await?;
        Ok((now.as_deref() == Some(status)).then_some(()))
    };
    until(&format!("the recall is {status}"), WITHIN, read).await
}

async fn open_claims_minor(system: &System) -> anyhow::Result<i64> {
    let open = "SELECT coalesce(sum(open_minor), 0)::bigint FROM claims";
    Ok(sqlx::query_scalar(open).fetch_one(&system.database.pool).await?)
}

#[tokio::test]
async fn s0_10_a_recall_that_takes_days_goes_on_after_the_end_until_the_money_is_back() -> anyhow::Result<()>
{
    for (name, options) in [("sct-inst", sct_inst()), ("fednow", fednow()), ("rtp", rtp())] {
        let (mut system, payment, id) =
            charged_to_the_bank(&format!("recall-{name}"), options, json!([])).await?;
        wait_for_recall(&system, "pending").await?;
        assert_eq!(system.switch.request_count(&id, "recall").await?, 1, "{name}");
        assert_eq!(open_claims_minor(&system).await?, 500, "{name}");
        // No workflow and no worker waits for the answer.
        system.worker.kill().await?;
        system.switch.answer_recall(&id, "promised").await?;
        wait_for_recall(&system, "promised").await?;
        assert_eq!(open_claims_minor(&system).await?, 500, "{name}: a promise is no money");
        system.switch.return_part(&id, "first", 200).await?;
        system.switch.return_part(&id, "rest", 300).await?;
        wait_for_recall(&system, "closed").await?;
        assert_eq!(open_claims_minor(&system).await?, 0, "{name}");
        assert_eq!(system.available().await?, OPENING_MINOR, "{name}: the bank bore it, the bank is paid");
        let shown = system.payment(&payment.payment_id).await?;
        assert_eq!((&shown["status"], &shown["returned_minor"]), (&json!("settled"), &json!(500)), "{name}");
        let audit = system.audit().await?;
        assert_eq!((audit.payments, audit.open), (1, 0), "{name}");
    }
    Ok(())
}

/// The answer is lost. SCT Inst takes one recall: its answer comes by callback. FedNow is sent the recall again.
#[tokio::test]
async fn s0_10_a_recall_whose_answer_is_lost_is_repeated_only_where_the_rail_takes_a_second()
-> anyhow::Result<()> {
    let lost = json!(["apply_drop_answer"]);
    let (system, _, id) = charged_to_the_bank("recall-once", sct_inst(), lost.clone()).await?;
    let is_unanswered = || async {
        let detail: Option<String> = sqlx::query_scalar("SELECT detail FROM recalls WHERE status = 'sent'")
            .fetch_optional(&system.database.pool)
            .await?
            .flatten();
        Ok(detail)
    };
    until("the recall has no answer", WITHIN, is_unanswered).await?;
    let repeats = "SELECT count(*) FROM recalls WHERE next_attempt_at IS NOT NULL";
    let repeats: i64 = sqlx::query_scalar(repeats).fetch_one(&system.database.pool).await?;
    assert_eq!(repeats, 0, "a second recall would be sent");
    system.switch.answer_recall(&id, "refused").await?;
    wait_for_recall(&system, "refused").await?;
    assert_eq!(system.switch.request_count(&id, "recall").await?, 1);
    system.audit().await?;

    let (system, _, id) = charged_to_the_bank("recall-again", fednow(), lost).await?;
    wait_for_recall(&system, "pending").await?;
    assert_eq!(system.switch.request_count(&id, "recall").await?, 2);
    system.audit().await?;
    Ok(())
}

/// The worker dies between the record of a recall and its request, and between the switch's answer and its record. FedNow is sent the recall
/// (again). SCT Inst takes one: what may have been sent is not sent again, and operators learn that its answer is overdue.
#[tokio::test]
async fn r1_a_recall_whose_worker_dies_is_sent_again_only_where_the_rail_takes_a_second() -> anyhow::Result<()>
{
    let (sending, answered) =
        ("before sending a recall after the end", "after the answer to a recall after the end");
    for (name, options, point, status, sent) in [
        ("fednow-unsent", fednow(), sending, "pending", 1),
        ("fednow-unrecorded", fednow(), answered, "pending", 2),
        ("sct-inst-unsent", sct_inst(), sending, "sent", 0),
        ("sct-inst-unrecorded", sct_inst(), answered, "sent", 1),
    ] {
        let mut system = System::start(name, options.with_profile("sla_ms", 30_000)).await?;
        system.worker.kill().await?;
        system.worker.set_variable(crash_point::VARIABLE, point);
        system.worker.restart().await?;
        let (_, id) = charge_the_bank(&system, json!([])).await?;
        let worker = &mut system.worker;
        until(&format!("the worker dies {point}"), WITHIN, || {
            let exited = worker.has_exited();
            async move { Ok(exited?.then_some(())) }
        })
        .await?;
        assert!(system.worker.has_logged(&format!("crash point: {point}"))?, "{}", system.worker.log_tail());
        system.worker.remove_variable(crash_point::VARIABLE);
        system.worker.restart().await?;
        wait_for_recall(&system, status).await?;
        let repeats = "SELECT count(*) FROM recalls WHERE status = 'sent' AND next_attempt_at IS NOT NULL";
        let repeats: i64 = sqlx::query_scalar(repeats).fetch_one(&system.database.pool).await?;
        assert_eq!(repeats, 0, "{name}: a second recall would be sent");
        assert_eq!(system.switch.request_count(&id, "recall").await?, sent, "{name}");
        system.audit().await?;
    }
    Ok(())
}
