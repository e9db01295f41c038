//! How a request names a transfer, and what its answer must name to be about that transfer.

use payment_protocol::rail_id::TransferName;

use crate::http_json::bodies::TransferView;
use crate::http_json::http::percent_encode;

/// Detail of an answer that is about another transfer, or does not say about which one it is.
pub(super) const NAMES_ANOTHER: &str = "the answer of the switch does not name our transfer";

/// The name of a transfer in a request.
#[derive(Clone, Copy)]
pub(super) enum Address<'a> {
    /// The name that we gave it.
    Name(&'a TransferName),
    /// The switch's own id, at a switch without references.
    Id { id: &'a str, name: &'a TransferName },
}

/// The name of a transfer in a report.
#[derive(Clone, Copy)]
pub(super) enum ReportedName<'a> {
    /// Ours, whether or not the answer names it.
    Implied(&'a TransferName),
    /// The one in the answer; ours, if that is the one that we gave the transfer.
    Translated(&'a TransferName),
}

impl<'a> Address<'a> {
    pub(super) fn path(self) -> String {
        match self {
            Self::Name(name) => format!("/v1/transfers/{}", name.on_wire()),
            Self::Id { id, .. } => format!("/v1/transfers/by-id/{}", percent_encode(id)),
        }
    }

    /// Whether an answer with these names is about the addressed transfer. A proxy, an error page in JSON or a mistaken
    /// switch may answer with a status word too, but does not name our transfer.
    pub(super) fn is_named(self, reference: Option<&str>, transfer_id: Option<&str>) -> bool {
        match self {
            Self::Name(ours) => reference == Some(ours.on_wire()),
            Self::Id { id, name: ours } => {
                transfer_id == Some(id) && reference.is_none_or(|reference| reference == ours.on_wire())
            }
        }
    }

    /// [`Self::is_named`] for a transfer.
    pub(super) fn is_named_by(self, transfer: &TransferView) -> bool {
        self.is_named(transfer.reference.as_deref(), transfer.transfer_id.as_deref())
    }

    /// Whether a settled transfer may be reported. A settlement under another reference is: the protocol compares it with
    /// the payment and records the difference.
    pub(super) fn may_report(self, transfer: &TransferView) -> bool {
        matches!(self, Self::Name(_)) || self.is_named_by(transfer)
    }

    /// Code of the 404 that means that the switch does not know the transfer, rather than the path.
    pub(super) fn unknown_code(self) -> &'static str {
        match self {
            Self::Name(_) => "unknown_reference",
            Self::Id { .. } => "unknown_transfer",
        }
    }

    /// The name under which the answer is reported.
    pub(super) fn reported(self) -> ReportedName<'a> {
        match self {
            Self::Name(name) => ReportedName::Translated(name),
            Self::Id { name, .. } => ReportedName::Implied(name),
        }
    }
}
