//! R19: the transfer settles, with a SUCCESS callback, at 41 instants around the end of the SLA or around the execution of our
//! cancel, and after the payment's end. Each payment ends confirmed or cancelled, with the same result at switch and bank.
//!
//! 42 payments for each behaviour of the switch, all in one system. The reference instant of each payment is read from its
//! workflow history, or from the time of the cancel request. `ROUNDS` (default 1) repeats the test.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::system::AcceptedPayment;
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};

/// Offsets from the reference instant in steps of [`STEP_MS`]: -200 to +200 ms.
const OFFSET_STEPS: std::ops::RangeInclusive<i64> = -20..=20;
const STEP_MS: i64 = 10;
const SLA_MS: u64 = 1_000;
const AMOUNT_MINOR: i64 = 100;
/// Duration of a slow cancel: longer than the earliest offset, for the test sees the cancel late.
const SLOW_CANCEL_MS: u64 = 600;
/// Concurrent payments: with more, the machine is late and all offsets are on one side of the reference instant.
const CONCURRENCY: usize = 16;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(40);

/// When the transfer settles, or the switch reports it.
#[derive(Clone, Copy, Debug)]
enum SettleTime {
    /// Milliseconds after the reference instant.
    Offset(i64),
    /// After the payment has ended, the switch reports a SUCCESS of the transfer that it has cancelled.
    AfterEnd,
}

/// Behaviour of the switch towards our cancel, and the delay of its callback.
struct Behaviour {
    name: &'static str,
    json: Value,
    reference: Reference,
}

/// The reference instant of the offsets.
#[derive(Clone, Copy, Debug)]
enum Reference {
    /// The SLA timer fires.
    SlaEnd,
    /// The switch executes our cancel, [`SLOW_CANCEL_MS`] after the request. Even on a slow machine there are offsets before
    /// and after it.
    CancelExecution,
}

fn behaviours() -> [Behaviour; 4] {
    let behaviour = |name, reference, json| Behaviour { name, json, reference };
    [
        behaviour("cancels immediately", Reference::SlaEnd, json!({})),
        behaviour("refuses the first cancel", Reference::SlaEnd, json!({"cancel": ["refuse"]})),
        behaviour(
            "cancels slowly",
            Reference::CancelExecution,
            json!({"cancel": [{"delay_ms": SLOW_CANCEL_MS}]}),
        ),
        behaviour(
            "cancels slowly, delayed callback",
            Reference::CancelExecution,
            json!({"cancel": [{"delay_ms": SLOW_CANCEL_MS}], "callback": {"delay_ms": 500}}),
        ),
    ]
}

#[tokio::test]
async fn r19_a_success_around_the_sla_end_confirms_or_cancels_never_both() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let rounds: usize = std::env::var("ROUNDS").map_or(Ok(1), |text| text.parse())?;
    let system = System::start(
        "sla-end",
        SystemOptions::default().with_long_attempts().with_profile("sla_ms", SLA_MS),
    )
    .await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let mut settled = 0;
    let mut cancelled = 0;
    for _ in 0..rounds {
        let behaviours = behaviours();
        let times = OFFSET_STEPS.map(|step| SettleTime::Offset(step * STEP_MS)).chain([SettleTime::AfterEnd]);
        let payments = times.flat_map(|time| behaviours.iter().map(move |behaviour| (time, behaviour)));
        let ends = stream::iter(payments.map(|(time, behaviour)| run_payment(&system, behaviour, time)));
        let ends: Vec<char> = ends.buffered(CONCURRENCY).try_collect().await?;
        for (n, behaviour) in behaviours.iter().enumerate() {
            let line: String = ends.iter().skip(n).step_by(behaviours.len()).collect();
            println!("{:>33}: {line}", behaviour.name);
        }
        settled += ends.iter().filter(|end| **end == 'S').count();
        cancelled += ends.iter().filter(|end| **end == '-').count();
        for (n, behaviour) in behaviours.iter().enumerate() {
            // On a slow machine every offset may be after the end of the SLA.
            if matches!(behaviour.reference, Reference::CancelExecution) {
                let mut ends = ends.iter().skip(n).step_by(behaviours.len());
                let both = ends.clone().any(|end| *end == 'S') && ends.any(|end| *end == '-');
                assert!(both, "{}: expected both outcomes", behaviour.name);
            }
        }
        system.audit().await?;
    }
    assert!(settled > 0 && cancelled > 0, "expected both outcomes: {settled} settled, {cancelled} cancelled");
    assert_eq!(system.audit().await?.debited, settled);
    Ok(())
}

