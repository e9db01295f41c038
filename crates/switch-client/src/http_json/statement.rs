//! The switch's statement: every finished transfer, page by page, in the order in which the transfers ended.
//!
//! Any position that was read before a transfer was sent is a valid start for its lookup. The client keeps the positions
//! of recent lookups in memory; a new process starts at a position on record, the lookup key's marker, and reads the
//! statement from its beginning only if none is.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;
use payment_protocol::ids::ReturnId;
use payment_protocol::report::{LineStatus, StatementLine};
use payment_protocol::submit::QueryAnswer;
use reqwest::{Method, StatusCode};

use super::HttpJsonClient;
use super::address::ReportedName;
use crate::client::{LookupKey, PAGE_ENTRIES_MAX, STATEMENT_NOT_READ_TO_END, StatementPage, SwitchReply};
use crate::http_json::bodies::{StatementBody, StatementEntry, TransferStatus, TransferView};
use crate::http_json::http::{excerpt, is_temporary, percent_encode};

/// Upper bound of pages that one call reads.
const PAGES_MAX: usize = 20;
/// Upper bound of lookups with a position in memory. Beyond it, lookups start at the positions that the payments
/// recorded.
const POSITIONS_MAX: usize = 10_000;

/// An incomplete entry is an error: reconciliation must not pass over it.
fn statement_line(entry: StatementEntry) -> Result<StatementLine, String> {
    let StatementEntry { cursor, transfer } = entry;
    let lacks = |field: &str| format!("statement entry {cursor} has no {field}");
    Ok(StatementLine {
        transfer_id: transfer.transfer_id.ok_or_else(|| lacks("transfer_id"))?,
        reference: transfer.reference,
        status: match transfer.status {
            TransferStatus::Settled => LineStatus::Settled,
            TransferStatus::Rejected => LineStatus::Rejected,
            TransferStatus::Cancelled => LineStatus::Cancelled,
            TransferStatus::Returned => LineStatus::Returned,
            TransferStatus::Pending => return Err(lacks("final status: it is PENDING")),
        },
        return_id: transfer
            .return_id
            .map(ReturnId::new)
            .transpose()
            .map_err(|error| format!("statement entry {cursor}: {error}"))?,
        amount_minor: transfer.amount_minor.ok_or_else(|| lacks("amount_minor"))?,
        currency: transfer.currency.ok_or_else(|| lacks("currency"))?,
        finished_at: transfer.finished_at.ok_or_else(|| lacks("finished_at"))?,
        cursor,
    })
}

/// Checks that the reader can continue after a page: each position occurs once, and only the last page is empty.
/// Otherwise the reader would ask for the same pages without end.
fn check_positions(page: &StatementBody, after: Option<&str>) -> Result<(), String> {
    if page.entries.len() > PAGE_ENTRIES_MAX {
        return Err(format!("the statement page has more than {PAGE_ENTRIES_MAX} entries"));
    }
    if page.entries.is_empty() && page.next.is_some() {
        return Err("the statement page is empty and is not the last one".into());
    }
    let mut positions: HashSet<&str> = after.into_iter().collect();
    match page.entries.iter().find(|entry| !positions.insert(&entry.cursor)) {
        Some(entry) => Err(format!("the statement repeats the position {}", excerpt(&entry.cursor))),
        None => Ok(()),
    }
}

/// Positions up to which the statement was read.
#[derive(Debug, Default)]
pub(crate) struct StatementPositions(Mutex<Positions>);

#[derive(Debug, Default)]
struct Positions {
    /// The newest position that a lookup has reached.
    newest: Option<String>,
    /// Whether it was the end of the statement at that time.
    is_end: bool,
    /// By reference: the position up to which the statement has no entry for it.
    by_reference: HashMap<String, String>,
}

/// A page that could not be read.
enum PageError {
    OurFault(String),
    NoAnswer(String),
}

impl HttpJsonClient {
    /// A position from which to look up any transfer that is sent after this call. `None` if no lookup has reached a
    /// position since the client was created: the statement is not read from its beginning to find one, and the lookup
    /// starts at a position that the ledger has on record from before the transfer was sent.
    pub async fn statement_position(&self) -> Option<String> {
        let (mut position, is_end) = {
            let positions = self.statement_positions.lock();
            (positions.newest.clone()?, positions.is_end)
        };
        if is_end {
            return Some(position);
        }
        // The newest position may be far from the end. Any position is valid, so an error only ends the reading.
        let started = Instant::now();
        for _ in 0..PAGES_MAX {
            let Ok((_, page)) = self.read_page(Some(&position), PAGE_ENTRIES_MAX).await else { break };
            position = page.entries.last().map_or(position, |entry| entry.cursor.clone());
            self.statement_positions.record(&position, page.next.is_none());
            if page.next.is_none() || started.elapsed() > self.timeout {
                break;
            }
        }
        Some(position)
    }

