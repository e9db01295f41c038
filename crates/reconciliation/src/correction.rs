//! Whether the switch agrees with a correction, asked before the correction moves money.

use payment_ledger::operator::decisions::DecisionStatus;
use payment_ledger::reads::explain::PaymentExplanation;
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::action::{Correction, OperatorAction};
use payment_protocol::exception::ExceptionKind;
use payment_protocol::ids::{DecisionId, PaymentId, SwitchName};
use payment_protocol::rules::retention_expired;
use payment_protocol::submit::QueryAnswer;
use switch_client::config::SwitchOptions;

use crate::transfer::{self, TransferView};

/// Upper bound of timeline lines that are read, of which a correction needs none.
const TIMELINE_MAX: i64 = 1;

/// Why a correction is not made now.
#[derive(Debug, thiserror::Error)]
pub enum CorrectionBar {
    /// The switch says otherwise.
    #[error("{correction} of payment {payment} contradicts the switch, which reports {report}")]
    Contradicted {
        /// The correction.
        correction: Correction,
        /// The payment.
        payment: PaymentId,
        /// The switch's answer in words.
        report: String,
    },
    /// The switch has not answered, and may still.
    #[error(
        "{correction} of payment {payment} needs the switch's answer first; repeat it later, the evidence counts without an answer {retention_s} s after the first attempt, or after the acceptance where none is on record: {detail}"
    )]
    Unanswered {
        /// The correction.
        correction: Correction,
        /// The payment.
        payment: PaymentId,
        /// How long the switch knows a transfer, in seconds.
        retention_s: u64,
        /// Why there is no answer.
        detail: String,
    },
    /// The ledger did not answer.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Asks the switch before a proposed correction is confirmed, which posts it. Another decision passes: that about an open payment is
/// verified by its workflow. `options_of`: the configured switch of a name, or why it is missing.
///
/// # Errors
/// [`CorrectionBar`].
pub async fn verify_proposed(
    ledger: &Ledger,
    id: &DecisionId,
    options_of: impl FnOnce(&SwitchName) -> Result<SwitchOptions, String>,
) -> Result<(), CorrectionBar> {
    let Some(decision) = ledger.decision(id).await? else { return Ok(()) };
    let (OperatorAction::Correction(correction), Some(payment)) = (decision.action, decision.payment_id)
    else {
        return Ok(());
    };
    if decision.status != DecisionStatus::Proposed || !correction.needs_evidence() {
        return Ok(());
    }
    let unknown = || LedgerError::UnknownPayment(payment.clone());
    let payment_id = PaymentId::new(payment.as_str()).map_err(|_| unknown())?;
    let explained = ledger.explain(&payment_id, TIMELINE_MAX).await?.ok_or_else(unknown)?;
    let options = options_of(&explained.payment.profile.switch);
    let options = options.as_ref().map_err(Clone::clone);
    verify(options, ledger, &explained, correction, decision.exception_id).await
}

/// Queries the switch before the correction of an exception moves money. Where it cannot be queried, the evidence of two operators counts:
/// at once if an operator's look may not query it, and after its retention if it gives no answer or never decides, for example because it
/// is gone.
///
/// # Errors
/// [`CorrectionBar`].
async fn verify(
    options: Result<&SwitchOptions, String>,
    ledger: &Ledger,
    payment: &PaymentExplanation,
    correction: Correction,
    exception_id: Option<i64>,
) -> Result<(), CorrectionBar> {
    let profile = &payment.payment.profile;
    if !transfer::may_query(profile) && !profile.has_statement {
        return Ok(());
    }
    let id = &payment.payment.view.payment_id;
    let id = PaymentId::new(id.as_str()).map_err(|_| LedgerError::UnknownPayment(id.clone()))?;
    let corrected = payment.exceptions.iter().find(|exception| Some(exception.exception_id) == exception_id);
    let exception = corrected.map_or("", |exception| exception.kind.as_str());
    let detail = match transfer::query(options, ledger, payment).await {
        Ok(TransferView { answer: QueryAnswer::Ambiguous { detail }, .. }) => detail,
        // A switch that never decides contradicts nothing; it is asked again within its retention.
        Ok(TransferView { answer: QueryAnswer::Pending, .. }) => "the switch has not decided".into(),
        Ok(view) if agrees(correction, exception, &view.answer) => return Ok(()),
        Ok(view) => {
            return Err(CorrectionBar::Contradicted { correction, payment: id, report: view.describe() });
        }
        Err(error) => error,
    };
    let first = ledger.first_attempt(&id).await?;
    if retention_expired(first.age_ms, profile) {
        return Ok(());
    }
    Err(CorrectionBar::Unanswered { correction, payment: id, retention_s: profile.retention_s, detail })
}

/// Whether the switch's answer allows a correction of an exception of this kind.
fn agrees(correction: Correction, exception: &str, answer: &QueryAnswer) -> bool {
    match (correction, answer) {
        // The switch may have forgotten the transfer.
        (_, QueryAnswer::NotFound | QueryAnswer::NotListed { .. })
        | (Correction::LateDebit, QueryAnswer::Settled(_))
        | (Correction::ReturnCredit, QueryAnswer::Void { .. } | QueryAnswer::Returned(_)) => true,
        // The transfer is settled, and its money came back in another way, or by a message of its own.
        (Correction::ReturnCredit, QueryAnswer::Settled(_)) => {
            [ExceptionKind::DebitedToClaims, ExceptionKind::ReturnedAfterDebit]
                .iter()
                .any(|kind| kind.as_str() == exception)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use payment_protocol::ids::SwitchName;
    use payment_protocol::reject::Reject;
    use payment_protocol::report::SettledReport;

    use super::*;

    #[test]
    fn a_correction_agrees_with_what_the_switch_says_about_the_money() {
        let report = || SettledReport {
            switch: SwitchName::new("mock").unwrap(),
            reference: "tx_1:submit".into(),
            amount_minor: 1,
            currency: "EUR".into(),
        };
        let answers = [
            QueryAnswer::Settled(report()),
            QueryAnswer::Returned(report()),
            QueryAnswer::Void { reject: Reject::uncoded("closed") },
            QueryAnswer::NotFound,
            QueryAnswer::Pending,
        ];
        #[rustfmt::skip]
        let table = [
            // correction             exception                    settled returned void   not_found pending
            (Correction::LateDebit,    "late_confirmation",        [true,  false,   false, true,     false]),
            (Correction::LateDebit,    "debited_to_claims",        [true,  false,   false, true,     false]),
            (Correction::ReturnCredit, "contradictory_final_status", [false, true,  true,  true,     false]),
            (Correction::ReturnCredit, "returned_after_debit",     [true,  true,    true,  true,     false]),
            (Correction::ReturnCredit, "debited_to_claims",        [true,  true,    true,  true,     false]),
            // Nobody opens an exception to credit what the switch says is settled.
            (Correction::ReturnCredit, "opened_by_operator",       [false, true,    true,  true,     false]),
        ];
        for (correction, exception, expected) in table {
            let allowed = answers.each_ref().map(|answer| agrees(correction, exception, answer));
            assert_eq!(allowed, expected, "{correction} of {exception}");
        }
    }
}
