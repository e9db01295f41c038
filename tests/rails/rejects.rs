//! A final reject by the switch of our own reference is believed where the rail guarantees it: nobody asks the switch.

use serde_json::json;
use testkit::system::OPENING_MINOR;
use testkit::{System, SystemOptions};

use crate::kinds::{fednow, pix, rtp, sct_inst};

/// A rail's name and its system.
type NamedRail = (&'static str, fn() -> SystemOptions);

const FINAL: [NamedRail; 4] = [("sct-inst", sct_inst), ("fednow", fednow), ("rtp", rtp), ("pix", pix)];

/// In the answer to the submit, and by callback: the payment fails after one submit and no query, and the hold is released.
#[tokio::test]
async fn s0_9_a_final_reject_releases_the_hold_without_a_question() -> anyhow::Result<()> {
    for (name, options) in FINAL {
        let mut system =
            System::start(&format!("rejected-{name}"), options().with_profile("sla_ms", 20_000)).await?;
        for behaviour in [json!({"submit": ["refuse"]}), json!({"outcome": "reject"})] {
            system.next_case().await?;
            system.switch.set_default_behaviour(behaviour.clone()).await?;
            let payment = system.pay("5.00").await?;
            system.wait_for_state(&payment.payment_id, "failed").await?;
            let transfer = system.transfer_name(&payment.payment_id).await?;
            assert_eq!(system.switch.request_count(&transfer, "query").await?, 0, "{name}: {behaviour}");
            assert_eq!(system.switch.request_count(&transfer, "submit").await?, 1, "{name}: {behaviour}");
            assert_eq!(system.available().await?, OPENING_MINOR, "{name}: {behaviour}");
            system.audit().await?;
        }
    }
    Ok(())
}

/// A FAILURE without a code that means dead says nothing certain: the switch is asked, and it has settled.
#[tokio::test]
async fn s0_9_a_failure_without_a_final_code_is_asked_about_and_the_settlement_counts() -> anyhow::Result<()>
{
    let mut options = sct_inst().with_profile("sla_ms", 30_000);
    options.settle_after_ms = 700;
    let system = System::start("uncoded-failure", options).await?;
    let callback = json!({"lose": true});
    system.switch.set_default_behaviour(json!({"callback": callback})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "submitted").await?;
    let failure = json!({"status": "FAILURE", "reason": "not now", "reason_code": "XX99",
        "amount_minor": 500, "currency": "EUR"});
    let transfer = system.transfer_name(&payment.payment_id).await?;
    system.switch.send_callback(&transfer, failure).await?;
    system.wait_for_state(&payment.payment_id, "settled").await?;
    assert!(system.switch.request_count(&transfer, "query").await? >= 1);
    assert_eq!(system.audit().await?.debited, 1);
    Ok(())
}
