//! Maps a transfer of the switch to the protocol's types.

use payment_protocol::reject::Reject;
use payment_protocol::report::SettledReport;
use payment_protocol::submit::QueryAnswer;

use super::HttpJsonClient;
use super::address::ReportedName;
use crate::http_json::bodies::{TransferStatus, TransferView};
use crate::http_json::http::excerpt;

impl HttpJsonClient {
    /// A transfer as a query answer.
    pub(super) fn query_answer(&self, transfer: TransferView, name: ReportedName<'_>) -> QueryAnswer {
        match transfer.status {
            TransferStatus::Pending => QueryAnswer::Pending,
            TransferStatus::Cancelled if transfer.tombstone => QueryAnswer::NotFound,
            TransferStatus::Rejected | TransferStatus::Cancelled => {
                QueryAnswer::Void { reject: reject(transfer.reason_code, transfer.reason) }
            }
            TransferStatus::Settled | TransferStatus::Returned => {
                let is_returned = transfer.status == TransferStatus::Returned;
                match self.settled_report(transfer, name) {
                    Some(report) if is_returned => QueryAnswer::Returned(report),
                    Some(report) => QueryAnswer::Settled(report),
                    None => QueryAnswer::NoAnswer {
                        detail: "the switch answered SETTLED or RETURNED without a reference, an amount or a currency"
                            .into(),
                    },
                }
            }
        }
    }

    pub(super) fn settled_report(
        &self,
        transfer: TransferView,
        name: ReportedName<'_>,
    ) -> Option<SettledReport> {
        Some(SettledReport {
            switch: self.name.clone(),
            reference: match name {
                ReportedName::Implied(name) => name.reference.to_string(),
                ReportedName::Translated(name) => name.translate(&transfer.reference?),
            },
            amount_minor: transfer.amount_minor?,
            currency: transfer.currency?,
        })
    }
}

/// The switch's reject, short enough to store.
pub(crate) fn reject(code: Option<String>, words: Option<String>) -> Reject {
    Reject { code: code.map(|code| excerpt(&code)), reason: reason(words) }
}

/// The switch's reason, short enough to store.
pub(super) fn reason(reason: Option<String>) -> String {
    excerpt(reason.as_deref().unwrap_or("no reason given"))
}