    /// Looks a transfer up in the statement. `NotListed` only means that the transfer has not ended yet, unless the statement says
    /// that it is complete.
    pub async fn statement(&self, lookup_key: &LookupKey) -> SwitchReply<QueryAnswer> {
        let reference = lookup_key.name.on_wire();
        let mut position = self
            .statement_positions
            .lock()
            .by_reference
            .get(reference)
            .cloned()
            .or_else(|| lookup_key.marker.clone());
        let started = Instant::now();
        let mut found: Option<(QueryAnswer, Option<String>)> = None;
        // An entry without a reference may be ours: the absence of ours is no proof then, and the next lookup reads the entry again.
        let mut has_unnamed = false;
        for _ in 0..PAGES_MAX {
            let (switch_now, page) = match self.read_page(position.as_deref(), PAGE_ENTRIES_MAX).await {
                Ok(page) => page,
                Err(PageError::OurFault(detail)) => {
                    return SwitchReply::new(QueryAnswer::OurFault { detail }, None);
                }
                Err(PageError::NoAnswer(detail)) => {
                    return SwitchReply::new(QueryAnswer::NoAnswer { detail }, None);
                }
            };
            let last = page.entries.last().map(|entry| entry.cursor.clone());
            has_unnamed |=
                self.has_references && page.entries.iter().any(|entry| may_be_ours(entry, lookup_key));
            // A return has an entry after its settlement, perhaps on a later page.
            for entry in page.entries.into_iter().filter(|entry| is_match(entry, lookup_key)) {
                let id = entry.transfer.transfer_id.clone();
                let answer = self.query_answer(entry.transfer, ReportedName::Implied(&lookup_key.name));
                found = Some(match found {
                    None => (answer, id),
                    Some((first, first_id)) => (later_answer(first, answer), first_id),
                });
            }
            position = last.or(position);
            if let Some(position) = &position {
                self.statement_positions.record(position, page.next.is_none());
                if found.is_none() && !has_unnamed {
                    self.statement_positions.record_lookup(reference, position);
                }
            }
            if page.next.is_none() {
                let not_listed = QueryAnswer::NotListed {
                    complete_until_ms: page
                        .complete_until
                        .filter(|_| !has_unnamed)
                        .map(Timestamp::as_millisecond),
                };
                let (answer, id) = found.unwrap_or((not_listed, None));
                return SwitchReply::new(answer, switch_now).with_transfer_id(id);
            }
            if started.elapsed() > self.timeout {
                break;
            }
        }
        let unread = QueryAnswer::NoAnswer { detail: STATEMENT_NOT_READ_TO_END.into() };
        let (answer, id) = found.unwrap_or((unread, None));
        SwitchReply::new(answer, None).with_transfer_id(id)
    }

    /// The page of the statement after a position, with up to [`PAGE_ENTRIES_MAX`] entries. `None` is the start.
    ///
    /// # Errors
    /// The switch's answer, why there was none, an incomplete entry, or a position after which the reader could not
    /// continue.
    pub async fn statement_page(&self, after: Option<&str>) -> Result<StatementPage, String> {
        let page = match self.read_page(after, PAGE_ENTRIES_MAX).await {
            Ok((_, page)) => page,
            Err(PageError::OurFault(detail) | PageError::NoAnswer(detail)) => return Err(detail),
        };
        check_positions(&page, after)?;
        let lines = page.entries.into_iter().map(statement_line).collect::<Result<_, _>>()?;
        Ok(StatementPage { lines, is_last: page.next.is_none() })
    }

