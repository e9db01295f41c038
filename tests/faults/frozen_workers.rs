//! R8: a worker is frozen (SIGSTOP) within a step until another one has compensated its payment. When it goes on, its step changes nothing. What
//! it then sends to the switch is refused there.

use std::time::{Duration, Instant};

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

/// Submit deadline, in milliseconds.
const DEADLINE_MS: u64 = 30_000;
/// Where a submit is on record and not sent.
const SENDS: &str = "before sending a submit";

/// A system whose switch holds every transfer, and a second worker, which is frozen.
async fn start(name: &str) -> anyhow::Result<(System, Process)> {
    start_with(name, DEADLINE_MS).await
}

/// The same with this submit deadline.
async fn start_with(name: &str, submit_deadline_ms: u64) -> anyhow::Result<(System, Process)> {
    let options = SystemOptions::default()
        .with_profile("sla_ms", 300_000)
        .with_profile("attempt_timeout_ms", ACCEPT_HANG_MS + 500)
        .with_profile("submit_budget_ms", 25_000)
        .with_profile("submit_deadline_ms", submit_deadline_ms);
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

/// A worker is frozen between the record of its attempt and the request, until another one has cancelled the payment, and for longer than
/// `frozen_for`. Returns the payment and its end.
async fn send_late(
    system: &mut System,
    second: &mut Process,
    frozen_for: Duration,
) -> anyhow::Result<(AcceptedPayment, String)> {
    let held = system.folder().join("held");
    std::fs::write(&held, "")?;
    system.worker.kill().await?;
    system.worker.set_variable(crash_point::HELD_POINT, SENDS);
    system.worker.set_variable(crash_point::HELD_FILE, &held.display().to_string());
    system.worker.restart().await?;
    let payment = system.pay("5.00").await?;
    system.worker.wait_for_log(&format!("held at: {SENDS}")).await?;
    system.worker.pause()?;
    let paused = Instant::now();
    let end = compensate(system, second, &payment).await?;
    until("the worker was frozen for long enough", WITHIN, || async {
        Ok((paused.elapsed() > frozen_for).then_some(()))
    })
    .await?;
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 0, "it was sent before");
    std::fs::remove_file(held)?;
    go_on(system, second).await?;
    Ok((payment, end))
}

/// Nothing is charged, at the bank and at the switch.
async fn check_cancelled(system: &System, payment: &AcceptedPayment, end: &str) -> anyhow::Result<()> {
    ensure!(system.state(&payment.payment_id).await? == end, "the frozen worker changed the end");
    let status = system.switch.transfer_status(&payment.reference).await?;
    ensure!(status.as_deref() == Some("CANCELLED"), "the transfer is {status:?}");
    ensure!(system.available().await? == OPENING_MINOR - 700, "a cancelled payment cost something");
    ensure!(system.audit().await?.debited == 1);
    Ok(())
}

/// The tombstone of the cancel refuses it.
#[tokio::test]
async fn r8_a_submit_that_is_sent_after_its_transfer_was_cancelled_is_refused_by_the_switch()
-> anyhow::Result<()> {
    let (mut system, mut second) = start_with("late-submit", 250_000).await?;
    let (payment, end) = send_late(&mut system, &mut second, Duration::ZERO).await?;
    until("the switch has received the submit", WITHIN, || async {
        Ok((system.switch.request_count(&payment.reference, "submit").await? > 0).then_some(()))
    })
    .await?;
    check_cancelled(&system, &payment, &end).await
}

/// A switch without tombstones that honours no deadline would accept it, after operators have released the amount.
#[tokio::test]
async fn r8_a_submit_is_not_sent_once_its_deadline_passed_while_the_worker_was_frozen() -> anyhow::Result<()>
{
    let (mut system, mut second) = start_with("expired-submit", DEADLINE_MS).await?;
    let deadline = Duration::from_millis(DEADLINE_MS);
    let (payment, end) = send_late(&mut system, &mut second, deadline).await?;
    let detail = until("the attempt is answered", WITHIN, || async {
        let answered = "SELECT detail FROM submissions WHERE payment_id = $1 AND outcome = 'unknown'";
        let answered = sqlx::query_scalar::<_, Option<String>>(answered).bind(&payment.payment_id);
        Ok(answered.fetch_optional(&system.database.pool).await?.flatten())
    })
    .await?;
    ensure!(detail.contains("its submit deadline passed"), "{detail}");
    ensure!(system.switch.request_count(&payment.reference, "submit").await? == 0, "it was sent");
    check_cancelled(&system, &payment, &end).await
}
