//! Probe transfers, recorded before they are sent: an interrupted probe still knows what to cancel.

use super::findings::ProbeTransferView;
use super::http::{HttpReply, TransferName};

/// The switch's reply to a submit, read as the service reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeSubmitOutcome {
    /// The switch accepted the transfer.
    Accepted,
    /// The switch refused the transfer, and why.
    Refused(String),
    /// No definite reply; the switch may have accepted the transfer.
    Unknown(String),
}

impl ProbeSubmitOutcome {
    fn of(reply: &Result<HttpReply, String>) -> Self {
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return Self::Unknown(error.clone()),
        };
        let is_void = matches!(reply.text("status"), Some("REJECTED" | "CANCELLED"));
        match reply.status {
            200 | 202 if !is_void => Self::Accepted,
            408 | 425 | 429 | 500.. => Self::Unknown(reply.excerpt()),
            _ => Self::Refused(reply.excerpt()),
        }
    }
}

/// The requests sent under one reference.
#[derive(Clone, Debug)]
pub(super) struct TransferRecord {
    pub(super) reference: String,
    /// The switch's transfer ids; several if the switch does not deduplicate.
    pub(super) ids: Vec<String>,
    /// Whether the reply had a transfer id and not our reference: the switch has no references.
    pub(super) has_own_id_only: bool,
    /// Whether the switch accepted at least one submit.
    is_accepted: bool,
    /// The last known status.
    status: String,
    /// Whether the transfer has settled or may still settle.
    pub(super) may_settle: bool,
}

impl TransferRecord {
    /// A record for a reference under which nothing was sent yet.
    pub(super) fn new(reference: String) -> Self {
        Self {
            reference,
            ids: Vec::new(),
            has_own_id_only: false,
            is_accepted: false,
            status: "sent, no reply".into(),
            may_settle: true,
        }
    }

    /// Records the reply to a submit.
    pub(super) fn record_submit(&mut self, reply: &Result<HttpReply, String>) -> ProbeSubmitOutcome {
        let outcome = ProbeSubmitOutcome::of(reply);
        if let Ok(reply) = reply {
            let id = reply.text("transfer_id").map(str::to_owned);
            if outcome == ProbeSubmitOutcome::Accepted {
                self.is_accepted = true;
                self.has_own_id_only = id.is_some() && reply.text("reference").is_none();
            }
            self.ids.extend(id.filter(|id| !self.ids.contains(id)));
        }
        match &outcome {
            ProbeSubmitOutcome::Accepted => self.set_status("accepted", true),
            // The refusal of a repeat says nothing about the transfer accepted before.
            ProbeSubmitOutcome::Refused(detail) if !self.is_accepted => {
                self.set_status(format!("refused: {detail}"), false);
            }
            ProbeSubmitOutcome::Refused(_) => {}
            ProbeSubmitOutcome::Unknown(detail) => self.set_status(format!("sent, no reply: {detail}"), true),
        }
        outcome
    }

    /// Records the transfer's status.
    pub(super) fn set_status(&mut self, status: impl Into<String>, may_settle: bool) {
        (self.status, self.may_settle) = (status.into(), may_settle);
    }

    /// Names of every transfer that was sent under the reference.
    pub(super) fn names(&self) -> Vec<TransferName> {
        match self.has_own_id_only {
            true => self.ids.iter().cloned().map(TransferName::TransferId).collect(),
            false => vec![TransferName::Reference(self.reference.clone())],
        }
    }

    /// The record as it is shown.
    pub(super) fn view(&self) -> ProbeTransferView {
        ProbeTransferView {
            reference: self.reference.clone(),
            transfer_id: (!self.ids.is_empty()).then(|| self.ids.join(", ")),
            status: self.status.clone(),
            may_settle: self.may_settle,
        }
    }
}
