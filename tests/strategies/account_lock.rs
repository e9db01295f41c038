//! The account lock for a destination account at a switch without references (S1.5, S1.8): payments to one account are sent
//! one at a time, oldest first, and the next one is sent only when the lock holder has ended.

use std::time::Duration;

use payment_protocol::ids::SwitchName;
use payment_protocol::keys::account_lock_id;
use serde_json::json;
use temporalio_common::protos::temporal::api::failure::v1::failure::FailureInfo;
use testkit::System;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::temporal::EventType;
use testkit::wait::until;

use crate::switch_kinds::validate;

/// Time limit for a payment to reach the switch.
const WITHIN: Duration = Duration::from_secs(60);

async fn wait_until_accepted(system: &System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    until(&format!("the switch has accepted {}", payment.payment_id), WITHIN, || async {
        Ok(system.switch.transfer_status(&payment.reference).await?.map(|_| ()))
    })
    .await
}

/// How many of the payments the switch has accepted.
async fn accepted(system: &System, payments: &[AcceptedPayment]) -> anyhow::Result<usize> {
    let transfers = system.switch.transfers().await?;
    let is_accepted =
        |payment: &&AcceptedPayment| transfers.iter().any(|transfer| transfer.reference == payment.reference);
    Ok(payments.iter().filter(is_accepted).count())
}

/// Makes payments one after the other; each requests the lock before the next is made.
async fn queue(system: &System, amounts: &[&str]) -> anyhow::Result<Vec<AcceptedPayment>> {
    let mut payments = Vec::new();
    for amount in amounts {
        let payment = system.pay(amount).await?;
        // The workflow starts the timer after it has requested the lock.
        system.wait_for_event(&payment.payment_id, EventType::TimerStarted).await?;
        payments.push(payment);
    }
    Ok(payments)
}

fn lock_id(system: &System) -> anyhow::Result<String> {
    Ok(account_lock_id(&system.task_queue, &SwitchName::new("mock")?, "XX-BOB"))
}

#[tokio::test]
async fn s1_5_the_account_lock_admits_one_payment_at_a_time() -> anyhow::Result<()> {
    let mut system = System::start("locked", validate().with_profile("sla_ms", 60_000)).await?;
    s1_5_payments_to_one_account_are_sent_one_at_a_time(&mut system).await?;
    s1_5_a_cancelled_payment_leaves_the_account_lock_queue(&mut system).await?;
    s1_5_a_terminated_lock_holder_keeps_the_account_until_its_payment_ends(&mut system).await?;
    s1_5_a_lost_account_lock_admits_no_second_payment_to_the_account(&mut system).await?;
    // The last case: what it damages is in no audit.
    s1_5_a_lock_holder_that_the_ledger_lost_keeps_the_account_until_its_workflow_ends(&mut system).await
}

async fn s1_5_payments_to_one_account_are_sent_one_at_a_time(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payments = queue(system, &["5.00", "5.00", "5.00"]).await?;
    for (n, payment) in payments.iter().enumerate() {
        wait_until_accepted(system, payment).await?;
        assert_eq!(accepted(system, &payments).await?, n + 1, "the others wait for the lock");
        system.switch.finish_transfer(&payment.reference, "settle").await?;
    }
    for payment in &payments {
        system.wait_for_state(&payment.payment_id, "settled").await?;
        assert_eq!(system.switch.request_count(&payment.reference, "submit").await?, 1);
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 1_500);
    assert_eq!(system.audit().await?.debited, 3);
    Ok(())
}

async fn s1_5_a_cancelled_payment_leaves_the_account_lock_queue(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payments = queue(system, &["5.00", "6.00", "7.00"]).await?;
    wait_until_accepted(system, &payments[0]).await?;
    system.cancel(&payments[1].payment_id).await?.error_for_status()?;
    system.wait_for_state(&payments[1].payment_id, "cancelled").await?;
    system.switch.finish_transfer(&payments[0].reference, "settle").await?;
    wait_until_accepted(system, &payments[2]).await?;
    system.switch.finish_transfer(&payments[2].reference, "settle").await?;
    system.wait_for_state(&payments[2].payment_id, "settled").await?;
    assert_eq!(system.switch.request_count(&payments[1].reference, "submit").await?, 0);
    assert_eq!(system.available().await?, OPENING_MINOR - 1_200);
    assert_eq!(system.audit().await?.debited, 2);
    Ok(())
}

