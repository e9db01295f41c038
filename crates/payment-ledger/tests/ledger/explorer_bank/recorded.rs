//! What both have recorded, in the same notation.

use payment_explorer::bank::{Bank, Exception};
use payment_explorer::listing::Listing;
use payment_protocol::facts::{RecallRecord, ReserveRecord};
use payment_protocol::keys;
use payment_protocol::submit::LoggedSubmission;

use super::ledger_side::LedgerSide;
use super::simulated_side::{SimulatedSide, transfer_id};
use crate::support::AMOUNT_MINOR;

/// The row of a payment and of the records about it. $2, $3, $4 are the keys of reserve, debit and recall.
const RECORDED: &str = "
    SELECT concat_ws(' ', p.state, 'run', coalesce(run_id, 'none'), 'resumes', resume_count,
        'reserve', coalesce((SELECT CASE outcome WHEN 'done' THEN 'held' ELSE reason END FROM operations WHERE operation_key = $2), 'none'),
        'hold', coalesce((SELECT status FROM holds h WHERE h.payment_id = p.payment_id), 'none'),
        'attempts', attempts, CASE WHEN attempts_uncertain THEN 'or more' END,
        'last', coalesce((SELECT CASE WHEN coalesce(outcome, 'unknown') = 'unknown' THEN 'pending' ELSE outcome END
                          FROM submissions s WHERE s.payment_id = p.payment_id ORDER BY attempt DESC LIMIT 1), 'none'),
        'marker', EXISTS (SELECT FROM submissions s WHERE s.payment_id = p.payment_id AND marker IS NOT NULL)::text,
        'transfer', coalesce((SELECT min(transfer_id) FROM submissions s WHERE s.payment_id = p.payment_id), 'none'),
        'final_status', coalesce(final_status, 'none'), 'cause', coalesce(cause->>'code', 'none'),
        'operator', coalesce(operator_reason, 'none'),
        'claim', EXISTS (SELECT FROM claims c WHERE c.payment_id = p.payment_id AND closed_at IS NULL)::text,
        'debit_refused', EXISTS (SELECT FROM operations WHERE operation_key = $3 AND outcome = 'refused')::text,
        'recall', coalesce((SELECT outcome FROM operations WHERE operation_key = $4), 'none'),
        'posted', (SELECT string_agg(posted, ',' ORDER BY posted) FROM (
                       SELECT kind || CASE WHEN kind IN ('late_debit', 'release') AND 'internal:claims:EUR' IN (debit_account, credit_account)
                                      THEN '_claims'
                                      WHEN kind IN ('return', 'return_credit') AND credit_account LIKE 'internal:%' THEN '_bank'
                                      ELSE '' END COLLATE \"C\" AS posted
                       FROM journal j WHERE j.payment_id = p.payment_id) j),
        'exceptions', (SELECT string_agg(DISTINCT open, ',' ORDER BY open) FROM (
                           SELECT CASE kind WHEN 'released_but_settled' THEN 'settled_not_debited' ELSE kind END COLLATE \"C\" AS open
                           FROM exceptions e WHERE e.payment_id = p.payment_id AND closed_at IS NULL) e),
        'decision', coalesce((SELECT CASE WHEN closed_at IS NULL THEN 'open' ELSE 'closed' END FROM decisions d
                              WHERE d.payment_id = p.payment_id AND action IN ('debit', 'release', 'retry_cancel')
                                AND confirmed_at IS NOT NULL ORDER BY proposed_at DESC LIMIT 1), 'none'))
    FROM payments p WHERE payment_id = $1";

impl LedgerSide<'_> {
    /// The recorded state of both payments and of their account.
    pub(crate) async fn recorded(&self) -> Vec<String> {
        let mut recorded = Vec::new();
        for sample in &self.samples {
            let (reserve, debit, recall) =
                (keys::reserve(&sample.id), keys::debit(&sample.tx), keys::recall(&sample.tx));
            let row: String = sqlx::query_scalar(RECORDED)
                .bind(sample.id.as_str())
                .bind(reserve.as_str())
                .bind(debit.as_str())
                .bind(recall.as_str())
                .fetch_one(&self.bank.pool)
                .await
                .unwrap();
            recorded.push(row);
        }
        recorded.push(format!("available {}", self.bank.available(&self.samples[0]).await));
        recorded
    }
}

