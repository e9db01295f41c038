//! The status of a transfer.

use serde::{Deserialize, Serialize};

/// The status of a transfer; every status but `Pending` is final, except that a settled transfer can be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[sqlx(type_name = "text", rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum TransferStatus {
    Pending,
    Settled,
    Rejected,
    Cancelled,
    Returned,
}

impl TransferStatus {
    /// The database's word.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Settled => "SETTLED",
            Self::Rejected => "REJECTED",
            Self::Cancelled => "CANCELLED",
            Self::Returned => "RETURNED",
        }
    }
}
