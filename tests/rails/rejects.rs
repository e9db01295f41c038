//! A final reject by the switch of our own reference is believed where the rail guarantees it: nobody asks the switch.

use serde_json::{Value, json};
use testkit::system::OPENING_MINOR;
use testkit::{System, SystemOptions};

use crate::kinds::{fednow, pix, rtp, sct_inst};

/// A rail's name and its system.
type NamedRail = (&'static str, fn() -> SystemOptions);

const FINAL: [NamedRail; 4] = [("sct-inst", sct_inst), ("fednow", fednow), ("rtp", rtp), ("pix", pix)];

/// A payment at each rail whose switch behaves like this: it fails after one submit and no query, and the hold is released.
async fn fails_without_a_question(
    case: &str,
    behaviour: Value,
    options_of: fn(SystemOptions) -> SystemOptions,
) -> anyhow::Result<()> {
    for (name, options) in FINAL {
        let system = System::start(&format!("{case}-{name}"), options_of(options())).await?;
        system.switch.set_default_behaviour(behaviour.clone()).await?;
        let payment = system.pay("5.00").await?;
        system.wait_for_state(&payment.payment_id, "failed").await?;
        let transfer = system.transfer_name(&payment.payment_id).await?;
        assert_eq!(system.switch.request_count(&transfer, "query").await?, 0, "{name}");
        assert_eq!(system.switch.request_count(&transfer, "submit").await?, 1, "{name}");
        assert_eq!(system.available().await?, OPENING_MINOR, "{name}");
        system.audit().await?;
    }
    Ok(())
}

#[tokio::test]
async fn s0_9_a_reject_in_the_answer_to_a_submit_releases_the_hold_without_a_question() -> anyhow::Result<()>
{
    fails_without_a_question("refused", json!({"submit": ["refuse"]}), |options| options).await
}

#[tokio::test]
async fn s0_9_a_reject_by_callback_releases_the_hold_without_a_question() -> anyhow::Result<()> {
    let with_long_sla = |options: SystemOptions| options.with_profile("sla_ms", 20_000);
    fails_without_a_question("rejected", json!({"outcome": "reject"}), with_long_sla).await
}

/// A FAILURE without a code that means dead says nothing certain: the switch is asked, and it has settled.
#[tokio::test]
async fn s0_9_a_failure_without_a_final_code_is_asked_about_and_the_settlement_counts() -> anyhow::Result<()>
{
    let mut options = sct_inst();
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
