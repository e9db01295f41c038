//! S0.13, I1: the balances are exact at every instant, also while payments are compensated and their workers are killed. The
//! auditor samples the ledger meanwhile.

use std::time::Duration;

use anyhow::Context as _;
use serde_json::json;
use testkit::system::{AcceptedPayment, OPENING_MINOR, payment_request};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions, auditor};

/// Kills of the worker, each while a payment waits in every compensation.
const KILLS: usize = 3;
/// Payments without a fault that are open around each kill.
const SOUND: usize = 6;
/// Time limit for one step.
const WITHIN: Duration = Duration::from_secs(60);

/// Payments that wait in a compensation.
struct Compensated {
    /// The switch refused the submit (Path A).
    refused: AcceptedPayment,
    /// The SLA has expired (Path B).
    timed_out: AcceptedPayment,
    /// The switch reported FAILURE.
    rejected: AcceptedPayment,
    /// The transfer settled, and the account cannot be debited (Path C).
    recalled: AcceptedPayment,
}

impl Compensated {
    fn all(&self) -> [&AcceptedPayment; 4] {
        [&self.refused, &self.timed_out, &self.rejected, &self.recalled]
    }
}

/// Makes a payment for each compensation, and holds it there: the switch does not decide yet.
async fn compensate(system: &System, account: &str) -> anyhow::Result<Compensated> {
    system.open_account(account).await?;
    let pay = async |field: &str, value: &str| {
        let mut body = payment_request("5.00");
        body[field] = value.into();
        system.pay_with(&body).await
    };
    // Paused until the behaviour for each payment is set.
    system.worker.pause()?;
    let held = Compensated {
        refused: pay("destination_account", "XX-BOB").await?,
        timed_out: pay("destination_account", "YY-BOB").await?,
        rejected: pay("destination_account", "XX-BOB").await?,
        recalled: pay("source_account", account).await?,
    };
    let undecided = json!([{"fault": "in_process", "times": "always"}]);
    for payment in held.all() {
        let submit = if payment == &held.refused { json!(["refuse_unrecorded"]) } else { json!([]) };
        let behaviour =
            json!({"outcome": "hold", "submit": submit, "cancel": undecided, "recall": undecided});
        system.switch.set_behaviour(&payment.reference, behaviour).await?;
    }
    system.worker.resume()?;
    for payment in [&held.rejected, &held.recalled] {
        system.wait_for_state(&payment.payment_id, "submitted").await?;
    }
    system.set_account_status(account, "frozen").await?;
    system.switch.send_callback(&held.rejected.reference, json!({"status": "FAILURE"})).await?;
    system.switch.finish_transfer(&held.recalled.reference, "settle").await?;
    for payment in [&held.refused, &held.timed_out, &held.rejected] {
        system.wait_for_state(&payment.payment_id, "cancelling").await?;
    }
    until("the switch receives the recall", WITHIN, || async {
        Ok((system.switch.request_count(&held.recalled.reference, "recall").await? > 0).then_some(()))
    })
    .await?;
    Ok(held)
}

#[tokio::test]
async fn s0_13_balances_are_exact_while_compensating_workers_are_killed() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    // Only the SLA of the second switch is short, and no submit budget: a payment whose worker was killed waits ten seconds for the
    // next one, and must neither time out nor be cancelled for that.
    let options = SystemOptions::default()
        .with_profile("sla_ms", 300_000)
        .with_profile("submit_budget_ms", 120_000)
        .with_profile("submit_deadline_ms", 150_000)
        .with_other_switch(&[("sla_ms", 500.into())]);
    let mut system = System::start("conservation", options).await?;
    let pool = system.database.pool.clone();
    let work = async {
        let mut ends = Vec::new();
        for kill in 0..KILLS {
            let held = compensate(&system, &format!("FROZEN-{kill}")).await?;
            for _ in 0..SOUND {
                ends.push((system.pay("1.00").await?, "settled"));
            }
            system.worker.kill().await?;
            for payment in held.all() {
                system.switch.set_behaviour(&payment.reference, json!({"outcome": "hold"})).await?;
            }
            system.worker.restart().await?;
            let Compensated { refused, timed_out, rejected, recalled } = held;
            ends.extend([refused, rejected, recalled].map(|payment| (payment, "failed")));
            ends.push((timed_out, "timed_out"));
        }
        system.wait_until_all_have_ended().await?;
        Ok(ends)
    };
    let (ends, samples) = auditor::sample_during(&pool, work).await?;
    println!("{} payments, {KILLS} kills, {samples} samples without violation", ends.len());
    for (payment, end) in &ends {
        assert_eq!(system.state(&payment.payment_id).await?, *end, "{}", payment.payment_id);
    }
    assert!(samples > 10 * KILLS, "only {samples} samples were taken");
    assert_eq!(system.available().await?, OPENING_MINOR - i64::try_from(KILLS * SOUND)? * 100);
    let audit = system.audit().await?;
    assert_eq!((audit.payments, audit.debited, audit.open), (ends.len(), KILLS * SOUND, 0));
    Ok(())
}

/// A payment that Temporal saw fail and the bank's ledger calls timed out: bank and switch agree, since no money left.
#[tokio::test]
async fn an_end_that_temporals_history_contradicts_fails_the_audit() -> anyhow::Result<()> {
    let system = System::start("contradicted", SystemOptions::default()).await?;
    system.switch.set_default_behaviour(json!({"submit": ["refuse_unrecorded"]})).await?;
    let payment = system.pay("5.00").await?;
    system.wait_for_state(&payment.payment_id, "failed").await?;
    system.wait_for_event(&payment.payment_id, EventType::WorkflowExecutionFailed).await?;
    system.damage_ledger("UPDATE payments SET state = 'timed_out'").await?;
    let error = format!("{:#}", system.audit().await.err().context("the audit found nothing")?);
    assert!(error.contains("is timed_out, and its workflow failed"), "{error}");
    Ok(())
}
