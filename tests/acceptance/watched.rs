//! A payment watched by its stream of events: each step arrives while the payment stands there, and none is missed.

use serde_json::json;
use testkit::stream::PaymentEvent;
use testkit::{System, SystemOptions};

fn names(events: &[PaymentEvent]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn s0_3_to_s0_7_the_event_stream_is_complete_across_api_restarts() -> anyhow::Result<()> {
    let mut system = System::start("watched", SystemOptions::default().with_long_attempts()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("12.50").await?;
    let mut events = system.open_stream(&payment.payment_id, None).await?;
    // The switch holds it back, so what comes now comes while the payment is under way.
    let mut seen = events.read_until("submitted").await?;
    assert_eq!(system.payment(&payment.payment_id).await?["status"], "submitted");

    system.api.kill().await?;
    assert!(events.next().await.is_err(), "cut, not closed");
    // Without a worker it stands at `confirmed` until that was seen; the rest happens while nobody can tell of it.
    system.worker.kill().await?;
    system.api.restart().await?;
    let last = seen.last().map(|event| event.id.clone());
    let mut events = system.open_stream(&payment.payment_id, last.as_deref()).await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    seen.extend(events.read_until("confirmed").await?);
    system.api.kill().await?;
    system.worker.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.api.restart().await?;
    let last = seen.last().map(|event| event.id.clone());
    let mut events = system.open_stream(&payment.payment_id, last.as_deref()).await?;
    seen.extend(events.read_until("end").await?);
    assert_eq!(events.next().await?, None, "closed after the end");

    assert_eq!(names(&seen), ["accepted", "reserved", "submitted", "confirmed", "settled", "end"]);
    let (lines, end) = seen.split_at(5);
    let lines: Vec<_> = lines.iter().map(|event| event.data.clone()).collect();
    assert_eq!(json!(lines), system.payment(&payment.payment_id).await?["timeline"], "what GET shows");
    assert_eq!(end[0].data["status"], "settled");
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

#[tokio::test]
async fn open_event_streams_do_not_delay_the_shutdown_of_the_api() -> anyhow::Result<()> {
    let mut system =
        System::start("watched-stop", SystemOptions::default().with_profile("sla_ms", 600_000)).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("1.00").await?;
    let mut watchers = Vec::new();
    for _ in 0..8 {
        let mut events = system.open_stream(&payment.payment_id, None).await?;
        events.read_until("submitted").await?;
        watchers.push(events);
    }
    let begun = std::time::Instant::now();
    system.api.stop().await?;
    println!("stopped within {:?}, {} watching", begun.elapsed(), watchers.len());
    for events in &mut watchers {
        assert_eq!(events.next().await?, None, "closed, not cut");
    }
    Ok(())
}
