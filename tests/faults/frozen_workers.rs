//! R8: a worker is frozen (SIGSTOP) within a step until another one has compensated its payment. When it goes on, its step changes nothing. What
//! it then sends to the switch is refused there.

use std::time::Duration;

use anyhow::ensure;
use serde_json::json;
use testkit::process::Process;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::wait::until;
use testkit::{System, SystemOptions};

use testkit::row_lock::{lock_account, wait_until_blocked};

/// Time limit for a cancel to be accepted, which waits until the database has ended the session of the frozen worker.
const WITHIN: Duration = Duration::from_secs(60);
/// How long the switch keeps back its answer to a submit, in milliseconds: until the worker is frozen.
const ACCEPT_HANG_MS: u64 = 4_500;

/// Where a submit is on record and not sent.
const SENDS: &str = "before sending a submit";

/// A system whose switch holds every transfer, and a second worker, which is frozen.
async fn start(name: &str) -> anyhow::Result<(System, Process)> {
    let options = SystemOptions::default()
        .with_profile("sla_ms", 300_000)
        .with_profile("attempt_timeout_ms", ACCEPT_HANG_MS + 500)
        .with_profile("submit_budget_ms", 25_000);
    let system = System::start(name, options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let second = system.start_process("payment-worker", "PAYMENTS_WORKER__METRICS_LISTEN").await?;
    second.pause()?;
    Ok((system, second))
}

/// The customer cancels, and the second worker ends the payment; returns its end. The submit may have used up its budget before.
async fn compensate(system: &System, second: &Process, payment: &AcceptedPayment) -> anyhow::Result<String> {
    second.resume()?;
    until("the cancel is accepted", WITHIN, || async {
        let status = system.cancel(&payment.payment_id).await?.status().as_u16();
        ensure!(matches!(status, 202 | 503), "the cancel was answered {status}");
        Ok((status == 202).then_some(()))
    })
    .await?;
    system.wait_until_all_have_ended().await?;
    let end = system.state(&payment.payment_id).await?;
    ensure!(matches!(end.as_str(), "cancelled" | "failed"), "the payment is {end}");
    Ok(end)
}

/// The frozen worker goes on, alone: it ends its step, and settles another payment.
async fn go_on(system: &mut System, second: &mut Process) -> anyhow::Result<()> {
    second.kill().await?;
    system.worker.resume()?;
    system.switch.set_default_behaviour(json!({})).await?;
    let next = system.pay("7.00").await?;
    system.wait_for_state(&next.payment_id, "settled").await
}

#[tokio::test]
async fn r8_a_worker_frozen_within_its_reserve_holds_nothing_after_the_payment_was_cancelled()
-> anyhow::Result<()> {
    let (mut system, mut second) = start("frozen-reserve").await?;
    let lock = lock_account(&system, system.account()).await?;
    let payment = system.pay("5.00").await?;
    wait_until_blocked(&system, &lock, 1).await?;
    system.worker.pause()?;
    lock.transaction.rollback().await?;
    let end = compensate(&system, &second, &payment).await?;
    go_on(&mut system, &mut second).await?;

    ensure!(system.state(&payment.payment_id).await? == end, "the frozen worker changed the end");
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 0, "it was sent");
    ensure!(system.available().await? == OPENING_MINOR - 700, "the frozen worker held an amount");
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}

#[tokio::test]
async fn r8_a_worker_frozen_within_its_submit_sends_nothing_after_the_transfer_was_cancelled()
-> anyhow::Result<()> {
    let (mut system, mut second) = start("frozen-submit").await?;
    let slow = json!({"outcome": "hold", "submit": [{"accept_hang_ms": ACCEPT_HANG_MS}]});
    system.switch.set_default_behaviour(slow).await?;
    let payment = system.pay("5.00").await?;
    until("the switch has accepted the transfer", WITHIN, || async {
        Ok(system.switch.transfer_status(&payment.reference).await?.map(|_| ()))
    })
    .await?;
    system.worker.pause()?;
    let end = compensate(&system, &second, &payment).await?;
    go_on(&mut system, &mut second).await?;

    ensure!(system.state(&payment.payment_id).await? == end, "the frozen worker changed the end");
    let status = system.switch.transfer_status(&payment.reference).await?;
    ensure!(status.as_deref() == Some("CANCELLED"), "the transfer is {status:?}");
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 1, "it was sent again");
    ensure!(system.available().await? == OPENING_MINOR - 700, "a cancelled payment cost something");
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}

/// The attempt is on record, and its request not on its way yet: the tombstone of the cancel refuses it.
#[tokio::test]
async fn r8_a_submit_that_is_sent_after_its_transfer_was_cancelled_is_refused_by_the_switch()
-> anyhow::Result<()> {
    let (mut system, mut second) = start("late-submit").await?;
    let held = system.folder().join("held");
    std::fs::write(&held, "")?;
    system.worker.kill().await?;
    system.worker.set_variable(crash_point::HELD_POINT, SENDS);
    system.worker.set_variable(crash_point::HELD_FILE, &held.display().to_string());
    system.worker.restart().await?;
    let payment = system.pay("5.00").await?;
    system.worker.wait_for_log(&format!("held at: {SENDS}")).await?;
    system.worker.pause()?;
    let end = compensate(&system, &second, &payment).await?;
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 0, "it was sent before");
    std::fs::remove_file(held)?;
    go_on(&mut system, &mut second).await?;
    until("the switch has received the submit", WITHIN, || async {
        Ok((system.switch.request_count(&payment.reference, "submit").await? > 0).then_some(()))
    })
    .await?;

    ensure!(system.state(&payment.payment_id).await? == end, "the late submit changed the end");
    let status = system.switch.transfer_status(&payment.reference).await?;
    ensure!(status.as_deref() == Some("CANCELLED"), "the transfer is {status:?}");
    ensure!(system.available().await? == OPENING_MINOR - 700, "a cancelled payment cost something");
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}
