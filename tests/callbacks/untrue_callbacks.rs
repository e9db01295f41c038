//! A signed callback that is not true: the secret that signs callbacks is in wrong hands, or the switch is wrong. A callback alone moves
//! no money (I3): the switch is queried first.

use std::time::Duration;

use serde_json::json;
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::wait;
use testkit::{System, SystemOptions, TestCallback};

const AMOUNT_MINOR: i64 = 500;
const WITHIN: Duration = Duration::from_secs(30);

/// A payment whose transfer the switch has not decided.
async fn submitted(system: &System) -> anyhow::Result<AcceptedPayment> {
    let silent = json!({"outcome": "hold", "callback": {"lose": true}});
    system.switch.set_default_behaviour(silent).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    Ok(payment)
}

/// Waits until the switch has been queried this many times.
async fn queried(system: &System, payment: &AcceptedPayment, times: i64) -> anyhow::Result<()> {
    wait::until("queries", WITHIN, async || {
        let count = system.switch.request_count(&payment.reference, "query").await?;
        Ok((count >= times).then_some(()))
    })
    .await
}

#[tokio::test]
async fn i3_i4_untrue_callbacks_move_no_money() -> anyhow::Result<()> {
    let mut system = System::start("untrue-callbacks", SystemOptions::default()).await?;
    i3_an_untrue_success_charges_nobody_and_calls_for_operators(&mut system).await?;
    i3_a_true_success_is_debited_once_the_switch_answers_a_query(&mut system).await?;
    i3_a_switch_that_does_not_answer_the_query_holds_up_only_its_own_debit(&mut system).await?;
    i4_an_untrue_return_releases_nothing_and_keeps_no_payment_from_its_end(&mut system).await?;
    i4_a_return_that_the_switch_confirms_charges_nobody(&mut system).await?;
    Ok(())
}

async fn i3_an_untrue_success_charges_nobody_and_calls_for_operators(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = submitted(system).await?;
    let before = system.switch.request_count(&payment.reference, "query").await?;
    let untrue = TestCallback::success(&payment.reference, AMOUNT_MINOR);
    assert_eq!(system.post_callback(&untrue).await?, 200);
    // The query before the debit, and those of the wait that follows.
    queried(system, &payment, before + 3).await?;
    assert_eq!(system.state(&payment.payment_id).await?, "submitted");
    assert_eq!(system.debits(&payment.payment_id).await?, [0; 0]);

    system.switch.finish_transfer(&payment.reference, "reject").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.exceptions(&payment.payment_id).await?, ["contradictory_final_status"]);
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}

async fn i3_a_true_success_is_debited_once_the_switch_answers_a_query(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = submitted(system).await?;
    let before = system.switch.request_count(&payment.reference, "query").await?;
    let early = TestCallback::success(&payment.reference, AMOUNT_MINOR);
    assert_eq!(system.post_callback(&early).await?, 200);
    queried(system, &payment, before + 1).await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert_eq!(system.exceptions(&payment.payment_id).await?, [""; 0]);
    assert_eq!(system.available().await?, OPENING_MINOR - AMOUNT_MINOR);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn i3_a_switch_that_does_not_answer_the_query_holds_up_only_its_own_debit(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let slow = json!({"query": [{"delay_ms": 1_500}, {"delay_ms": 1_500}]});
    system.switch.set_default_behaviour(slow).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert!(system.switch.request_count(&payment.reference, "query").await? > 2);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn i4_an_untrue_return_releases_nothing_and_keeps_no_payment_from_its_end(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = submitted(system).await?;
    let before = system.switch.request_count(&payment.reference, "query").await?;
    let success = |amount_minor| TestCallback::success(&payment.reference, amount_minor);
    let untrue = TestCallback { status: "RETURNED", ..success(AMOUNT_MINOR) };
    assert_eq!(system.post_callback(&untrue).await?, 200);
    assert_eq!(system.post_callback(&success(AMOUNT_MINOR + 1)).await?, 200);
    queried(system, &payment, before + 2).await?;
    assert_eq!(system.state(&payment.payment_id).await?, "submitted");
    assert_eq!(system.available().await?, OPENING_MINOR - AMOUNT_MINOR);

    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    let mut exceptions = system.exceptions(&payment.payment_id).await?;
    exceptions.sort();
    assert_eq!(exceptions, ["confirmation_mismatch", "returned_after_debit"]);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}

async fn i4_a_return_that_the_switch_confirms_charges_nobody(system: &mut System) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = submitted(system).await?;
    system.switch.finish_transfer(&payment.reference, "settle").await?;
    system.switch.finish_transfer(&payment.reference, "return").await?;
    let success = TestCallback::success(&payment.reference, AMOUNT_MINOR);
    assert_eq!(system.post_callback(&TestCallback { status: "RETURNED", ..success }).await?, 200);
    system.wait_for_state(&payment.payment_id, "failed").await?;
    assert_eq!(system.exceptions(&payment.payment_id).await?, [""; 0]);
    assert_eq!(system.available().await?, OPENING_MINOR);
    assert_eq!(system.audit().await?.debited, 0);
    Ok(())
}
