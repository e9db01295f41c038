//! Audits holds every minute (S0.15): reports the open holds by payment state, and opens an exception for each hold that
//! contradicts its payment or the journal.

use std::time::Duration;

use anyhow::Result;
use monitoring::background_task::BackgroundTask;
use payment_ledger::audit::reconcile::findings::FindingOutcome;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::drift::Tolerance;
use payment_protocol::ids::PaymentId;
use tokio_util::sync::CancellationToken;

use crate::config::BackgroundWorkerOptions;
use crate::periodic::{self, RoundOutcome};

/// Audits holds periodically until `stop`. Several processes may: an exception is opened once.
pub(crate) async fn run(ledger: &Ledger, options: &BackgroundWorkerOptions, stop: &CancellationToken) {
    let interval = Duration::from_millis(options.audit_interval_ms);
    periodic::run_sparingly(BackgroundTask::HoldAudit, interval, stop, async || {
        audit(ledger).await?;
        Ok(RoundOutcome::Idle)
    })
    .await;
}

async fn audit(ledger: &Ledger) -> Result<(), LedgerError> {
    set_gauges(ledger).await?;
    let audited = ledger.audit_holds(Tolerance::default()).await?;
    for (finding, known) in &audited.findings {
        if let FindingOutcome::Opened(exception_id) = known {
            tracing::error!(
                drift = finding.drift.as_str(),
                payment.id = finding.payment_id.as_ref().map(PaymentId::as_str),
                exception.id = exception_id,
                detail = finding.detail,
                "the hold audit found drift and opened an exception; an operator must decide it (payctl exceptions)"
            );
        }
    }
    tracing::debug!(
        payments = audited.payments,
        findings = audited.findings.len(),
        "the hold audit compared the open holds with payments and journal"
    );
    // The round fails, so that an alert names what is not audited.
    audited.unreadable.map_or(Ok(()), Err)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "gauges are doubles: a sum above 2^53 minor units loses its last digits"
)]
async fn set_gauges(ledger: &Ledger) -> Result<(), LedgerError> {
    for holds in ledger.held_by_state().await? {
        let (state, decided_by) = (holds.state.as_str(), holds.decided_by.as_str());
        metrics::gauge!("holds_open", "state" => state, "currency" => holds.currency.clone(), "decided_by" => decided_by)
            .set(holds.count as f64);
        metrics::gauge!("holds_open_minor", "state" => state, "currency" => holds.currency.clone(), "decided_by" => decided_by)
            .set(holds.amount_minor as f64);
        metrics::gauge!("holds_open_oldest_seconds", "state" => state, "currency" => holds.currency, "decided_by" => decided_by)
            .set(holds.oldest_s as f64);
    }
    for account in ledger.internal_balances().await? {
        metrics::gauge!("internal_account_balance_minor", "account" => account.name, "currency" => account.currency)
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
    use crate::{metrics_collection, outbox_publishing};

    /// Every gauge exists from the start: the ledger of this test holds one account and no payment.
    #[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
    async fn s0_15_every_state_operator_reason_exception_and_drift_has_a_gauge(pool: PgPool) {
        let recorder = service_kit::metrics::install().unwrap();
        let ledger = Ledger::new(pool);
        let (tenant, account) = (TenantId::new("acme").unwrap(), AccountId::new("purse").unwrap());
        ledger.open_account(&tenant, &account, Currency::EUR).await.unwrap();
        metrics_collection::collect(&ledger, Duration::ZERO, &mut outbox_publishing::lag_monitors())
            .await
            .unwrap();
        audit(&ledger).await.unwrap();
        let rendered = recorder.render();
        let assert_has = |gauge: &str| {
            let found = rendered.lines().any(|line| line.starts_with(gauge));
            assert!(found, "expected the gauge {gauge} in:\n{rendered}");
        };
        for state in PaymentState::ALL {
            for decided_by in ["bank", "switch"] {
                for gauge in ["holds_open", "holds_open_minor", "holds_open_oldest_seconds"] {
                    assert_has(&format!(
                        "{gauge}{{state=\"{state}\",currency=\"EUR\",decided_by=\"{decided_by}\"}} 0"
                    ));
                }
            }
        }
        for state in PaymentState::ALL.iter().filter(|state| state.end().is_none()) {
            for gauge in ["payments_open", "payments_open_oldest_seconds", "payments_open_idle_seconds"] {
                assert_has(&format!("{gauge}{{state=\"{state}\"}} 0"));
            }
        }
        for reason in payment_protocol::OperatorReason::ALL {
            assert_has(&format!("payments_needing_operator{{reason=\"{reason}\"}} 0"));
        }
        let exceptions = payment_protocol::exception::ExceptionKind::ALL.iter().map(|kind| kind.as_str());
        let drifts = payment_protocol::drift::Drift::ALL.iter().map(|kind| kind.as_str());
        for kind in exceptions.chain(drifts) {
            assert_has(&format!("exceptions_open{{kind=\"{kind}\"}} 0"));
        }
        for kind in payment_protocol::alert::AlertKind::ALL {
            assert_has(&format!("payments_alerted{{kind=\"{kind}\"}} 0"));
        }
        // Every other gauge that an alert rule reads.
        for name in [
            "inbox_undelivered_oldest_seconds",
            "journal_unsealed_oldest_seconds",
            "outbox_parked",
            "consumer_parked_messages",
            "erasures_failing",
            "erasures_overdue_seconds",
            "events_unprocessed{consumer=\"notifier\"}",
            "events_unprocessed{consumer=\"webhooks\"}",
            "kill_switches_active{target=\"switch\"}",
            "kill_switches_active{target=\"corridor\"}",
            "limits_exhausted{scope=\"account\"}",
            "limits_exhausted{scope=\"tenant\"}",
            "reconciliation_last_run_age_seconds",
            "reconciliation_last_full_run_age_seconds",
            "reconciliation_unread_sources",
        ] {
            assert_has(&format!("{name} 0"));
        }
    }
}
