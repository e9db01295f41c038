//! The faults, one type per operation, so that a script cannot ask a query to
//! do what only a cancel can.

use serde::{Deserialize, Serialize};

/// What can go wrong with any request, before the switch does anything.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpFault {
    /// The connection is cut, nothing is recorded.
    DropRequest,
    /// Nothing for so many milliseconds, then as usual, even if the client has gone.
    DelayMs(u64),
    /// 400 `malformed_request`.
    #[serde(rename = "error_400")]
    Error400,
    /// 401 `unauthorized`.
    Unauthorized,
    /// 403 `forbidden`.
    #[serde(rename = "error_403")]
    Error403,
    /// 404 `not_found`, as if there were no such endpoint.
    #[serde(rename = "error_404")]
    Error404,
    /// 429 with `Retry-After: 1`.
    TooManyRequests,
    /// 429 with `Retry-After` of so many seconds.
    BusyS(u64),
    /// 500 `internal`.
    #[serde(rename = "error_500")]
    Error500,
    /// 503 `unavailable` with `Retry-After: 1`.
    #[serde(rename = "error_503")]
    Error503,
}

/// What can go wrong with a submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmitFault {
    /// Refused for good: recorded and repeated.
    Refuse,
    /// Refused without a record: a repeat is judged anew.
    RefuseUnrecorded,
    /// Recorded, then the connection is cut.
    AcceptDropAnswer,
    /// Recorded at once, answered after so many milliseconds.
    AcceptHangMs(u64),
    /// As any request.
    #[serde(untagged)]
    Http(HttpFault),
}

/// What can go wrong with a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryFault {
    /// 404 `unknown_reference`, whether or not it is known.
    NotFound,
    /// As any request.
    #[serde(untagged)]
    Http(HttpFault),
}

/// What can go wrong with a cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelFault {
    /// Answer `REFUSED`; the transfer goes on.
    Refuse,
    /// Answer `IN_PROCESS`; the transfer goes on.
    InProcess,
    /// Answer `CANNOT_CANCEL`; the transfer goes on.
    CannotCancel,
    /// Answer `NOT_FOUND`; the transfer goes on, no tombstone is left.
    NotFound,
    /// Done, then the connection is cut.
    ApplyDropAnswer,
    /// As any request.
    #[serde(untagged)]
    Http(HttpFault),
}

/// What can go wrong with a recall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecallFault {
    /// Answer `REFUSED` for a settled transfer, recorded and repeated for ever.
    Refuse,
    /// Answer `IN_PROCESS`; nothing changes.
    InProcess,
    /// Answer `CANNOT_RECALL`; nothing changes.
    CannotRecall,
    /// Done, then the connection is cut.
    ApplyDropAnswer,
    /// As any request.
    #[serde(untagged)]
    Http(HttpFault),
}

impl HttpFault {
    /// How long the request is held, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        match self {
            Self::DelayMs(ms) => *ms,
            _ => 0,
        }
    }
}

impl SubmitFault {
    /// How long the request is held, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        match self {
            Self::AcceptHangMs(ms) => *ms,
            Self::Http(fault) => fault.hold_ms(),
            _ => 0,
        }
    }
}

impl QueryFault {
    /// How long the request is held, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        if let Self::Http(fault) = self { fault.hold_ms() } else { 0 }
    }
}

impl CancelFault {
    /// How long the request is held, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        if let Self::Http(fault) = self { fault.hold_ms() } else { 0 }
    }
}

impl RecallFault {
    /// How long the request is held, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        if let Self::Http(fault) = self { fault.hold_ms() } else { 0 }
    }
}
