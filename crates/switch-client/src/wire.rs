//! The switch's HTTP interface: bodies as they go over the wire.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Body of `POST /v1/transfers`.
#[derive(Debug, Serialize)]
pub(crate) struct TransferBody<'a> {
    pub(crate) reference: &'a str,
    pub(crate) amount_minor: i64,
    pub(crate) currency: &'a str,
    pub(crate) creditor_account: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end_to_end_id: Option<&'a str>,
    /// RFC 3339, on the switch's clock. Only sent to a switch that honours it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) deadline: Option<String>,
}

/// What a transfer looks like, in answers to submit, query and cancel, in the listing and the statement.
#[derive(Debug, Deserialize)]
pub(crate) struct TransferView {
    /// None from a switch without references.
    pub(crate) reference: Option<String>,
    /// The switch's own id.
    pub(crate) transfer_id: Option<String>,
    pub(crate) status: TransferStatus,
    pub(crate) amount_minor: Option<i64>,
    pub(crate) currency: Option<String>,
    pub(crate) reason: Option<String>,
    /// When it came to its end, by the switch's clock.
    pub(crate) finished_at: Option<Timestamp>,
}

/// Where a transfer stands at the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum TransferStatus {
    Pending,
    Settled,
    Rejected,
    Cancelled,
    Recalled,
}

/// Answer to a cancel.
#[derive(Debug, Deserialize)]
pub(crate) struct CancelBody {
    pub(crate) answer: CancelWord,
    /// Whether the switch knew the reference. A switch that does not say is taken as one that left a
    /// tombstone.
    #[serde(default)]
    pub(crate) known: bool,
    pub(crate) reason: Option<String>,
    pub(crate) transfer: Option<TransferView>,
}

/// The words of a cancel's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum CancelWord {
    Cancelled,
    AlreadyRejected,
    AlreadySettled,
    NotFound,
    Refused,
    InProcess,
    CannotCancel,
}

/// Answer to a recall.
#[derive(Debug, Deserialize)]
pub(crate) struct RecallBody {
    pub(crate) answer: RecallWord,
    pub(crate) reason: Option<String>,
}

/// The words of a recall's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum RecallWord {
    Recalled,
    Refused,
    RecallUnsupported,
    InProcess,
    NotSettled,
    NotFound,
}

/// A page of `GET /v1/transfers`.
#[derive(Debug, Deserialize)]
pub(crate) struct ListingPage {
    pub(crate) transfers: Vec<TransferView>,
    /// `after` of the next page; none when this is the last one.
    pub(crate) next: Option<String>,
}

/// A page of `GET /v1/statement`.
#[derive(Debug, Deserialize)]
pub(crate) struct StatementPage {
    pub(crate) entries: Vec<StatementEntry>,
    /// `after` of the next page; none when this is the last one.
    pub(crate) next: Option<String>,
}

/// One end of a transfer.
#[derive(Debug, Deserialize)]
pub(crate) struct StatementEntry {
    /// Its place in the statement.
    pub(crate) cursor: String,
    #[serde(flatten)]
    pub(crate) transfer: TransferView,
}

/// A problem (RFC 9457), as far as it is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ProblemBody {
    pub(crate) code: Option<String>,
    pub(crate) detail: Option<String>,
}
