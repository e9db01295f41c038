//! R19: the switch settles, and says SUCCESS, at every instant around the end of the SLA, while it carries out our
//! cancel, and after the payment's end. Confirmed xor cancelled, and the same at the switch and at the bank.
//!
//! 41 payments, and one after its end, for each way the switch may meet our cancel, all in one system. Each
//! payment's own edge is read from its history, or from when the switch is asked. `SWEEPS` (default 1) repeats it all.

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::system::AcceptedPayment;
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions};

/// Offsets from the edge, in milliseconds: -200 to +200 in steps of ten.
const OFFSETS_MS: std::ops::RangeInclusive<i64> = -20..=20;
const STEP_MS: i64 = 10;
const SLA_MS: u64 = 1_000;
/// For how long a switch that takes its time carries out a cancel: as long as the instants reach back.
const CANCEL_TAKES_MS: u64 = 200;
/// Payments under way at once: with more, the machine is late and every offset falls on one side of the edge.
const AT_ONCE: usize = 16;
/// How long a step may take.
const WITHIN: Duration = Duration::from_secs(40);

/// When the switch tries to settle.
#[derive(Clone, Copy, Debug)]
enum Instant {
    /// So many milliseconds after the way's edge.
    FromEdge(i64),
    /// When the payment has ended.
    AfterTheEnd,
}

/// How a switch meets our cancel, and how late it tells of a settlement.
struct Way {
    name: &'static str,
    behaviour: Value,
    edge: Edge,
}

/// What the instants lie around.
#[derive(Clone, Copy, Debug)]
enum Edge {
    /// The SLA timer fires.
    SlaEnds,
    /// The switch carries out our cancel, [`CANCEL_TAKES_MS`] after it was asked. However slow this machine is, some
    /// instants lie before it and some after.
    Cancels,
}

fn ways() -> [Way; 4] {
    let way = |name, edge, behaviour| Way { name, behaviour, edge };
    [
        way("cancels at once", Edge::SlaEnds, json!({})),
        way("refuses the first cancel", Edge::SlaEnds, json!({"cancel": ["refuse"]})),
        way("is cancelling", Edge::Cancels, json!({"cancel": [{"delay_ms": CANCEL_TAKES_MS}]})),
        way(
            "is cancelling and tells after the end",
            Edge::Cancels,
            json!({"cancel": [{"delay_ms": CANCEL_TAKES_MS}], "callback": {"delay_ms": 500}}),
        ),
    ]
}

#[tokio::test]
async fn r19_a_success_around_the_sla_end_confirms_or_cancels_never_both() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    let sweeps: usize = std::env::var("SWEEPS").map_or(Ok(1), |text| text.parse())?;
    let system = System::start("sla-edge", SystemOptions::default().with_profile("sla_ms", SLA_MS)).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let mut settled = 0;
    let mut cancelled = 0;
    for _ in 0..sweeps {
        let ways = ways();
        let instants = OFFSETS_MS.map(|step| Instant::FromEdge(step * STEP_MS)).chain([Instant::AfterTheEnd]);
        let payments = instants.flat_map(|instant| ways.iter().map(move |way| (instant, way)));
        let ends = stream::iter(payments.map(|(instant, way)| one(&system, way, instant)));
        let ends: Vec<char> = ends.buffered(AT_ONCE).try_collect().await?;
        for (n, way) in ways.iter().enumerate() {
            let strip: String = ends.iter().skip(n).step_by(ways.len()).collect();
            println!("{:>38}: {strip}", way.name);
        }
        settled += ends.iter().filter(|end| **end == 'S').count();
        cancelled += ends.iter().filter(|end| **end == '-').count();
        system.audit().await?;
    }
    assert!(settled > 0 && cancelled > 0, "the sweep crosses the edge: {settled} settled, {cancelled} not");
    assert_eq!(system.audit().await?.debited, settled);
    Ok(())
}

