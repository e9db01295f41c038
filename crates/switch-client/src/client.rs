//! The seam between the protocol and a kind of switch: every call that a step makes, in the protocol's own terms. A kind translates its
//! wire format into these answers; nothing above it knows the format.
//!
//! An answer is definite only if it has the documented form and names our transfer. Any other is unknown, no answer or our fault; a
//! client never turns it into a failure, and never repeats a call by itself: the caller decides.
//!
//! A message carries the id by which the rail knows the transfer; the protocol knows our reference. The client exchanges the two, so
//! that a report names our reference exactly if the message named our transfer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::CancelAnswer;
use payment_protocol::ids::SwitchName;
use payment_protocol::keys::{CompensationKey, StepKey};
use payment_protocol::money::Money;
use payment_protocol::rail_id::TransferName;
use payment_protocol::recall::RecallAnswer;
use payment_protocol::report::{Incoming, StatementLine};
use payment_protocol::submit::{QueryAnswer, SendAnswer};

use crate::config::SwitchOptions;
use crate::http_json::{HttpJsonClient, HttpJsonReports};

/// Upper bound of entries of a statement page.
pub const PAGE_ENTRIES_MAX: usize = 1_000;
/// Detail of the answer if one call did not reach the end of the statement. The next call continues.
pub const STATEMENT_NOT_READ_TO_END: &str =
    "the statement was not read to its end; the next attempt continues from there";

/// The client of one switch, whatever its kind. Each request has the profile's attempt timeout.
#[async_trait]
pub trait SwitchClient: std::fmt::Debug + Send + Sync {
    /// Sends a transfer, and records in the circuit breaker whether the switch answered.
    async fn send(&self, order: &TransferOrder) -> SwitchReply<SendAnswer>;

    /// Sends a recorded transfer again, byte for byte, and reads how it stands: for a switch whose only query is the repeated submit.
    async fn repeat(&self, order: &TransferOrder) -> SwitchReply<QueryAnswer>;

