//! Lookup of a transfer in the listing of a switch without references (S1.8).
//!
//! The payment holds the account lock while it sends, so the only transfer after the marker with its amount and currency
//! is this payment's. Several candidates are no answer: the client never guesses.

use std::time::Instant;

use jiff::Timestamp;
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::submit::QueryAnswer;
use reqwest::{Method, StatusCode};

use super::HttpJsonClient;
use super::address::ReportedName;
use crate::client::{LookupKey, SwitchReply};
use crate::http_json::bodies::{ListingBody, TransferView};
use crate::http_json::http::{is_temporary, percent_encode};

/// Upper bound of pages of the listing that one lookup reads.
const PAGES_MAX: usize = 10;
/// The marker of an account without transfers.
const START_OF_LISTING: &str = "";

/// Outcome of a lookup in the listing.
pub(crate) enum ReadBackOutcome {
    /// Exactly one candidate.
    Match { transfer_id: String, answer: QueryAnswer },
    /// No candidate.
    NoMatch,
    /// Several candidates: only a person knows which is the payment's.
    Ambiguous { detail: String },
    /// The switch refused the request: 4xx.
    OurFault { detail: String },
    /// No answer.
    NoAnswer { detail: String },
}

impl SwitchReply<ReadBackOutcome> {
    pub(crate) fn into_query_answer(self) -> SwitchReply<QueryAnswer> {
        let (answer, transfer_id) = match self.answer {
            ReadBackOutcome::Match { transfer_id, answer } => (answer, Some(transfer_id)),
            ReadBackOutcome::NoMatch => (QueryAnswer::NotFound, None),
            ReadBackOutcome::Ambiguous { detail } => (QueryAnswer::Ambiguous { detail }, None),
            ReadBackOutcome::OurFault { detail } => (QueryAnswer::OurFault { detail }, None),
            ReadBackOutcome::NoAnswer { detail } => (QueryAnswer::NoAnswer { detail }, None),
        };
        SwitchReply { answer, switch_now: self.switch_now, transfer_id }
    }
}

/// Of a lookup that identified no transfer: the cancel or recall that needs its id is not sent.
impl SwitchReply<QueryAnswer> {
    /// The answer to a cancel that was not sent.
    #[must_use]
    pub fn into_cancel_answer(self) -> SwitchReply<CancelAnswer> {
        let answer = match self.answer {
            QueryAnswer::NotFound => CancelAnswer::NotFound,
            // The query that follows returns the ambiguity.
            QueryAnswer::Ambiguous { .. } => CancelAnswer::CannotCancel,
            QueryAnswer::OurFault { detail } => CancelAnswer::OurFault { detail },
            other => CancelAnswer::NoAnswer { detail: unidentified(other) },
        };
        SwitchReply::new(answer, self.switch_now)
    }

    /// The answer to a recall that was not sent.
    #[must_use]
    pub fn into_recall_answer(self) -> SwitchReply<RecallAnswer> {
        SwitchReply::new(RecallAnswer::Unknown { detail: unidentified(self.answer) }, self.switch_now)
    }
}

/// Why a lookup identified no transfer.
fn unidentified(answer: QueryAnswer) -> String {
    match answer {
        QueryAnswer::Ambiguous { detail }
        | QueryAnswer::OurFault { detail }
        | QueryAnswer::NoAnswer { detail } => detail,
        // The other answers are about a transfer with an id.
        _ => "the transfer was not found in the switch's listing".into(),
    }
}

impl HttpJsonClient {
    /// The newest transfer to an account at a switch without references. Read it while the payment holds the account
    /// lock, and record it before the transfer is sent.
    ///
    /// # Errors
    /// Why the marker is unknown; then the transfer must not be sent.
    pub async fn marker(&self, creditor_account: &str) -> Result<String, String> {
        let (_, mut listing) =
            self.list(creditor_account, "last=1").await.map_err(ReadBackOutcome::into_detail)?;
        // An older marker would make an earlier transfer of the same amount look like ours.
        if listing.transfers.len() > 1 || listing.next.is_some() {
            return Err(
                "the switch lists more than the newest transfer, so which one is the newest is unknown"
                    .into(),
            );
        }
        let newest = listing.transfers.pop().and_then(|transfer| transfer.transfer_id);
        Ok(newest.unwrap_or_else(|| START_OF_LISTING.into()))
    }

    /// Looks the transfer up after its marker. Without a marker the transfer was not sent, or the database lost the marker's commit: then
    /// only a listing without any candidate says something.
    pub(crate) async fn read_back(&self, lookup_key: &LookupKey) -> SwitchReply<ReadBackOutcome> {
        let account = lookup_key.creditor_account.as_str();
        let started = Instant::now();
        let mut candidates: Vec<TransferView> = Vec::new();
        let mut after = lookup_key.marker.clone().unwrap_or_else(|| START_OF_LISTING.into());
        for _ in 0..PAGES_MAX {
            let parameters = match after.as_str() {
                START_OF_LISTING => String::new(),
                id => format!("after={}", percent_encode(id)),
            };
            let (switch_now, page) = match self.list(account, &parameters).await {
                Ok(page) => page,
                Err(outcome) => return SwitchReply::new(outcome, None),
            };
            if page.transfers.iter().any(|transfer| transfer.transfer_id.as_deref() == Some(after.as_str())) {
                let detail =
                    "the switch lists transfers from before the position that it was to list from".into();
                return SwitchReply::new(ReadBackOutcome::NoAnswer { detail }, switch_now);
            }
            candidates.extend(page.transfers.into_iter().filter(|transfer| has_money(transfer, lookup_key)));
            match page.next {
                None => return SwitchReply::new(self.only_candidate(candidates, lookup_key), switch_now),
                Some(next) => after = next,
            }
            if started.elapsed() > self.timeout {
                break;
            }
        }
        let detail =
            "the switch's transfer listing after the recorded marker is too long to read within one attempt"
                .into();
        SwitchReply::new(ReadBackOutcome::NoAnswer { detail }, None)
    }

