//! The faults: one type per operation, so that a script contains only faults that its operation has.

use serde::{Deserialize, Serialize};

/// Faults of any request, before the switch processes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HttpFault {
    /// The connection is dropped, nothing is recorded.
    DropRequest,
    /// The request is processed after this many milliseconds, even if the client has disconnected.
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
    /// 429 with `Retry-After` of this many seconds.
    BusyS(u64),
    /// 500 `internal`.
    #[serde(rename = "error_500")]
    Error500,
    /// 503 `unavailable` with `Retry-After: 1`.
    #[serde(rename = "error_503")]
    Error503,
}

/// Faults of a submit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SubmitFault {
    /// The submit is refused; the refusal is recorded and repeated.
    Refuse,
    /// The submit is refused without a record; a repeat is processed anew.
    RefuseUnrecorded,
    /// The transfer is recorded, then the connection is dropped.
    AcceptDropAnswer,
    /// The transfer is recorded immediately and answered after this many milliseconds.
    AcceptHangMs(u64),
    /// A fault of any request.
    #[serde(untagged)]
    Http(HttpFault),
}

/// Faults of a query.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryFault {
    /// 404 `unknown_reference`, even if the reference is known.
    NotFound,
    /// A fault of any request.
    #[serde(untagged)]
    Http(HttpFault),
}

/// Faults of a cancel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelFault {
    /// Answer `REFUSED`; the transfer is unchanged.
    Refuse,
    /// Answer `IN_PROCESS`; the transfer is unchanged.
    InProcess,
    /// Answer `CANNOT_CANCEL`; the transfer is unchanged.
    CannotCancel,
    /// Answer `NOT_FOUND`; the transfer is unchanged and no tombstone is left.
    NotFound,
    /// The request is processed, then the connection is dropped.
    ApplyDropAnswer,
    /// A fault of any request.
    #[serde(untagged)]
    Http(HttpFault),
}

/// Faults of a recall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecallFault {
    /// Answer `REFUSED` for a settled transfer; the refusal is recorded and repeated.
    Refuse,
    /// Answer `IN_PROCESS`; the transfer is unchanged.
    InProcess,
    /// Answer `CANNOT_RECALL`; the transfer is unchanged.
    CannotRecall,
    /// The request is processed, then the connection is dropped.
    ApplyDropAnswer,
    /// A fault of any request.
    #[serde(untagged)]
    Http(HttpFault),
}

impl HttpFault {
    /// How long the fault holds the request, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        match self {
            Self::DelayMs(ms) => *ms,
            _ => 0,
        }
    }
}

impl SubmitFault {
    /// How long the fault holds the request, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        match self {
            Self::AcceptHangMs(ms) => *ms,
            Self::Http(fault) => fault.hold_ms(),
            _ => 0,
        }
    }
}

impl QueryFault {
    /// How long the fault holds the request, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        if let Self::Http(fault) = self { fault.hold_ms() } else { 0 }
    }
}

impl CancelFault {
    /// How long the fault holds the request, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        if let Self::Http(fault) = self { fault.hold_ms() } else { 0 }
    }
}

impl RecallFault {
    /// How long the fault holds the request, in milliseconds.
    pub(super) fn hold_ms(&self) -> u64 {
        if let Self::Http(fault) = self { fault.hold_ms() } else { 0 }
    }
}