    /// Queries a transfer. At a switch without references an ambiguous lookup is no answer.
    async fn query(&self, transfer: TransferRef<'_>) -> SwitchReply<QueryAnswer>;

    /// Cancels a transfer under cancel's own key. At a switch without references it first looks the transfer up.
    async fn cancel(&self, transfer: TransferRef<'_>, key: &CompensationKey) -> SwitchReply<CancelAnswer>;

    /// Recalls a transfer under recall's own key. At a switch without references it first looks the transfer up.
    async fn recall(&self, transfer: TransferRef<'_>, key: &StepKey) -> SwitchReply<RecallAnswer>;

    /// Looks a transfer up in the statement. `NotListed` only means that the transfer has not ended yet, unless the statement says
    /// that it is complete.
    async fn statement(&self, lookup_key: &LookupKey) -> SwitchReply<QueryAnswer>;

    /// The page of the statement after a position, with up to [`PAGE_ENTRIES_MAX`] entries. `None` is the start.
    ///
    /// # Errors
    /// The switch's answer, why there was none, an incomplete entry, or a position after which the reader could not continue.
    async fn statement_page(&self, after: Option<&str>) -> Result<StatementPage, String>;

    /// A position from which to look up any transfer that is sent after this call; `None` if no lookup has reached one yet.
    async fn statement_position(&self) -> Option<String>;

    /// The newest transfer to an account, as the marker for a later lookup at a switch without references.
    ///
    /// # Errors
    /// Why the listing could not be read.
    async fn marker(&self, creditor_account: &str) -> Result<String, String>;

    /// The switch's time now.
    ///
    /// # Errors
    /// Why the switch's time is unknown.
    async fn switch_now(&self) -> Result<Timestamp, String>;

    /// Whether a submit may be sent now: the circuit permits it and the switch asked for no pause. Check before an attempt is recorded.
    fn permits_submit(&self) -> bool;

    /// The rest of the pause that the switch asked for, at most the profile's `retry_interval_max_ms`; `None` without one.
    fn retry_after(&self) -> Option<Duration>;
}

/// Reads the reports that a switch sends by itself, after their signature was verified.
pub trait SwitchReports: std::fmt::Debug + Send + Sync {
    /// The report of `switch` in a body.
    ///
    /// # Errors
    /// Why the body is no report that the service knows.
    fn read(&self, switch: &SwitchName, body: &[u8]) -> Result<Incoming, String>;
}

payment_protocol::state::text_enum!(
    /// The kind of a switch: the format in which it talks.
    SwitchKind {
        /// JSON over HTTP, as crates/mock-switch/README.md describes it.
        HttpJson = "http_json",
    }
);

impl SwitchKind {
    /// A client for a switch of this kind.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn connect(
        self,
        options: &SwitchOptions,
        profile: &SwitchProfile,
    ) -> Result<Arc<dyn SwitchClient>, ClientError> {
        Ok(match self {
            Self::HttpJson => Arc::new(HttpJsonClient::new(options, profile)?),
        })
    }

    /// The reader of the reports of a switch of this kind.
    #[must_use]
    pub fn reports(self) -> &'static dyn SwitchReports {
        match self {
            Self::HttpJson => &HttpJsonReports,
        }
    }
}

/// A transfer to send; the same on every attempt.
#[derive(Clone, Debug)]
pub struct TransferOrder {
    /// Identifies the transfer at the switch.
    pub name: TransferName,
    /// The amount and currency.
    pub money: Money,
    /// The account at the destination bank.
    pub creditor_account: String,
    /// The customer's own id.
    pub end_to_end_id: Option<String>,
    /// The submit deadline on the switch's clock; `None` if the payment's profile does not honour deadlines.
    pub deadline: Option<Timestamp>,
}

/// The transfer that a call is about.
#[derive(Clone, Copy, Debug)]
pub enum TransferRef<'a> {
    /// A transfer by our reference, or the id by which its rail knows it.
    Name(&'a TransferName),
    /// At a switch without references: by the switch's own id or, if that is unknown, by lookup in the listing.
    LookupKey(&'a LookupKey),
}

/// A reply of the switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchReply<A> {
    /// The switch's answer; a missing response is an answer of `A` too.
    pub answer: A,
    /// Its `Date` header; `None` without a response or without a readable header.
    pub switch_now: Option<Timestamp>,
    /// The switch's own id of the transfer, if the answer names it.
    pub transfer_id: Option<String>,
}

/// Identifies a transfer without its reference: in the listing of a switch without references, or in a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupKey {
    /// How the transfer is called; a match is reported under our reference.
    pub name: TransferName,
    /// Position before the transfer was sent: the newest transfer to the account ([`SwitchClient::marker`]), or a
    /// position in the statement ([`SwitchClient::statement_position`]). `None` if none is recorded: nothing was sent, or the database
    /// lost its commit.
    pub marker: Option<String>,
    /// The switch's own id, once it is known.
    pub transfer_id: Option<String>,
    /// The account at the destination bank.
    pub creditor_account: String,
    /// The amount and currency.
    pub money: Money,
}

/// A page of the statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementPage {
    /// Its lines, in the statement's order.
    pub lines: Vec<StatementLine>,
    /// Whether the statement has no further entries yet.
    pub is_last: bool,
}

impl<A> SwitchReply<A> {
    /// An answer that names no transfer, at a time of the switch.
    #[must_use]
    pub fn new(answer: A, switch_now: Option<Timestamp>) -> Self {
        Self { answer, switch_now, transfer_id: None }
    }

    pub(crate) fn with_transfer_id(mut self, transfer_id: Option<String>) -> Self {
        self.transfer_id = transfer_id;
        self
    }
}

/// The HTTP client could not be built.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client for switch {switch} could not be built; check the section [switches.{switch}]")]
pub struct ClientError {
    pub(crate) switch: SwitchName,
    #[source]
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}
