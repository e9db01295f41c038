//! S0.8, S0.9: the customer is notified of how a payment ended, each end in its own words, by the notifier and in the API.

use serde_json::{Value, json};
use testkit::SystemOptions;
use testkit::system::ALICE;
use testkit::wait::until;

use crate::event_bank::{EventBank, WITHIN};

/// The last notification of an ended payment, as the API shows it.
async fn last_notification(bank: &EventBank, id: &str, kind: &str) -> anyhow::Result<Value> {
    let expected = format!("{id} has the notification {kind}");
    let notified = until(&expected, WITHIN, || async {
        let payment = bank.system.payment(id).await?;
        let last = payment["notifications"].as_array().and_then(|all| all.last().cloned());
        Ok(last.filter(|last| last["kind"] == kind))
    });
    notified.await.map_err(|error| error.context(bank.notifier.log_tail()))
}

#[tokio::test]
async fn s0_9_the_customer_is_notified_of_each_end_in_its_own_words() -> anyhow::Result<()> {
    // The SLA of the second switch is short, so that the other payments do not time out.
    let options = SystemOptions::default()
        .with_long_attempts()
        .with_profile("sla_ms", 300_000)
        .with_other_switch(&[("sla_ms", 500.into())]);
    let bank = EventBank::start_with("notified", options).await?;
    let system = &bank.system;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let rejected = system.pay("20000.00").await?;
    let timed_out = system.pay_to("YY-BOB", "5.00").await?;
    let mut at_switch = Vec::new();
    for amount in ["6.00", "7.00", "8.00"] {
        let payment = system.pay(amount).await?;
        system.wait_for_state(&payment.payment_id, "submitted").await?;
        at_switch.push(payment);
    }
    let [cancelled, failed, settled] = at_switch.as_slice() else { anyhow::bail!("{at_switch:?}") };
    system.cancel(&cancelled.payment_id).await?.error_for_status()?;
    system.switch.finish_transfer(&failed.reference, "reject").await?;
    system.switch.finish_transfer(&settled.reference, "settle").await?;

    #[rustfmt::skip]
    let expected = [
        (&rejected, "20000.00", "rejected",  "transfer_rejected",  "was rejected: nothing was charged"),
        (&timed_out, "5.00",    "timed_out", "transfer_timed_out", "was not confirmed in time: nothing was charged"),
        (cancelled, "6.00",     "cancelled", "transfer_cancelled", "was cancelled: nothing was charged"),
        (failed,    "7.00",     "failed",    "transfer_failed",    "failed: nothing was charged"),
        (settled,   "8.00",     "settled",   "transfer_sent",      "was sent: your account was debited"),
    ];
    for (payment, amount, state, kind, words) in expected {
        let id = &payment.payment_id;
        system.wait_for_state(id, state).await?;
        let notification = last_notification(&bank, id, kind).await?;
        assert_eq!(notification["message"], format!("Your transfer of {amount} EUR from {ALICE} {words}."));
        assert_eq!(system.payment(id).await?["status"], state);
    }
    system.audit().await?;
    Ok(())
}
