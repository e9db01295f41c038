//! Two switches of different rails beside each other, each with transfers and a secret of its own (R21, R21b, R35): each carries its
//! own payments, and neither decides about, or holds up, a payment of the other.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use testkit::switch::SwitchAdmin;
use testkit::system::{AcceptedPayment, OPENING_MINOR, OTHER_SECRET, OtherSwitch, SWITCH_SECRET};
use testkit::wait::until;
use testkit::{System, SystemOptions, TestCallback};

use crate::kinds::sct_inst;

/// Destinations of the first switch and of the second one.
const DESTINATIONS: [&str; 2] = ["XX-BOB", "YY-BOB"];
const AMOUNT_MINOR: i64 = 500;

/// The default switch, which has a cancel, and SEPA Instant, which has none and whose rejects are final.
fn options() -> SystemOptions {
    let mut sepa = sct_inst().with_profile("sla_ms", 20_000).with_profile("submit_deadline_ms", 3_000);
    sepa.shape["decides_within_ms"] = 60_000.into();
    SystemOptions::default().with_long_attempts().with_switch_of_kind(sepa)
}

fn second(system: &System) -> anyhow::Result<&OtherSwitch> {
    system.other.as_ref().context("the system has one switch")
}

async fn pay_to(system: &System, destination: &str) -> anyhow::Result<AcceptedPayment> {
    system.pay_to(destination, "5.00").await
}

#[tokio::test]
async fn r21_two_switches_side_by_side() -> anyhow::Result<()> {
    let mut system = System::start("two-switches", options()).await?;
    s0_6_payments_of_two_switches_of_different_rails_settle_side_by_side(&mut system).await?;
    r21b_a_switch_decides_nothing_about_a_payment_of_the_other_switch(&mut system).await?;
    r21_the_signature_of_one_switch_is_refused_in_the_name_of_the_other(&mut system).await?;
    r35_a_switch_that_hangs_does_not_hold_up_payments_of_the_other(&mut system).await?;
    Ok(())
}

async fn s0_6_payments_of_two_switches_of_different_rails_settle_side_by_side(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let mut payments = Vec::new();
    for _ in 0..3 {
        for destination in DESTINATIONS {
            payments.push((destination, pay_to(system, destination).await?));
        }
    }
    for (destination, payment) in &payments {
        system.wait_for_state(&payment.payment_id, "settled").await?;
        let switch = if *destination == DESTINATIONS[0] { "mock" } else { "other" };
        assert_eq!(system.payment(&payment.payment_id).await?["switch"], switch);
        let transfer = system.transfer_name(&payment.payment_id).await?;
        let is_there = async |admin: &SwitchAdmin| admin.transfer_status(&transfer).await;
        let transfers = [is_there(&system.switch).await?, is_there(&second(system)?.admin).await?];
        let settled = Some("SETTLED".to_owned());
        let expected = if switch == "mock" { [settled, None] } else { [None, settled] };
        assert_eq!(transfers, expected, "{switch}");
    }
    assert_eq!(system.audit().await?.debited, 6);
    Ok(())
}

