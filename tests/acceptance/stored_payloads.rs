//! What Temporal stores about a payment is encrypted, and a key can be replaced while payments are on their way.

use std::time::Duration;

use anyhow::Context as _;
use prost::Message as _;
use serde_json::json;
use temporalio_client::WorkflowExecutionStatus;
use testkit::system::ALICE;
use testkit::temporal::{HistoryEvent, PAYLOAD_KEY};
use testkit::wait::until;
use testkit::{System, SystemOptions};
use workflow_api::PayloadKeys;

/// An amount whose digits appear nowhere else.
const AMOUNT: &str = "3791.46";
/// The same in minor units.
const AMOUNT_MINOR: &str = "379146";
/// The reason for which the switch refuses.
const REASON: &str = "beneficiary Zora Quist is unknown";
/// Another key.
const NEXT_KEY: &str = "bmV4dC10ZXN0LW9ubHkta2V5LTAxMjM0NTY3ODkhISE=";

/// Everything that a history holds, as text.
fn text_of(history: &[HistoryEvent]) -> String {
    history.iter().map(|event| String::from_utf8_lossy(&event.encode_to_vec()).into_owned()).collect()
}

#[tokio::test]
async fn temporal_stores_no_account_no_amount_and_no_reason_in_clear() -> anyhow::Result<()> {
    let system = System::start("stored-payloads", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold", "reject_reason": REASON})).await?;
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
        until("the workflow has ended", Duration::from_secs(60), async || {
            let described = system.workflow(&payment.payment_id).await?.describe(Default::default()).await?;
            Ok((described.status() != WorkflowExecutionStatus::Running).then_some(()))
        })
        .await?;
        let text = text_of(&system.history(&payment.payment_id).await?);
        assert!(text.contains("binary/encrypted"), "{state}");
        let view = system.payment(&payment.payment_id).await?;
        let destination = view["destination_account"].as_str().context("the payment has no destination")?;
        let words = [ALICE, destination, AMOUNT, AMOUNT_MINOR, "currency", "source_account", REASON];
        for clear in words.into_iter().chain([payment.reference.as_str()]) {
            assert!(!text.contains(clear), "the history of a {state} payment has {clear}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_payload_key_is_replaced_while_payments_are_on_their_way() -> anyhow::Result<()> {
    // The payment waits through six restarts.
    let options = SystemOptions::default().with_profile("sla_ms", 600_000);
    let mut system = System::start("payload-keys", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let before = system.pay("5.00").await?;
    system.wait_for_state(&before.payment_id, "submitted").await?;
    // First every process reads the new key, and only then one encrypts by it.
    for keys in [[PAYLOAD_KEY, NEXT_KEY], [NEXT_KEY, PAYLOAD_KEY]] {
        restart_with(&mut system, &keys).await?;
    }
    let after = system.pay("6.00").await?;
    system.wait_for_state(&after.payment_id, "submitted").await?;
    for payment in [&before, &after] {
        system.switch.finish_transfer(&payment.reference, "settle").await?;
        system.wait_for_state(&payment.payment_id, "settled").await?;
    }
    let (old, new) = (system.history(&before.payment_id).await?, system.history(&after.payment_id).await?);
    let (first, next) = (id_of(PAYLOAD_KEY)?, id_of(NEXT_KEY)?);
    assert!(text_of(&old).contains(&first) && text_of(&old).contains(&next));
    assert!(!text_of(&new).contains(&first) && text_of(&new).contains(&next));
    // No workflow that needs the old key is left.
    restart_with(&mut system, &[NEXT_KEY]).await?;
    let last = system.pay("7.00").await?;
    system.wait_for_state(&last.payment_id, "submitted").await?;
    system.switch.finish_transfer(&last.reference, "settle").await?;
    system.wait_for_state(&last.payment_id, "settled").await?;
    system.audit().await?;
    Ok(())
}

fn id_of(key: &str) -> anyhow::Result<String> {
    let keys = PayloadKeys::read(&[key.into()])?;
    keys.ids().next().map(str::to_owned).context("a key has an id")
}

async fn restart_with(system: &mut System, keys: &[&str]) -> anyhow::Result<()> {
    system.set_payload_keys(keys)?;
    for process in [&mut system.worker, &mut system.api, &mut system.background_worker] {
        process.stop().await?;
        process.restart().await?;
    }
    Ok(())
}
