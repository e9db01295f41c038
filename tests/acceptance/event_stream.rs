//! The stream of a payment's events: each step arrives while the payment is in that state, and none is missed.

use serde_json::json;
use testkit::stream::PaymentEvent;
use testkit::{System, SystemOptions};

fn names(events: &[PaymentEvent]) -> Vec<&str> {
    events.iter().map(|event| event.name.as_str()).collect()
}

#[tokio::test]
async fn s0_3_to_s0_7_the_event_stream_is_complete_across_api_restarts() -> anyhow::Result<()> {
    // The callback alone confirms, so that `confirmed` is an event of its own.
    let options = SystemOptions::default().with_long_attempts().with_profile("confirm_by_query", "never");
    let mut system = System::start("watched", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let payment = system.pay("12.50").await?;
    let mut events = system.open_stream(&payment.payment_id, None).await?;
    // The switch holds the transfer, so these events arrive while the payment is open.
    let mut received = events.read_until("submitted").await?;
    assert_eq!(system.payment(&payment.payment_id).await?["status"], "submitted");

    system.api.kill().await?;
    assert!(events.next().await.is_err(), "expected an error for the cut connection");
    // Without a worker the payment stays `confirmed` until that event is read; the debit happens while the API is down.
    system.worker.kill().await?;
    system.api.restart().await?;
    let last = received.last().map(|event| event.id.clone());
    let mut events = system.open_stream(&payment.payment_id, last.as_deref()).await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    received.extend(events.read_until("confirmed").await?);
    system.api.kill().await?;
    system.worker.restart().await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    system.api.restart().await?;
    let last = received.last().map(|event| event.id.clone());
    let mut events = system.open_stream(&payment.payment_id, last.as_deref()).await?;
    received.extend(events.read_until("end").await?);
    assert_eq!(events.next().await?, None, "expected the stream to be closed after the end");

    assert_eq!(names(&received), ["accepted", "reserved", "submitted", "confirmed", "settled", "end"]);
    let (lines, end) = received.split_at(5);
    let lines: Vec<_> = lines.iter().map(|event| event.data.clone()).collect();
    assert_eq!(
        json!(lines),
        system.payment(&payment.payment_id).await?["timeline"],
        "the stream differs from GET"
    );
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
    let mut streams = Vec::new();
    for _ in 0..8 {
        let mut events = system.open_stream(&payment.payment_id, None).await?;
        events.read_until("submitted").await?;
        streams.push(events);
    }
    let started = std::time::Instant::now();
    system.api.stop().await?;
    println!("the API stopped within {:?} with {} open streams", started.elapsed(), streams.len());
    for events in &mut streams {
        assert_eq!(events.next().await?, None, "expected the stream to be closed, not cut");
    }
    Ok(())
}