/// Each switch reports each outcome of the other one's transfer, under its own name and signature. A reject by SEPA Instant is final,
/// so the code would release the hold if the report were believed.
async fn r21b_a_switch_decides_nothing_about_a_payment_of_the_other_switch(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let switches = [&system.switch, &second(system)?.admin];
    for switch in switches {
        switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    }
    for (own, foreign, destination) in
        [(switches[0], switches[1], DESTINATIONS[0]), (switches[1], switches[0], DESTINATIONS[1])]
    {
        for status in ["SUCCESS", "FAILURE", "RETURNED"] {
            let before = system.available().await?;
            let payment = pay_to(system, destination).await?;
            system.wait_for_state(&payment.payment_id, "submitted").await?;
            let callback = json!({"status": status, "amount_minor": AMOUNT_MINOR, "currency": "EUR",
                "reason_code": "AC04"});
            let transfer = system.transfer_name(&payment.payment_id).await?;
            foreign.send_callback(&transfer, callback).await?;
            until("the callback is answered with success", Duration::from_secs(60), || async {
                let callbacks = foreign.callbacks(&transfer).await?;
                Ok(callbacks.iter().any(|callback| callback["state"] == "DELIVERED").then_some(()))
            })
            .await?;
            let case = format!("{status} about {destination}");
            assert_eq!(
                system.exceptions(&payment.payment_id).await?,
                ["callback_from_other_switch"],
                "{case}"
            );
            assert_eq!(system.state(&payment.payment_id).await?, "submitted", "{case}");
            assert_eq!(system.available().await?, before - AMOUNT_MINOR, "{case}");

            own.finish_transfer(&transfer, "settle").await?;
            system.wait_for_state(&payment.payment_id, "settled").await?;
            assert_eq!(system.debits(&payment.payment_id).await?, [AMOUNT_MINOR], "{case}");
        }
    }
    assert_eq!(system.audit().await?.debited, 6);
    Ok(())
}

async fn r21_the_signature_of_one_switch_is_refused_in_the_name_of_the_other(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let switches = [&system.switch, &second(system)?.admin];
    for (number, (name, secret)) in [("mock", OTHER_SECRET), ("other", SWITCH_SECRET)].into_iter().enumerate()
    {
        switches[number].set_default_behaviour(json!({"outcome": "hold"})).await?;
        let payment = pay_to(system, DESTINATIONS[number]).await?;
        system.wait_for_state(&payment.payment_id, "submitted").await?;
        let transfer = system.transfer_name(&payment.payment_id).await?;
        let success = TestCallback::success(&transfer, AMOUNT_MINOR);
        for status in ["SUCCESS", "FAILURE", "RETURNED"] {
            let forged = TestCallback { switch: name, secret, status, ..success.clone() };
            assert_eq!(system.post_callback(&forged).await?, 401, "{status} at {name}");
        }
        assert_eq!(system.state(&payment.payment_id).await?, "submitted", "{name}");
        assert!(system.exceptions(&payment.payment_id).await?.is_empty(), "{name}");
        switches[number].finish_transfer(&transfer, "settle").await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    assert_eq!(system.audit().await?.debited, 2);
    Ok(())
}

/// Payments through both switches while the second one gives no answer: those of the first one settle, and the others wait, because
/// nobody but their switch can decide about them.
async fn pay_without_the_second(system: &System) -> anyhow::Result<()> {
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(pay_to(system, DESTINATIONS[1]).await?);
    }
    for _ in 0..5 {
        let payment = pay_to(system, DESTINATIONS[0]).await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    for payment in waiting {
        let is_open = system.payment(&payment.payment_id).await?["ended_at"] == Value::Null;
        assert!(is_open, "{} has ended without an answer of its switch", payment.payment_id);
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 15 * AMOUNT_MINOR);
    Ok(())
}

#[tokio::test]
async fn r35_a_switch_that_is_down_does_not_hold_up_payments_of_the_other() -> anyhow::Result<()> {
    let mut system = System::start("other-down", options()).await?;
    system.other.as_mut().context("one switch")?.process.kill().await?;
    pay_without_the_second(&system).await?;
    system.other.as_mut().context("one switch")?.process.restart().await?;
    system.wait_until_all_have_ended().await?;
    // A submit that was held back meanwhile settles; one that was given up is released.
    assert!(system.audit().await?.debited >= 5);
    Ok(())
}

async fn r35_a_switch_that_hangs_does_not_hold_up_payments_of_the_other(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    second(system)?.process.pause()?;
    pay_without_the_second(system).await?;
    second(system)?.process.resume()?;
    // A submit that waited at the switch may settle or be refused there: the comparison of the books finds out.
    system.wait_until_all_have_ended().await?;
    assert!(system.audit().await?.debited >= 5);
    Ok(())
}