/// Runs one payment whose transfer settles at that time; returns `S` if it settled, `-` if it was cancelled.
async fn run_payment(system: &System, behaviour: &Behaviour, time: SettleTime) -> anyhow::Result<char> {
    let payment = system.pay("1.00").await?;
    system.switch.set_behaviour(&payment.reference, behaviour.json.clone()).await?;
    match time {
        SettleTime::Offset(offset_ms) => {
            let reference = match behaviour.reference {
                Reference::SlaEnd => sla_end(system, &payment).await?,
                Reference::CancelExecution => cancel_execution(system, &payment).await?,
            };
            settle_at(system, &payment, reference, offset_ms).await?;
        }
        SettleTime::AfterEnd => {
            system.wait_for_state(&payment.payment_id, "timed_out").await?;
            let refused = behaviour.json["cancel"] == json!(["refuse"]);
            let cancels = system.switch.request_count(&payment.reference, "cancel").await?;
            anyhow::ensure!(cancels > i64::from(refused), "{}: {cancels} cancels", behaviour.name);
            let success = TestCallback::success(&payment.reference, AMOUNT_MINOR);
            anyhow::ensure!(system.post_callback(&success).await? == 200, "the late callback is refused");
        }
    }
    let exceptions: &[&str] = if matches!(time, SettleTime::AfterEnd) { &["late_confirmation"] } else { &[] };
    let end = end(system, &payment, exceptions).await;
    end.with_context(|| format!("{time:?}, switch: {}", behaviour.name))
}

/// When the switch executes the cancel of the payment.
async fn cancel_execution(system: &System, payment: &AcceptedPayment) -> anyhow::Result<SystemTime> {
    until("the switch receives the cancel", WITHIN, || async {
        Ok((system.switch.request_count(&payment.reference, "cancel").await? > 0).then_some(()))
    })
    .await?;
    SystemTime::now().checked_add(Duration::from_millis(SLOW_CANCEL_MS)).context("the time is out of range")
}

/// When the payment's SLA timer fires.
async fn sla_end(system: &System, payment: &AcceptedPayment) -> anyhow::Result<SystemTime> {
    let started = system.wait_for_event(&payment.payment_id, EventType::TimerStarted).await?;
    let Some(Attributes::TimerStartedEventAttributes(timer)) = started.attributes else {
        bail!("the timer event has no attributes");
    };
    let at = SystemTime::try_from(started.event_time.context("the event has no time")?)?;
    let sla = Duration::try_from(timer.start_to_fire_timeout.context("the timer has no duration")?)?;
    at.checked_add(sla).context("the time is out of range")
}

/// Settles the transfer at an offset from the reference instant, unless it is cancelled before.
async fn settle_at(
    system: &System,
    payment: &AcceptedPayment,
    reference: SystemTime,
    offset_ms: i64,
) -> anyhow::Result<()> {
    let shift = Duration::from_millis(offset_ms.unsigned_abs());
    let at = if offset_ms < 0 { reference - shift } else { reference + shift };
    // A sleep on purpose: the offset itself is the input of the test. On a slow machine the time may have passed already,
    // which tests a later offset.
    tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await;
    settle(system, payment).await
}

/// Settles the transfer, unless it is cancelled.
async fn settle(system: &System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    if system.switch.finish_transfer(&payment.reference, "settle").await.is_err() {
        let status = system.switch.transfer_status(&payment.reference).await?;
        anyhow::ensure!(
            status.as_deref() == Some("CANCELLED"),
            "the transfer cannot be settled, but is {status:?}"
        );
    }
    Ok(())
}

/// Waits for the payment's end, compares bank and switch, and the payment's exceptions with those that are expected.
async fn end(system: &System, payment: &AcceptedPayment, expected: &[&str]) -> anyhow::Result<char> {
    let id = payment.payment_id.as_str();
    let state = until("the payment has ended", WITHIN, || async {
        let state = system.state(id).await?;
        Ok(matches!(state.as_str(), "settled" | "timed_out").then_some(state))
    })
    .await?;
    until("the switch has delivered all callbacks", WITHIN, || async {
        let callbacks = system.switch.callbacks(&payment.reference).await?;
        Ok(callbacks.iter().all(|callback| callback["state"] == "DELIVERED").then_some(()))
    })
    .await?;
    let transfer_status = system.switch.transfer_status(&payment.reference).await?;
    let ends = (state.as_str(), transfer_status.as_deref());
    anyhow::ensure!(
        matches!(ends, ("settled", Some("SETTLED")) | ("timed_out", Some("CANCELLED"))),
        "{id} is {ends:?}: {:#?}",
        system.timeline(id).await?
    );
    let exceptions = system.exceptions(id).await?;
    anyhow::ensure!(exceptions == expected, "{id}: expected the exceptions {expected:?}, got {exceptions:?}");
    anyhow::ensure!(system.state(id).await? == state, "the final state of {id} changed");
    Ok(if state == "settled" { 'S' } else { '-' })
}
