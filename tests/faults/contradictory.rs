//! R20: a switch that says SUCCESS and FAILURE of the same transfer, in both orders. FAILURE is never definite:
//! SUCCESS or the answer to our cancel decides; the other word is an exception.

use futures::future::try_join_all;
use serde_json::{Value, json};
use testkit::system::{Accepted, OPENING_MINOR};
use testkit::{Callback, Options, System};

const AMOUNT_MINOR: i64 = 500;

/// Makes a payment of which the switch says what `behaviour` has it say.
async fn pay(system: &System, behaviour: Value) -> anyhow::Result<Accepted> {
    system.switch.behave(behaviour).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    Ok(payment)
}

#[tokio::test]
async fn r20_success_decides_whether_failure_came_before_or_after_it() -> anyhow::Result<()> {
    let system = System::start("contradictory", Options::default()).await?;
    let silent = json!({"outcome": "hold", "callback": {"lose": true}});
    let orders: [(&str, &[&str]); 4] = [
        ("failure then success", &["FAILURE", "SUCCESS"]),
        ("success then failure", &["SUCCESS", "FAILURE"]),
        ("failure, success, failure", &["FAILURE", "SUCCESS", "FAILURE"]),
        ("success, failure, success", &["SUCCESS", "FAILURE", "SUCCESS"]),
    ];
    let mut payments = Vec::new();
    for (name, words) in orders {
        let payment = pay(&system, silent.clone()).await?;
        // The switch did settle; what it says besides is not true.
        system.switch.decide(&payment.reference, "settle").await?;
        for status in words {
            let callback = Callback { status, ..Callback::success(&payment.reference, AMOUNT_MINOR) };
            assert_eq!(system.tell(&callback).await?, 200, "{name}");
        }
        payments.push((name, words, payment));
    }
    try_join_all(payments.iter().map(|(.., payment)| system.wait_for_state(&payment.payment_id, "settled")))
        .await?;
    for (name, words, payment) in &payments {
        system.wait_until_told(&payment.payment_id).await?;
        let failures = words.iter().filter(|word| **word == "FAILURE").count();
        let exceptions = system.exceptions(&payment.payment_id).await?;
        assert_eq!(exceptions, vec!["contradictory_final_status"; failures], "{name}");
        assert_eq!(system.state(&payment.payment_id).await?, "settled", "{name}");
    }
    assert_eq!(system.available().await?, OPENING_MINOR - 4 * AMOUNT_MINOR);
    assert_eq!(system.audit().await?.debited, 4);
    Ok(())
}

#[tokio::test]
async fn r20_the_answer_to_our_cancel_stands_against_a_success_that_comes_after_it() -> anyhow::Result<()> {
    let system = System::start("contradictory-late", Options::default()).await?;
    let payment = pay(&system, json!({"outcome": "hold"})).await?;
    // Rejected, FAILURE said, asked to cancel, answered "already rejected", released.
    system.switch.decide(&payment.reference, "reject").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    for _ in 0..2 {
        assert_eq!(system.tell(&Callback::success(&payment.reference, AMOUNT_MINOR)).await?, 200);
        assert_eq!(system.tell(&Callback::failure(&payment.reference, AMOUNT_MINOR)).await?, 200);
    }
    assert_eq!(system.exceptions(&payment.payment_id).await?, ["late_confirmation"], "once, however often");
    assert_eq!(system.state(&payment.payment_id).await?, "failed");
    assert_eq!(system.available().await?, OPENING_MINOR);
    system.audit().await?;
    Ok(())
}
