//! The switch's statement: every end of a transfer, page by page, in the order in which the ends came.
//!
//! Any place in it that was seen before a transfer was sent is a right place to look for that transfer
//! from. How far it was read is kept in memory, so that no look begins anew; a process that starts
//! begins where the payment's own record says.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use payment_protocol::report::{LineStatus, StatementLine};
use payment_protocol::submit::QueryAnswer;
use reqwest::{Method, StatusCode};

use crate::SwitchClient;
use crate::client::SwitchReply;
use crate::http::{escaped, may_pass};
use crate::read_back::LookupKey;
use crate::wire::{StatementEntry, StatementPage, TransferStatus};

/// Most pages that are read for one answer.
const PAGES_MAX: usize = 20;
/// Entries of one page where one transfer is looked for.
const PAGE: usize = 100;
/// Entries of one page where the whole statement is read.
pub const WHOLE_PAGE: usize = 1_000;
/// Transfers whose place is remembered. Beyond it the looks begin where the payments' records say.
const PLACES_MAX: usize = 10_000;

/// What is said of a statement that was not read to its end in one look. The next look reads on.
pub const NOT_AT_ITS_END: &str = "the statement is long and is read on with the next look";

/// A page of the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its lines, in their order.
    pub lines: Vec<StatementLine>,
    /// Whether nothing comes after it yet.
    pub is_last: bool,
}

/// A line that lacks what a book must have cannot be passed over: the statement stands still there.
fn line(entry: StatementEntry) -> Result<StatementLine, String> {
    let StatementEntry { cursor, transfer } = entry;
    let lacks = |what: &str| format!("the statement's entry {cursor} has no {what}");
    Ok(StatementLine {
        transfer_id: transfer.transfer_id.ok_or_else(|| lacks("transfer_id"))?,
        reference: transfer.reference,
        status: match transfer.status {
            TransferStatus::Settled => LineStatus::Settled,
            TransferStatus::Rejected => LineStatus::Rejected,
            TransferStatus::Cancelled => LineStatus::Cancelled,
            TransferStatus::Recalled => LineStatus::Recalled,
            TransferStatus::Pending => return Err(lacks("end: it is pending")),
        },
        amount_minor: transfer.amount_minor.ok_or_else(|| lacks("amount_minor"))?,
        currency: transfer.currency.ok_or_else(|| lacks("currency"))?,
        finished_at: transfer.finished_at.ok_or_else(|| lacks("finished_at"))?,
        cursor,
    })
}

/// How far the statement was read.
#[derive(Debug, Default)]
pub(crate) struct Positions(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    /// The furthest that was read for anybody.
    end: Option<String>,
    /// By reference: behind what was looked through for it.
    of: HashMap<String, String>,
}

/// Why a page was not read.
enum Unread {
    OurFault(String),
    NoAnswer(String),
}

impl SwitchClient {
    /// A place in the statement to look from for whatever is sent after this call. None is the
    /// beginning.
    pub async fn statement_position(&self) -> Option<String> {
        let known = self.positions.lock().end.clone();
        if known.is_some() {
            return known;
        }
        // A process that has just started reads on as far as it gets; any place is a right one.
        let mut place = None;
        let began = Instant::now();
        for _ in 0..PAGES_MAX {
            let Ok((_, page)) = self.page(place.as_deref(), PAGE).await else { break };
            place = page.entries.last().map(|entry| entry.cursor.clone()).or(place);
            if page.next.is_none() || began.elapsed() > self.timeout {
                break;
            }
        }
        self.positions.lock().end.clone_from(&place);
        place
    }

    /// Looks for a transfer in the statement. Not found is no more than not final yet.
    pub async fn statement(&self, lookup_key: &LookupKey) -> SwitchReply<QueryAnswer> {
        let ours = lookup_key.reference.as_str();
        let mut place = self.positions.lock().of.get(ours).cloned().or_else(|| lookup_key.marker.clone());
        let began = Instant::now();
        for _ in 0..PAGES_MAX {
            let (switch_now, page) = match self.page(place.as_deref(), PAGE).await {
                Ok(read) => read,
                Err(Unread::OurFault(detail)) => {
                    return SwitchReply::new(QueryAnswer::OurFault { detail }, None);
                }
                Err(Unread::NoAnswer(detail)) => {
                    return SwitchReply::new(QueryAnswer::NoAnswer { detail }, None);
                }
            };
            let last = page.entries.last().map(|entry| entry.cursor.clone());
            let is_it = |reference: Option<&str>, id: Option<&str>| match reference {
                Some(reference) => reference == ours,
                // A switch without references names its own id.
                None => id.is_some() && id == lookup_key.transfer_id.as_deref(),
            };
            let found = page.entries.into_iter().find(|entry| {
                is_it(entry.transfer.reference.as_deref(), entry.transfer.transfer_id.as_deref())
            });
            if let Some(entry) = found {
                let id = entry.transfer.transfer_id.clone();
                let answer = self.query_answer(entry.transfer, Some(&lookup_key.reference));
                return SwitchReply::new(answer, switch_now).of(id);
            }
            place = last.or(place);
            self.positions.read_for(ours, place.as_deref(), page.next.is_none());
            if page.next.is_none() {
                return SwitchReply::new(QueryAnswer::NotFound, switch_now);
            }
            if began.elapsed() > self.timeout {
                break;
            }
        }
        SwitchReply::new(QueryAnswer::NoAnswer { detail: NOT_AT_ITS_END.into() }, None)
    }

    /// The page of the statement after a place, none for its beginning, with up to [`WHOLE_PAGE`] entries.
    ///
    /// # Errors
    /// What the switch answered, or that it did not: nothing is known of the page.
    pub async fn statement_page(&self, after: Option<&str>) -> Result<Page, String> {
        let page = match self.page(after, WHOLE_PAGE).await {
            Ok((_, page)) => page,
            Err(Unread::OurFault(detail) | Unread::NoAnswer(detail)) => return Err(detail),
        };
        let lines = page.entries.into_iter().map(line).collect::<Result<_, _>>()?;
        Ok(Page { lines, is_last: page.next.is_none() })
    }

    async fn page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Option<Timestamp>, StatementPage), Unread> {
        let path = match after {
            Some(cursor) => format!("/v1/statement?limit={limit}&after={}", escaped(cursor)),
            None => format!("/v1/statement?limit={limit}"),
        };
        let reply = self.call(Method::GET, &path, None, None).await.map_err(Unread::NoAnswer)?;
        match reply.status {
            StatusCode::OK => reply.read().map(|page| (reply.switch_now, page)).map_err(Unread::NoAnswer),
            status if may_pass(status) || status.is_success() => Err(Unread::NoAnswer(reply.excerpt())),
            _ => Err(Unread::OurFault(reply.excerpt())),
        }
    }
}

impl Positions {
    /// Notes that `reference` is in nothing up to `place`, and whether that was the end.
    fn read_for(&self, reference: &str, place: Option<&str>, to_the_end: bool) {
        let Some(place) = place else { return };
        let mut places = self.lock();
        if to_the_end {
            places.end = Some(place.to_owned());
        }
        if places.of.len() >= PLACES_MAX && !places.of.contains_key(reference) {
            places.of.clear();
        }
        places.of.insert(reference.to_owned(), place.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