impl SimulatedSide {
    /// The recorded state of both payments and of their account.
    pub(crate) fn recorded(&self) -> Vec<String> {
        let mut recorded: Vec<String> =
            self.banks.iter().zip(&self.listings).map(|(bank, listing)| payment(bank, listing)).collect();
        recorded.push(format!("available {}", self.available() * AMOUNT_MINOR));
        recorded
    }
}

fn payment(bank: &Bank, listing: &Listing) -> String {
    let none = || "none".to_owned();
    let mut words = vec![
        format!("{} run {}", bank.state, bank.run.map_or_else(none, |run| format!("run-{run}"))),
        format!("resumes {}", bank.resumes),
        match bank.reserve {
            None => "reserve none".into(),
            Some(ReserveRecord::Held) => "reserve held".into(),
            Some(ReserveRecord::Refused(refusal)) => format!("reserve {refusal}"),
        },
        format!("hold {}", bank.hold.map_or("none", |hold| hold.as_str())),
        format!("attempts {}", bank.attempts),
    ];
    words.extend(bank.attempts_uncertain.then(|| "or more".into()));
    let last = match &bank.log {
        None => "none",
        Some(LoggedSubmission::Pending) => "pending",
        Some(LoggedSubmission::Accepted) => "accepted",
        Some(LoggedSubmission::Refused { .. }) => "refused",
    };
    let recall = match bank.recall {
        None => "none",
        Some(RecallRecord::Recalled) => "done",
        Some(RecallRecord::Refused) => "refused",
        Some(RecallRecord::RecallUnsupported) => "unsupported",
    };
    words.extend([
        format!("last {last}"),
        format!("marker {} transfer {}", listing.marker, listing.known.map_or_else(none, transfer_id)),
        format!("final_status {}", bank.final_status.map_or_else(none, |status| status.to_string())),
        format!("cause {}", bank.cause.as_deref().map_or_else(none, |cause| cause.code().to_owned())),
        format!("operator {}", bank.operator_reason.map_or_else(none, |reason| reason.to_string())),
        format!("claim {}", bank.claim_open),
        format!("debit_refused {} recall {recall}", bank.debit_refused),
        "posted".into(),
    ]);
    words.extend(list(posted(bank)));
    words.push("exceptions".into());
    words.extend(list(exceptions(bank)));
    words.push(match &bank.decision {
        None => "decision none".into(),
        Some(decision) if decision.outcome.is_none() => "decision open".into(),
        Some(_) => "decision closed".into(),
    });
    words.join(" ")
}

/// Nothing, or the names with commas.
fn list(mut names: Vec<&'static str>) -> Option<String> {
    names.sort_unstable();
    (!names.is_empty()).then(|| names.join(","))
}

fn posted(bank: &Bank) -> Vec<&'static str> {
    let journal = bank.journal;
    let kinds = [
        (journal.reserve, "reserve"),
        (journal.debit, "debit"),
        (journal.release, "release"),
        (journal.release_to_claims, "release_claims"),
        (journal.advance, "advance"),
        (journal.collect, "collect"),
        (journal.late_debit, "late_debit"),
        (journal.claim, "late_debit_claims"),
        (journal.returned, "return"),
        (journal.returned_to_bank, "return_bank"),
        (journal.return_credit, "return_credit"),
        (journal.return_to_bank, "return_credit_bank"),
        (journal.write_off, "write_off"),
    ];
    kinds.into_iter().flat_map(|(times, kind)| std::iter::repeat_n(kind, usize::from(times))).collect()
}

fn exceptions(bank: &Bank) -> Vec<&'static str> {
    let names = [
        (Exception::LateConfirmation, "late_confirmation"),
        (Exception::ContradictoryFinalStatus, "contradictory_final_status"),
        (Exception::ReturnedAfterDebit, "returned_after_debit"),
        (Exception::ReturnDiffers, "return_differs"),
        (Exception::ConfirmationMismatch, "confirmation_mismatch"),
        (Exception::SettledWithoutAttempt, "settled_without_attempt"),
        (Exception::AttemptRecordLost, "attempt_record_lost"),
        (Exception::AcceptedThenUnknown, "accepted_then_unknown"),
        (Exception::CallbackFromOtherSwitch, "callback_from_other_switch"),
        (Exception::DebitedToClaims, "debited_to_claims"),
        (Exception::DebitedNotSettled, "debited_not_settled"),
        (Exception::SettledNotDebited, "settled_not_debited"),
    ];
    names.into_iter().filter(|(kind, _)| bank.exceptions.contain(*kind)).map(|(_, name)| name).collect()
}