    async fn read_page(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<(Option<Timestamp>, StatementBody), PageError> {
        let path = match after {
            Some(cursor) => format!("/v1/statement?limit={limit}&after={}", percent_encode(cursor)),
            None => format!("/v1/statement?limit={limit}"),
        };
        let response =
            self.call("read statement", Method::GET, &path, None, None).await.map_err(PageError::NoAnswer)?;
        match response.status {
            StatusCode::OK => {
                response.json().map(|page| (response.switch_now, page)).map_err(PageError::NoAnswer)
            }
            status if is_temporary(status) || status.is_success() => {
                Err(PageError::NoAnswer(response.excerpt()))
            }
            _ => Err(PageError::OurFault(response.excerpt())),
        }
    }
}

/// Whether an entry is about the looked-up transfer: by reference; an entry of a switch without references is matched
/// by the switch's own id.
fn is_match(entry: &StatementEntry, lookup_key: &LookupKey) -> bool {
    // A return of its own says that the transfer settled, as another entry does; it is booked by itself.
    if entry.transfer.return_id.is_some() {
        return false;
    }
    match entry.transfer.reference.as_deref() {
        Some(reference) => reference == lookup_key.name.on_wire(),
        None => entry.transfer.transfer_id.is_some() && entry.transfer.transfer_id == lookup_key.transfer_id,
    }
}

/// Whether an entry that names no transfer of ours could be the looked-up one's.
fn may_be_ours(entry: &StatementEntry, lookup_key: &LookupKey) -> bool {
    let TransferView { reference, transfer_id, amount_minor, currency, .. } = &entry.transfer;
    let is_another = lookup_key.transfer_id.is_some() && transfer_id.is_some()
        || amount_minor.is_some_and(|minor| minor != lookup_key.money.amount_minor())
        || currency.as_deref().is_some_and(|code| code != lookup_key.money.currency().code());
    reference.is_none() && !is_another
}

/// The answer of two entries about one transfer: a transfer ends once, and a returned one has a second entry.
fn later_answer(first: QueryAnswer, second: QueryAnswer) -> QueryAnswer {
    match (first, second) {
        (QueryAnswer::Settled(settled), QueryAnswer::Returned(returned))
        | (QueryAnswer::Returned(returned), QueryAnswer::Settled(settled))
            if settled == returned =>
        {
            QueryAnswer::Returned(returned)
        }
        (first @ QueryAnswer::Void { .. }, QueryAnswer::Void { .. }) => first,
        (first, second) if first == second => first,
        _ => QueryAnswer::NoAnswer {
            detail: "the statement has contradictory entries for the transfer".into(),
        },
    }
}

impl StatementPositions {
    /// Records a position that was reached, and whether it was the end of the statement.
    fn record(&self, position: &str, is_end: bool) {
        let mut positions = self.lock();
        // Cursors have no order that the client knows: a position replaces the end only if it is the end itself.
        if is_end || !positions.is_end {
            positions.newest = Some(position.to_owned());
            positions.is_end = is_end;
        }
    }

    /// Records that the statement has no entry for `reference` up to `position`.
    fn record_lookup(&self, reference: &str, position: &str) {
        let mut positions = self.lock();
        if positions.by_reference.len() >= POSITIONS_MAX && !positions.by_reference.contains_key(reference) {
            positions.by_reference.clear();
        }
        positions.by_reference.insert(reference.to_owned(), position.to_owned());
    }

    fn lock(&self) -> MutexGuard<'_, Positions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use payment_protocol::ids::SwitchName;
    use payment_protocol::reject::Reject;
    use payment_protocol::report::SettledReport;

    fn report(amount_minor: i64) -> SettledReport {
        let switch = SwitchName::new("mock").unwrap();
        SettledReport { switch, reference: "tx:submit".into(), amount_minor, currency: "EUR".into() }
    }

    #[test]
    fn two_entries_of_a_transfer_are_one_answer_or_a_contradiction() {
        let (settled, returned) = (QueryAnswer::Settled(report(500)), QueryAnswer::Returned(report(500)));
        let void = |reason: &str| QueryAnswer::Void { reject: Reject::uncoded(reason) };
        for (first, second) in [(settled.clone(), returned.clone()), (returned.clone(), settled.clone())] {
            assert_eq!(later_answer(first, second), returned);
        }
        assert_eq!(later_answer(settled.clone(), settled.clone()), settled);
        // The words of a reject do not make another end of it.
        assert_eq!(later_answer(void("closed account"), void("account closed")), void("closed account"));
        let contradictory = [
            (settled.clone(), QueryAnswer::Returned(report(501))),
            (QueryAnswer::Returned(report(501)), settled.clone()),
            (settled.clone(), QueryAnswer::Settled(report(501))),
            (settled, void("closed account")),
        ];
        for (first, second) in contradictory {
            let answer = later_answer(first, second);
            assert!(matches!(answer, QueryAnswer::NoAnswer { .. }), "{answer:?}");
        }
    }

    #[test]
    fn the_positions_of_lookups_are_bounded() {
        let positions = StatementPositions::default();
        let known = || positions.lock().by_reference.len();
        for n in 0..POSITIONS_MAX {
            positions.record_lookup(&n.to_string(), "1");
        }
        assert_eq!(known(), POSITIONS_MAX);
        // A known reference replaces its position; beyond the bound, a new one begins again.
        positions.record_lookup("0", "2");
        assert_eq!((known(), positions.lock().by_reference["0"].as_str()), (POSITIONS_MAX, "2"));
        positions.record_lookup("new", "3");
        assert_eq!((known(), positions.lock().by_reference["new"].as_str()), (1, "3"));
    }
}
