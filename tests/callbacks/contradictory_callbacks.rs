//! R20: the switch sends SUCCESS and FAILURE for the same transfer, in both orders. FAILURE is never definite: SUCCESS or the
//! answer to our cancel is the final status, and the contradicting callback is an exception.

use serde_json::{Value, json};
use testkit::system::{AcceptedPayment, OPENING_MINOR};
use testkit::{System, SystemOptions, TestCallback};

const AMOUNT_MINOR: i64 = 500;

/// Makes a payment at a switch with this behaviour.
async fn pay(system: &System, behaviour: Value) -> anyhow::Result<AcceptedPayment> {
    system.switch.set_default_behaviour(behaviour).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    Ok(payment)
}

#[tokio::test]
async fn r20_contradictory_callbacks() -> anyhow::Result<()> {
    let mut system = System::start("contradictory", SystemOptions::default()).await?;
    r20_a_success_callback_decides_in_either_order_with_a_failure(&mut system).await?;
    r20_a_success_after_the_answer_to_our_cancel_is_an_exception(&mut system).await?;
    Ok(())
}

async fn r20_a_success_callback_decides_in_either_order_with_a_failure(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let silent = json!({"outcome": "hold", "callback": {"lose": true}});
    let orders: [(&str, &[&str]); 4] = [
        ("failure then success", &["FAILURE", "SUCCESS"]),
        ("success then failure", &["SUCCESS", "FAILURE"]),
        ("failure, success, failure", &["FAILURE", "SUCCESS", "FAILURE"]),
        ("success, failure, success", &["SUCCESS", "FAILURE", "SUCCESS"]),
    ];
    let mut payments = Vec::new();
    for (name, statuses) in orders {
        let payment = pay(system, silent.clone()).await?;
        // The transfer settles, so FAILURE is false.
        system.switch.finish_transfer(&payment.reference, "settle").await?;
        for status in statuses {
            let callback = TestCallback { status, ..TestCallback::success(&payment.reference, AMOUNT_MINOR) };
            assert_eq!(system.post_callback(&callback).await?, 200, "{name}");
            if *status == "SUCCESS" {
                // All failures before the query that confirms it are one exception.
                system.wait_for_state(&payment.payment_id, "settled").await?;
            }
        }
        payments.push((name, statuses, payment));
    }
    for (name, statuses, payment) in &payments {
        system.wait_until_inbox_delivered(&payment.payment_id).await?;
        let failures = statuses.iter().filter(|status| **status == "FAILURE").count();
        let exceptions = system.exceptions(&payment.payment_id).await?;
        assert_eq!(exceptions, vec!["contradictory_final_status"; failures], "{name}");
        assert_eq!(system.state(&payment.payment_id).await?, "settled", "{name}");
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 4 * AMOUNT_MINOR);
    assert_eq!(system.audit().await?.debited, 4);
    Ok(())
}

async fn r20_a_success_after_the_answer_to_our_cancel_is_an_exception(
    system: &mut System,
) -> anyhow::Result<()> {
    system.next_case().await?;
    let payment = pay(system, json!({"outcome": "hold"})).await?;
    // The transfer is rejected, FAILURE leads to a cancel, the switch answers "rejected", and the hold is released.
    system.switch.finish_transfer(&payment.reference, "reject").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    for _ in 0..2 {
        assert_eq!(
            system.post_callback(&TestCallback::success(&payment.reference, AMOUNT_MINOR)).await?,
            200
        );
        assert_eq!(
            system.post_callback(&TestCallback::failure(&payment.reference, AMOUNT_MINOR)).await?,
            200
        );
    }
    assert_eq!(
        system.exceptions(&payment.payment_id).await?,
        ["late_confirmation"],
        "expected one exception for repeated callbacks"
    );
    assert_eq!(system.state(&payment.payment_id).await?, "failed");
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}
