//! S0.14: the workflow of a payment that did not settle fails at Temporal with the first cause: its code is the failure's type.

use serde_json::json;
use temporalio_common::protos::temporal::api::failure::v1::failure::FailureInfo;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;
use testkit::system::AcceptedPayment;
use testkit::temporal::{EventType, failure_message};
use testkit::{System, SystemOptions};

/// The type and the message with which the workflow of a payment failed, from its history.
async fn failure(system: &System, payment: &AcceptedPayment) -> anyhow::Result<(String, String)> {
    let event = system.wait_for_event(&payment.payment_id, EventType::WorkflowExecutionFailed).await?;
    let Some(Attributes::WorkflowExecutionFailedEventAttributes(failed)) = event.attributes else {
        anyhow::bail!("{event:?}");
    };
    let failure = failed.failure.unwrap_or_default();
    let message = failure_message(&failure)?;
    let Some(FailureInfo::ApplicationFailureInfo(info)) = failure.failure_info else {
        anyhow::bail!("{failure:?}");
    };
    assert!(info.non_retryable, "the failure of {} can be retried", payment.payment_id);
    Ok((info.r#type, message))
}

#[tokio::test]
async fn s0_14_each_unsuccessful_workflow_fails_with_its_first_cause() -> anyhow::Result<()> {
    // The SLA of the second switch is short, so that the other payments do not time out.
    let options = SystemOptions::default()
        .with_long_attempts()
        .with_profile("sla_ms", 300_000)
        .with_other_switch(&[("sla_ms", 500.into())]);
    let system = System::start("workflow-failures", options).await?;
    system.switch.set_default_behaviour(json!({"outcome": "hold"})).await?;
    let rejected = system.pay("20000.00").await?;
    let timed_out = system.pay_to("YY-BOB", "5.00").await?;
    let (cancelled, failed) = (system.pay("6.00").await?, system.pay("7.00").await?);
    for payment in [&cancelled, &failed] {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
    }
    system.cancel(&cancelled.payment_id).await?.error_for_status()?;
    system.switch.finish_transfer(&failed.reference, "reject").await?;

    #[rustfmt::skip]
    let expected = [
        (&rejected,  "rejected",  "insufficient_funds",
         "rejected: the ledger refused to reserve the amount in the customer's account: insufficient_funds"),
        (&cancelled, "cancelled", "customer_cancel",  "cancelled: the customer cancelled the payment"),
        (&timed_out, "timed_out", "sla_expired",      "timed_out: the switch did not confirm the transfer within the SLA"),
        (&failed,    "failed",    "failure_reported", "failed: the switch reported that the transfer failed: rejected_by_admin"),
    ];
    for (payment, state, kind, message) in expected {
        system.wait_for_state(&payment.payment_id, state).await?;
        assert_eq!(failure(&system, payment).await?, (kind.to_owned(), message.to_owned()));
        // The API gives the same code.
        assert_eq!(system.payment(&payment.payment_id).await?["reason"], kind);
    }
    system.audit().await?;
    Ok(())
}