#[tokio::test]
async fn s1_5_a_worker_crash_keeps_the_account_lock_holder_and_its_queue() -> anyhow::Result<()> {
    let mut system = System::start("locked-killed", validate().with_profile("sla_ms", 60_000)).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payments = queue(&system, &["5.00", "6.00"]).await?;
    wait_until_accepted(&system, &payments[0]).await?;
    system.worker.kill().await?;
    system.worker.restart().await?;
    assert_eq!(accepted(&system, &payments).await?, 1, "the other payment waits for the lock");
    system.switch.finish_transfer(&payments[0].reference, "settle").await?;
    wait_until_accepted(&system, &payments[1]).await?;
    system.switch.finish_transfer(&payments[1].reference, "settle").await?;
    system.wait_for_state(&payments[1].payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 2);
    Ok(())
}

async fn s1_5_a_terminated_lock_holder_keeps_the_account_until_its_payment_ends(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let refuses = json!({"outcome": "hold", "cancel": [{"fault": "refuse", "times": "always"}]});
    system.switch.set_default_behaviour(refuses).await?;
    let payments = queue(system, &["5.00", "6.00"]).await?;
    wait_until_accepted(system, &payments[0]).await?;
    system.terminate_workflow(&payments[0].payment_id).await?;
    // The recovery workflow cancels, which the switch refuses: the transfer may still settle.
    system.wait_for_state(&payments[0].payment_id, "cancelling").await?;
    assert_eq!(accepted(system, &payments).await?, 1, "the other payment waits for the lock");
    system.switch.finish_transfer(&payments[0].reference, "settle").await?;
    system.wait_for_state(&payments[0].payment_id, "settled").await?;
    wait_until_accepted(system, &payments[1]).await?;
    system.switch.finish_transfer(&payments[1].reference, "settle").await?;
    system.wait_for_state(&payments[1].payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 2);
    Ok(())
}

async fn s1_5_a_lost_account_lock_admits_no_second_payment_to_the_account(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    // Amounts of their own: a transfer like one of an earlier case would be ambiguous.
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let first = queue(system, &["8.00"]).await?.remove(0);
    wait_until_accepted(system, &first).await?;
    system.terminate_workflow(&lock_id(system)?).await?;
    // The new lock workflow has no holder and grants the account, but the ledger fences the attempt.
    let second = system.pay("9.00").await?;
    system.wait_for_state(&second.payment_id, "failed").await?;
    assert_eq!(system.payment(&second.payment_id).await?["reason"], "not_sent");
    assert_eq!(system.switch.request_count(&second.reference, "submit").await?, 0);
    system.switch.finish_transfer(&first.reference, "settle").await?;
    system.wait_for_state(&first.payment_id, "settled").await?;
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

/// A restore has lost the payment's row. Operators terminate its workflow once they know what became of its transfer.
async fn s1_5_a_lock_holder_that_the_ledger_lost_keeps_the_account_until_its_workflow_ends(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payments = queue(system, &["10.00", "11.00"]).await?;
    wait_until_accepted(system, &payments[0]).await?;
    let lost = &payments[0].payment_id;
    system.damage_ledger(&format!("DELETE FROM payments WHERE payment_id = '{lost}'")).await?;
    let lock = system.workflow(&lock_id(system)?).await?;
    until("the lock's holder is reported as lost", WITHIN, || async {
        let described = lock.describe(Default::default()).await?;
        let is_reported = described.raw().pending_activities.iter().any(|check| {
            let failure = check.last_failure.as_ref().and_then(|failure| failure.failure_info.as_ref());
            matches!(failure, Some(FailureInfo::ApplicationFailureInfo(info)) if info.r#type == "lock_holder_lost")
        });
        Ok(is_reported.then_some(()))
    })
    .await?;
    assert_eq!(accepted(system, &payments).await?, 1, "the other payment waits for the lock");
    system.terminate_workflow(lost).await?;
    wait_until_accepted(system, &payments[1]).await?;
    system.switch.finish_transfer(&payments[1].reference, "settle").await?;
    system.wait_for_state(&payments[1].payment_id, "settled").await
}

#[tokio::test]
async fn s1_5_an_account_lock_that_continues_as_new_keeps_its_queue() -> anyhow::Result<()> {
    let mut options = validate().with_profile("sla_ms", 60_000);
    options.lock_grants_max = 1;
    let system = System::start("locked-new-run", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payments = queue(&system, &["5.00", "6.00", "7.00", "8.00"]).await?;
    let lock = system.workflow(&lock_id(&system)?).await?;
    let first_run = lock.describe(Default::default()).await?.run_id().to_owned();
    for payment in &payments {
        wait_until_accepted(&system, payment).await?;
        system.switch.finish_transfer(&payment.reference, "settle").await?;
    }
    for payment in &payments {
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    assert_ne!(
        lock.describe(Default::default()).await?.run_id(),
        first_run,
        "the lock did not continue as a new run"
    );
    assert_eq!(system.available().await?, OPENING_MINOR - 2_600);
    assert_eq!(system.audit().await?.debited, 4);
    Ok(())
}
