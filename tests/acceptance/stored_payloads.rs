//! What Temporal stores about a payment is encrypted, and a key can be replaced while payments are on their way.

use prost::Message as _;
use serde_json::json;
use temporalio_client::WorkflowExecutionStatus;
use testkit::system::ALICE;
use testkit::temporal::{HistoryEvent, PAYLOAD_KEY};
use testkit::{System, SystemOptions};

/// An amount whose digits appear nowhere else.
const AMOUNT: &str = "3791.46";
/// The same in minor units.
const AMOUNT_MINOR: &str = "379146";
/// Another key of the same length.
const NEXT_KEY: &str = "next:bmV4dC10ZXN0LW9ubHkta2V5LTAxMjM0NTY3ODkhISE=";

/// Everything that a history holds, as text.
fn text_of(history: &[HistoryEvent]) -> String {
    history.iter().map(|event| String::from_utf8_lossy(&event.encode_to_vec()).into_owned()).collect()
}

#[tokio::test]
async fn temporal_stores_no_account_no_amount_and_no_reason_in_clear() -> anyhow::Result<()> {
    let system = System::start("stored-payloads", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let settled = system.pay(AMOUNT).await?;
    let refused = system.pay(AMOUNT).await?;
    let cancelled = system.pay("5.00").await?;
    for payment in [&settled, &refused, &cancelled] {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
    }
    system.switch.finish_transfer(&settled.reference, "settle").await?;
    system.switch.finish_transfer(&refused.reference, "reject").await?;
    system.cancel(&cancelled.payment_id).await?;
    for (payment, state) in [(&settled, "settled"), (&refused, "failed"), (&cancelled, "cancelled")] {
        system.wait_for_state(&payment.payment_id, state).await?;
        testkit::wait::until("the workflow has ended", std::time::Duration::from_secs(60), async || {
            let described = system.workflow(&payment.payment_id).await?.describe(Default::default()).await?;
            Ok((described.status() != WorkflowExecutionStatus::Running).then_some(()))
        })
        .await?;
        let text = text_of(&system.history(&payment.payment_id).await?);
        assert!(text.contains("binary/encrypted"), "{state}");
        let view = system.payment(&payment.payment_id).await?;
        let destination = view["destination_account"].as_str().unwrap_or("no destination");
        for clear in [ALICE, destination, AMOUNT, AMOUNT_MINOR, "EUR", "source_account", &payment.reference] {
            assert!(!text.contains(clear), "the history of a {state} payment has {clear}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_payload_key_is_replaced_while_payments_are_on_their_way() -> anyhow::Result<()> {
    let mut system = System::start("payload-keys", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let before = system.pay("5.00").await?;
    system.wait_for_state(&before.payment_id, "submitted").await?;
    // First every process reads the new key, and only then one encrypts by it.
    for keys in [[PAYLOAD_KEY, NEXT_KEY], [NEXT_KEY, PAYLOAD_KEY]] {
        system.set_payload_keys(&keys)?;
        for process in [&mut system.worker, &mut system.api, &mut system.background_worker] {
            process.stop().await?;
            process.restart().await?;
        }
    }
    let after = system.pay("6.00").await?;
    system.wait_for_state(&after.payment_id, "submitted").await?;
    for payment in [&before, &after] {
        system.switch.finish_transfer(&payment.reference, "settle").await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    let (old, new) = (system.history(&before.payment_id).await?, system.history(&after.payment_id).await?);
    assert!(text_of(&old).contains("next") && text_of(&new).contains("next"));
    assert!(text_of(&old).contains("demo") && !text_of(&new).contains("demo"));
    system.audit().await?;
    Ok(())
}