    fn only_candidate(&self, mut candidates: Vec<TransferView>, lookup_key: &LookupKey) -> ReadBackOutcome {
        if lookup_key.marker.is_none() && !candidates.is_empty() {
            let detail = "no position in the switch's transfer listing is recorded, so a listed transfer of this amount and currency may be an earlier one".into();
            return ReadBackOutcome::Ambiguous { detail };
        }
        if candidates.len() > 1 {
            let detail = format!(
                "the switch lists {} transfers of this amount and currency; the payment's own is ambiguous",
                candidates.len()
            );
            return ReadBackOutcome::Ambiguous { detail };
        }
        let Some(transfer) = candidates.pop() else { return ReadBackOutcome::NoMatch };
        match transfer.transfer_id.clone() {
            Some(transfer_id) => ReadBackOutcome::Match {
                transfer_id,
                answer: self.query_answer(transfer, ReportedName::Implied(&lookup_key.name)),
            },
            None => ReadBackOutcome::NoAnswer {
                detail: "the switch lists a transfer without a transfer_id".into(),
            },
        }
    }

    async fn list(
        &self,
        creditor_account: &str,
        parameters: &str,
    ) -> Result<(Option<Timestamp>, ListingBody), ReadBackOutcome> {
        let path =
            format!("/v1/transfers?creditor_account={}&{parameters}", percent_encode(creditor_account));
        let path = path.trim_end_matches('&');
        let response = match self.call("list transfers", Method::GET, path, None, None).await {
            Ok(response) => response,
            Err(detail) => return Err(ReadBackOutcome::NoAnswer { detail }),
        };
        match response.status {
            StatusCode::OK => match response.json::<ListingBody>() {
                Ok(page) if page.transfers.iter().all(|transfer| is_complete(transfer, creditor_account)) => {
                    Ok((response.switch_now, page))
                }
                Ok(_) => Err(ReadBackOutcome::NoAnswer {
                    detail: "the switch lists an incomplete transfer, or one to another account".into(),
                }),
                Err(detail) => Err(ReadBackOutcome::NoAnswer { detail }),
            },
            status if is_temporary(status) || status.is_success() => {
                Err(ReadBackOutcome::NoAnswer { detail: response.excerpt() })
            }
            _ => Err(ReadBackOutcome::OurFault { detail: response.excerpt() }),
        }
    }
}

impl ReadBackOutcome {
    fn into_detail(self) -> String {
        match self {
            Self::Ambiguous { detail } | Self::OurFault { detail } | Self::NoAnswer { detail } => detail,
            Self::Match { .. } | Self::NoMatch => String::new(),
        }
    }
}

/// Whether a listed transfer has all that a lookup compares. One that has not could be ours.
fn is_complete(transfer: &TransferView, creditor_account: &str) -> bool {
    transfer.transfer_id.as_deref().is_some_and(|id| !id.is_empty())
        && transfer.creditor_account.as_deref() == Some(creditor_account)
        && transfer.amount_minor.is_some()
        && transfer.currency.is_some()
}

fn has_money(transfer: &TransferView, lookup_key: &LookupKey) -> bool {
    transfer.amount_minor == Some(lookup_key.money.amount_minor())
        && transfer.currency.as_deref() == Some(lookup_key.money.currency().code())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recall_or_a_cancel_that_was_not_sent_says_why() {
        let unlisted = "the transfer was not found in the switch's listing".to_owned();
        let reply = |answer: QueryAnswer| SwitchReply::new(answer, None);
        for (looked_up, detail) in [
            (QueryAnswer::Ambiguous { detail: "two".into() }, "two".to_owned()),
            (QueryAnswer::OurFault { detail: "403".into() }, "403".to_owned()),
            (QueryAnswer::NoAnswer { detail: "503".into() }, "503".to_owned()),
            (QueryAnswer::NotFound, unlisted.clone()),
            (QueryAnswer::Pending, unlisted.clone()),
        ] {
            let answer = reply(looked_up).into_recall_answer().answer;
            assert_eq!(answer, RecallAnswer::Unknown { detail });
        }
        let answer = reply(QueryAnswer::NoAnswer { detail: "503".into() }).into_cancel_answer().answer;
        assert_eq!(answer, CancelAnswer::NoAnswer { detail: "503".into() });
        let answer = reply(QueryAnswer::Pending).into_cancel_answer().answer;
        assert_eq!(answer, CancelAnswer::NoAnswer { detail: unlisted });
    }
}
