//! The ids of the rails (0027): each transfer is sent under an id of its rail's pattern, which the mock switch enforces, and what the
//! switch says about that id is believed about the payment.

use std::time::Duration;

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};

use crate::kinds::{fednow, pix, rtp, sct_inst, upi};

/// A rail's name and system, with the beginning of its ids, a part that follows a date, and their length.
type RailIds = (&'static str, fn() -> SystemOptions, &'static str, &'static str, usize);

/// Time limit for a transfer to settle, and to be seen.
const WITHIN: Duration = Duration::from_secs(30);

const RAILS: [RailIds; 5] = [
    ("sct-inst", sct_inst, "DEMODEFF", "", 35),
    ("fednow", fednow, "20", "DEMO00001", 35),
    ("rtp", rtp, "20", "DEMO0000001B", 35),
    ("upi", upi, "DEM", "", 35),
    ("pix", pix, "E0000000120", "", 32),
];

/// The rails with a statement, or with queries that are free: an operator's look spends none that the payment needs.
const LOOKED_UP: [&str; 2] = ["upi", "pix"];

#[tokio::test]
async fn s0_4_s0_6_every_rails_transfer_is_known_by_an_id_of_its_rail() -> anyhow::Result<()> {
    for rail in &RAILS {
        let (name, options, ..) = rail;
        let mut system =
            System::start(&format!("id-{name}"), options().with_profile("sla_ms", 30_000)).await?;
        s0_4_every_rails_transfer_carries_an_id_of_the_rails_pattern(&system, rail).await?;
        system.next_case().await?;
        s0_6_a_callback_with_the_rails_id_settles_the_payment_and_another_does_not(&system, name).await?;
    }
    Ok(())
}

async fn s0_4_every_rails_transfer_carries_an_id_of_the_rails_pattern(
    system: &System,
    (name, _, beginning, participant, length): &RailIds,
) -> anyhow::Result<()> {
    let payments = [system.pay("5.00").await?, system.pay("5.00").await?];
    for payment in &payments {
        system.wait_for_state(&payment.payment_id, "settled").await?;
        let id = system.transfer_name(&payment.payment_id).await?;
        assert_eq!(id.len(), *length, "{name}: {id}");
        assert!(id.starts_with(beginning) && id.contains(participant), "{name}: {id}");
        // The switch knows the transfer by this id, once, and by no other.
        assert_eq!(system.switch.request_count(&id, "submit").await?, 1, "{name}");
        assert_eq!(system.switch.transfer_status(&id).await?.as_deref(), Some("SETTLED"), "{name}");
        assert_eq!(system.switch.transfer_status(&payment.reference).await?, None, "{name}");
    }
    assert_eq!(system.audit().await?.debited, 2, "{name}");
    Ok(())
}

async fn s0_6_a_callback_with_the_rails_id_settles_the_payment_and_another_does_not(
    system: &System,
    name: &str,
) -> anyhow::Result<()> {
    // The test sends the callback, in place of the switch.
    system.switch.set_default_behaviour(json!({"callback": {"lose": true}})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let id = system.transfer_name(&payment.payment_id).await?;
    // A callback before the switch has decided would be untrue.
    until("the transfer settles at the switch", WITHIN, || async {
        let status = system.switch.transfer_status(&id).await?;
        Ok((status.as_deref() == Some("SETTLED")).then_some(()))
    })
    .await?;
    let mut other = id.clone();
    let last = if other.pop() == Some('0') { '1' } else { '0' };
    other.push(last);
    assert_eq!(system.post_callback(&TestCallback::success(&other, 500)).await?, 200, "{name}");
    assert_eq!(system.state(&payment.payment_id).await?, "submitted", "{name}");
    assert_eq!(system.post_callback(&TestCallback::success(&id, 500)).await?, 200, "{name}");
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.available().await?, OPENING_MINOR - 500, "{name}");
    assert!(system.exceptions(&payment.payment_id).await?.is_empty(), "{name}");
    assert_eq!(system.audit().await?.debited, 1, "{name}");

    // Where an operator may look the transfer up, it is found also if the database has lost its id.
    if !LOOKED_UP.contains(&name) {
        return Ok(());
    }
    system.damage_ledger("UPDATE payments SET rail_id = NULL").await?;
    // A statement lists a transfer some time after its end.
    until(&format!("{name}: an operator sees the settled transfer"), WITHIN, || async {
        let shown = system.command("payctl").args(["show", &payment.payment_id]).output().await?;
        Ok(String::from_utf8_lossy(&shown.stdout).contains("settled: 5.00 EUR").then_some(()))
    })
    .await
}
