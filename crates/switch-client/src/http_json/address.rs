//! How a request names a transfer, and what its answer must name to be about that transfer.

use payment_protocol::keys::Reference;

use crate::http_json::bodies::TransferView;
use crate::http_json::http::percent_encode;

/// Detail of an answer that is about another transfer, or does not say about which one it is.
pub(super) const NAMES_ANOTHER: &str = "the answer of the switch does not name our transfer";

/// The name of a transfer in a request.
#[derive(Clone, Copy)]
pub(super) enum Address<'a> {
    /// Our reference.
    Reference(&'a Reference),
    /// The switch's own id, at a switch without references.
    Id { id: &'a str, reference: &'a Reference },
}

impl<'a> Address<'a> {
    pub(super) fn path(self) -> String {
        match self {
            Self::Reference(reference) => format!("/v1/transfers/{reference}"),
            Self::Id { id, .. } => format!("/v1/transfers/by-id/{}", percent_encode(id)),
        }
    }

    /// Whether an answer with these names is about the addressed transfer. A proxy, an error page in JSON or a mistaken
    /// switch may answer with a status word too, but does not name our transfer.
    pub(super) fn is_named(self, reference: Option<&str>, transfer_id: Option<&str>) -> bool {
        match self {
            Self::Reference(ours) => reference == Some(ours.as_str()),
            Self::Id { id, reference: ours } => {
                transfer_id == Some(id) && reference.is_none_or(|reference| reference == ours.as_str())
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
        matches!(self, Self::Reference(_)) || self.is_named_by(transfer)
    }

    /// Code of the 404 that means that the switch does not know the transfer, rather than the path.
    pub(super) fn unknown_code(self) -> &'static str {
        match self {
            Self::Reference(_) => "unknown_reference",
            Self::Id { .. } => "unknown_transfer",
        }
    }

    /// Our reference, if the answer need not name it.
    pub(super) fn implied_reference(self) -> Option<&'a Reference> {
        match self {
            Self::Reference(_) => None,
            Self::Id { reference, .. } => Some(reference),
        }
    }
}
