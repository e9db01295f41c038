//! A switch without references: what was sent is found again in its list of transfers to that account,
//! behind the newest one that was there before (S1.8).
//!
//! Whoever sends holds the account for itself, so what came after the marker and is of this amount and
//! currency can only be the one transfer. Where two could be it, that is no answer: never a guess.

use std::time::Instant;

use jiff::Timestamp;
use payment_protocol::keys::Reference;
use payment_protocol::money::Money;
use payment_protocol::submit::QueryAnswer;
use reqwest::{Method, StatusCode};

use crate::SwitchClient;
use crate::client::SwitchReply;
use crate::http::{escaped, may_pass};
use crate::wire::{ListingPage, TransferView};

/// Most pages of the listing that are read for one answer.
const PAGES_MAX: usize = 10;
/// The marker of an account to which nothing had been sent.
const FROM_THE_BEGINNING: &str = "";

/// A transfer that was sent without a reference, or is looked for in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupKey {
    /// What we know it by; what is found is reported under it.
    pub reference: Reference,
    /// Where the switch's book stood before it was sent: the newest transfer to the account
    /// ([`SwitchClient::marker`]), or a place in the statement
    /// ([`SwitchClient::statement_position`]). None when none was taken; read back means then that
    /// nothing went out.
    pub marker: Option<String>,
    /// The switch's own id, once it is known.
    pub transfer_id: Option<String>,
    /// The account at the destination bank.
    pub creditor_account: String,
    /// How much.
    pub money: Money,
}

/// What reading back brought.
pub(crate) enum Found {
    /// The one transfer that can be it.
    One {
        transfer_id: String,
        answer: QueryAnswer,
    },
    /// None that could be it.
    Nothing,
    OurFault {
        detail: String,
    },
    /// No answer, or more than one that could be it.
    NoAnswer {
        detail: String,
    },
}

impl SwitchReply<Found> {
    /// As the answer to a query.
    pub(crate) fn into_query(self) -> SwitchReply<QueryAnswer> {
        let (answer, transfer_id) = match self.answer {
            Found::One { transfer_id, answer } => (answer, Some(transfer_id)),
            Found::Nothing => (QueryAnswer::NotFound, None),
            Found::OurFault { detail } => (QueryAnswer::OurFault { detail }, None),
            Found::NoAnswer { detail } => (QueryAnswer::NoAnswer { detail }, None),
        };
        SwitchReply { answer, switch_now: self.switch_now, transfer_id }
    }
}

impl SwitchClient {
    /// The newest transfer to an account at a switch without references, to read back from. To be taken
    /// when nobody else may send to the account any more, and put on record before the transfer is sent.
    ///
    /// # Errors
    /// A text that says why it cannot be known; nothing may be sent then.
    pub async fn marker(&self, creditor_account: &str) -> Result<String, String> {
        let (_, newest) = self.listed(creditor_account, "last=1").await.map_err(Found::into_detail)?;
        let newest = newest.transfers.into_iter().next_back().and_then(|transfer| transfer.transfer_id);
        Ok(newest.unwrap_or_else(|| FROM_THE_BEGINNING.into()))
    }

    /// Looks for the transfer behind the marker.
    pub(crate) async fn read_back(&self, lookup_key: &LookupKey) -> SwitchReply<Found> {
        let account = lookup_key.creditor_account.as_str();
        let Some(marker) = &lookup_key.marker else {
            // Asked all the same, for the switch's clock.
            return match self.listed(account, "last=1").await {
                Ok((switch_now, _)) => SwitchReply::new(Found::Nothing, switch_now),
                Err(none) => SwitchReply::new(none, None),
            };
        };
        let began = Instant::now();
        let mut candidates: Vec<TransferView> = Vec::new();
        let mut after = marker.clone();
        for _ in 0..PAGES_MAX {
            let from = match after.as_str() {
                FROM_THE_BEGINNING => String::new(),
                id => format!("after={}", escaped(id)),
            };
            let (switch_now, page) = match self.listed(account, &from).await {
                Ok(read) => read,
                Err(none) => return SwitchReply::new(none, None),
            };
            candidates.extend(page.transfers.into_iter().filter(|transfer| is_of(transfer, lookup_key)));
            match page.next {
                None => return SwitchReply::new(self.the_one(candidates, lookup_key), switch_now),
                Some(next) => after = next,
            }
            if began.elapsed() > self.timeout {
                break;
            }
        }
        let detail = "too many transfers to the account to read back".into();
        SwitchReply::new(Found::NoAnswer { detail }, None)
    }

    fn the_one(&self, mut candidates: Vec<TransferView>, lookup_key: &LookupKey) -> Found {
        if candidates.len() > 1 {
            let detail = format!("{} transfers could be it, and none is certainly it", candidates.len());
            return Found::NoAnswer { detail };
        }
        let Some(transfer) = candidates.pop() else { return Found::Nothing };
        match transfer.transfer_id.clone() {
            Some(transfer_id) => {
                Found::One { transfer_id, answer: self.query_answer(transfer, Some(&lookup_key.reference)) }
            }
            None => Found::NoAnswer { detail: "a listed transfer without an id".into() },
        }
    }

    async fn listed(
        &self,
        creditor_account: &str,
        which: &str,
    ) -> Result<(Option<Timestamp>, ListingPage), Found> {
        let path = format!("/v1/transfers?creditor_account={}&{which}", escaped(creditor_account));
        let path = path.trim_end_matches('&');
        let reply = match self.call(Method::GET, path, None, None).await {
            Ok(reply) => reply,
            Err(detail) => return Err(Found::NoAnswer { detail }),
        };
        match reply.status {
            StatusCode::OK => match reply.read() {
                Ok(page) => Ok((reply.switch_now, page)),
                Err(detail) => Err(Found::NoAnswer { detail }),
            },
            status if may_pass(status) || status.is_success() => {
                Err(Found::NoAnswer { detail: reply.excerpt() })
            }
            _ => Err(Found::OurFault { detail: reply.excerpt() }),
        }
    }
}

impl Found {
    fn into_detail(self) -> String {
        match self {
            Self::OurFault { detail } | Self::NoAnswer { detail } => detail,
            Self::One { .. } | Self::Nothing => String::new(),
        }
    }
}

fn is_of(transfer: &TransferView, lookup_key: &LookupKey) -> bool {
    transfer.amount_minor == Some(lookup_key.money.amount_minor())
        && transfer.currency.as_deref() == Some(lookup_key.money.currency().code())
}