/// One payment, which the switch settles at that instant; says how it ended: `S` settled, `-` cancelled.
async fn one(system: &System, way: &Way, instant: Instant) -> anyhow::Result<char> {
    let payment = system.pay("1.00").await?;
    system.switch.set_behaviour(&payment.reference, way.behaviour.clone()).await?;
    match instant {
        Instant::FromEdge(offset_ms) => {
            let edge = match way.edge {
                Edge::SlaEnds => sla_ends(system, &payment).await?,
                Edge::Cancels => cancels(system, &payment).await?,
            };
            settle_at(system, &payment, edge, offset_ms).await?;
        }
        Instant::AfterTheEnd => {
            system.wait_for_state(&payment.payment_id, "timed_out").await?;
            settle(system, &payment).await?;
        }
    }
    end(system, &payment).await.with_context(|| format!("{instant:?}, the switch {}", way.name))
}

/// When the switch carries out the cancel of the payment.
async fn cancels(system: &System, payment: &AcceptedPayment) -> anyhow::Result<SystemTime> {
    until("the switch is asked to cancel", WITHIN, || async {
        Ok((system.switch.request_count(&payment.reference, "cancel").await? > 0).then_some(()))
    })
    .await?;
    SystemTime::now().checked_add(Duration::from_millis(CANCEL_TAKES_MS)).context("no such time")
}

/// When the payment's SLA timer fires.
async fn sla_ends(system: &System, payment: &AcceptedPayment) -> anyhow::Result<SystemTime> {
    let started = system.wait_for_event(&payment.payment_id, EventType::TimerStarted).await?;
    let Some(Attributes::TimerStartedEventAttributes(timer)) = started.attributes else {
        bail!("a timer without attributes");
    };
    let at = SystemTime::try_from(started.event_time.context("an event without a time")?)?;
    let sla = Duration::try_from(timer.start_to_fire_timeout.context("a timer without a time")?)?;
    at.checked_add(sla).context("the SLA ends never")
}

/// Lets the switch settle so long after the edge, unless it has cancelled.
async fn settle_at(
    system: &System,
    payment: &AcceptedPayment,
    edge: SystemTime,
    offset_ms: i64,
) -> anyhow::Result<()> {
    let shift = Duration::from_millis(offset_ms.unsigned_abs());
    let at = if offset_ms < 0 { edge - shift } else { edge + shift };
    // The offset is what is swept, not a wait for something to happen. Where the machine was held up and it is
    // past already, it is some later offset.
    tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await;
    settle(system, payment).await
}

/// Lets the switch settle, unless it has cancelled.
async fn settle(system: &System, payment: &AcceptedPayment) -> anyhow::Result<()> {
    if system.switch.finish_transfer(&payment.reference, "settle").await.is_err() {
        let status = system.switch.transfer_status(&payment.reference).await?;
        anyhow::ensure!(status.as_deref() == Some("CANCELLED"), "not settled and {status:?}");
    }
    Ok(())
}

/// The one end of a payment, the same at the bank and at the switch.
async fn end(system: &System, payment: &AcceptedPayment) -> anyhow::Result<char> {
    let id = payment.payment_id.as_str();
    let state = until("the payment has ended", WITHIN, || async {
        let state = system.state(id).await?;
        Ok(matches!(state.as_str(), "settled" | "timed_out").then_some(state))
    })
    .await?;
    until("the switch has said all it had to say", WITHIN, || async {
        let callbacks = system.switch.callbacks(&payment.reference).await?;
        Ok(callbacks.iter().all(|callback| callback["state"] == "DELIVERED").then_some(()))
    })
    .await?;
    let at_the_switch = system.switch.transfer_status(&payment.reference).await?;
    let ends = (state.as_str(), at_the_switch.as_deref());
    anyhow::ensure!(
        matches!(ends, ("settled", Some("SETTLED")) | ("timed_out", Some("CANCELLED"))),
        "{id} is {ends:?}: {:#?}",
        system.timeline(id).await?
    );
    let exceptions = system.exceptions(id).await?;
    anyhow::ensure!(exceptions.is_empty(), "{id}: the switch was honest, and yet {exceptions:?}");
    anyhow::ensure!(system.state(id).await? == state, "an end is an end");
    Ok(if state == "settled" { 'S' } else { '-' })
}
