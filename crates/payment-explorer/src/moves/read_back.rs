//! Calls about a transfer at a switch without references: the transfer is looked up first.

use payment_protocol::cancel::CancelAnswer;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::QueryAnswer;

use super::answers::{CallResult, CallResults, query, silence};
use crate::attempt::{AttemptCall, AttemptReply};
use crate::listing::{Found, ListedTransfer, OtherTransfer};
use crate::state::State;
use crate::switch::{QueryResult, TransferStatus};

/// Adds the results of a call that concerns not our own transfer alone. Returns whether it did.
pub(super) fn instead(results: &mut CallResults<'_>, call: &AttemptCall) -> bool {
    if finds_none_of_its_own(results.from) {
        return silence(results, call);
    }
    match (look_up(results.from), call) {
        (Found::One(ListedTransfer::Ours) | Found::Nothing, _) => return false,
        (Found::One(ListedTransfer::Other(at)), AttemptCall::Query(_)) => {
            if let Some(other) = results.from.listing.others.get(usize::from(at)) {
                query(results, query_result(*other));
            }
        }
        (Found::One(ListedTransfer::Other(at)), AttemptCall::Cancel(..)) => cancel(results, at),
        (Found::One(ListedTransfer::Other(at)), AttemptCall::Recall(..)) => recall(results, at),
        (Found::Ambiguous, AttemptCall::Query(_)) => {
            let answer = QueryAnswer::Ambiguous { detail: "ambiguous".into() };
            let response = results.respond(answer);
            results.benign("the lookup is ambiguous", |_, _| Some(AttemptReply::QueryAnswer(response)));
        }
        (Found::Ambiguous, AttemptCall::Cancel(..)) => {
            let response = results.respond(CancelAnswer::CannotCancel);
            results.benign("the lookup is ambiguous", |_, _| Some(AttemptReply::CancelAnswer(response)));
        }
        (Found::Ambiguous, AttemptCall::Recall(..)) => {
            let response = results.respond(RecallAnswer::Unknown { detail: "ambiguous".into() });
            results.benign("the lookup is ambiguous", |_, _| Some(AttemptReply::RecallAnswer(response)));
        }
        _ => return false,
    }
    true
}

fn look_up(state: &State) -> Found {
    state.listing.look_up(&state.switch, state.bank.attempts_uncertain)
}

/// Whether a lookup says nothing although the switch lists a transfer. A found transfer is recorded before anything is concluded from
/// it, and an ended payment records none: the account is free, and the transfer may be another payment's.
fn finds_none_of_its_own(state: &State) -> bool {
    let is_listed = look_up(state) != Found::Nothing;
    state.bank.ended() && state.listing.known.is_none() && is_listed
}

/// Whether every lookup stays undecided until a transfer is removed from the listing.
pub(super) fn is_undecided(state: &State) -> bool {
    finds_none_of_its_own(state) || look_up(state) == Found::Ambiguous
}

/// Records the id of the only transfer that an answer can be about.
pub(super) fn record_transfer_id(from: &State, results: &mut [CallResult]) {
    let Found::One(found) = look_up(from) else { return };
    for CallResult { next, reply, .. } in results {
        let names_it = match reply {
            AttemptReply::QueryAnswer(response) => matches!(
                response.answer,
                QueryAnswer::Pending
                    | QueryAnswer::Settled(_)
                    | QueryAnswer::Returned(_)
                    | QueryAnswer::Void { .. }
            ),
            AttemptReply::CancelAnswer(response) => {
                !matches!(response.answer, CancelAnswer::NotFound | CancelAnswer::NoAnswer { .. })
            }
            _ => false,
        };
        if names_it {
            next.listing.record_transfer_id(found, next.bank.ended());
        }
    }
}

fn query_result(other: OtherTransfer) -> QueryResult {
    match other.status {
        TransferStatus::Pending => QueryResult::Pending,
        TransferStatus::Settled => QueryResult::Settled,
        TransferStatus::Returned => QueryResult::Returned,
        TransferStatus::Rejected | TransferStatus::Cancelled => QueryResult::Void,
    }
}

fn cancel(results: &mut CallResults<'_>, at: u8) {
    let Some(other) = results.from.listing.others.get(usize::from(at)) else { return };
    let report = results.model.report.clone();
    let answer = match other.status {
        TransferStatus::Pending | TransferStatus::Cancelled => {
            CancelAnswer::Cancelled { tombstoned: Some(false) }
        }
        TransferStatus::Settled => CancelAnswer::AlreadySettled(report),
        TransferStatus::Rejected => CancelAnswer::AlreadyRejected,
        TransferStatus::Returned => CancelAnswer::AlreadyReturned(report),
    };
    let response = results.respond(answer);
    results.benign("the switch takes another transfer for it", |next, _| {
        let other = next.listing.other(at)?;
        if other.status == TransferStatus::Pending {
            (other.status, other.changed_by_us) = (TransferStatus::Cancelled, true);
        }
        Some(AttemptReply::CancelAnswer(response))
    });
}

fn recall(results: &mut CallResults<'_>, at: u8) {
    let response = results.respond(RecallAnswer::Recalled);
    results.benign("the switch returns another transfer", |next, _| {
        let other = next.listing.other(at)?;
        (other.status, other.changed_by_us) = (TransferStatus::Returned, true);
        Some(AttemptReply::RecallAnswer(response))
    });
}
