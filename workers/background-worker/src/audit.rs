//! Audits what is held every minute (S0.15): shows it by state, and has what cannot be opened as an exception. Here, since
//! it must not stop when Temporal does.

use std::time::Duration;

use monitoring::task::BackgroundTask;
use payment_ledger::audit::reconcile::drift::Tolerance;
use payment_ledger::audit::reconcile::findings::FindingOutcome;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::ids::PaymentId;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;

/// Runs until `stop`. Several relays may: a finding is opened once.
pub(crate) async fn run(ledger: &Ledger, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    while !stop.is_cancelled() {
        match audit(ledger).await {
            Ok(()) => BackgroundTask::AuditHolds.succeeded(),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "auditing what is held failed");
            }
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(Duration::from_millis(options.audit_interval_ms)) => {}
        }
    }
}

async fn audit(ledger: &Ledger) -> Result<(), LedgerError> {
    measure(ledger).await?;
    let audited = ledger.audit_holds(Tolerance::default()).await?;
    for (finding, known) in &audited.findings {
        if let FindingOutcome::Opened(exception_id) = known {
            tracing::error!(
                drift = finding.drift.as_str(),
                payment.id = finding.payment_id.as_ref().map(PaymentId::as_str),
                exception.id = exception_id,
                detail = finding.detail,
                "the hold audit opened an exception"
            );
        }
    }
    tracing::debug!(payments = audited.payments, found = audited.findings.len(), "holds audited");
    Ok(())
}

#[allow(
    clippy::cast_precision_loss,
    reason = "shown, not counted with; a sum above 2^53 minor units loses its last digits"
)]
async fn measure(ledger: &Ledger) -> Result<(), LedgerError> {
    for held in ledger.held_by_state().await? {
        let (state, by) = (held.state.as_str(), held.decided_by.as_str());
        metrics::gauge!("holds_open", "state" => state, "currency" => held.currency.clone(), "decided_by" => by)
            .set(held.count as f64);
        metrics::gauge!("holds_open_minor", "state" => state, "currency" => held.currency.clone(), "decided_by" => by)
            .set(held.amount_minor as f64);
        metrics::gauge!("holds_open_oldest_seconds", "state" => state, "currency" => held.currency, "decided_by" => by)
            .set(held.oldest_s as f64);
    }
    for account in ledger.internal_balances().await? {
        metrics::gauge!("internal_accounts_minor", "account" => account.name, "currency" => account.currency)
            .set(account.balance_minor as f64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use iso_currency::Currency;
    use payment_protocol::PaymentState;
    use payment_protocol::ids::{AccountId, TenantId};
    use sqlx::PgPool;

    use super::*;
    use crate::{gauges, publish};

    /// Made from the enums, so that none can be forgotten: with nothing in the books but a currency, all are there.
    #[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
    async fn s0_15_every_state_reason_and_kind_has_its_gauge(pool: PgPool) {
        let shown = service_kit::metrics::install().unwrap();
        let ledger = Ledger::new(pool);
        let (tenant, account) = (TenantId::new("acme").unwrap(), AccountId::new("purse").unwrap());
        ledger.open_account(&tenant, &account, Currency::EUR).await.unwrap();
        gauges::measure(&ledger, &mut publish::watches()).await.unwrap();
        audit(&ledger).await.unwrap();
        let shown = shown.render();
        let has =
            |line: &str| assert!(shown.lines().any(|shown| shown.starts_with(line)), "no {line}:\n{shown}");
        for state in PaymentState::ALL {
            for by in ["bank", "switch"] {
                for gauge in ["holds_open", "holds_open_minor", "holds_open_oldest_seconds"] {
                    has(&format!("{gauge}{{state=\"{state}\",currency=\"EUR\",decided_by=\"{by}\"}} 0"));
                }
            }
        }
        for state in PaymentState::ALL.iter().filter(|state| state.end().is_none()) {
            for gauge in ["payments_open", "payments_open_oldest_seconds", "payments_open_idle_seconds"] {
                has(&format!("{gauge}{{state=\"{state}\"}} 0"));
            }
        }
        for reason in payment_protocol::OperatorReason::ALL {
            has(&format!("payments_needing_operator{{reason=\"{reason}\"}} 0"));
        }
        let exceptions = payment_ledger::ExceptionKind::ALL.iter().map(|kind| kind.as_str());
        let drifts = payment_ledger::audit::reconcile::drift::Drift::ALL.iter().map(|kind| kind.as_str());
        for kind in exceptions.chain(drifts) {
            has(&format!("exceptions_open{{kind=\"{kind}\"}} 0"));
        }
        for kind in payment_ledger::operator::alerts::AlertKind::ALL {
            has(&format!("payments_alerted{{kind=\"{kind}\"}} 0"));
        }
        // And each gauge of the rules that has no such label.
        for name in [
            "inbox_undelivered_oldest_seconds",
            "journal_unsealed_oldest_seconds",
            "outbox_parked",
            "outbox_parked_deliveries",
            "events_unprocessed{consumer=\"notifier\"}",
            "events_unprocessed{consumer=\"webhooks\"}",
            "kill_switches_active{target=\"switch\"}",
            "kill_switches_active{target=\"corridor\"}",
            "limits_used_up{scope=\"account\"}",
            "limits_used_up{scope=\"tenant\"}",
            "reconciliation_last_run_age_seconds",
            "reconciliation_unread_books",
        ] {
            has(&format!("{name} 0"));
        }
    }
}
