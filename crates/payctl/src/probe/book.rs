//! What the probe sent, on record before it is sent: an interrupted probe still knows what to cancel.

use super::findings::Left;
use super::wire::{Name, Reply};

/// What a switch said to a submit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// It took the transfer.
    Accepted,
    /// It did not, and why.
    Refused(String),
    /// No definite answer; it may have taken it.
    Unknown(String),
}

impl Said {
    /// Reads an answer to a submit as the bank does.
    pub(super) fn of(reply: &Result<Reply, String>) -> Self {
        let reply = match reply {
            Ok(reply) => reply,
            Err(detail) => return Self::Unknown(detail.clone()),
        };
        let dead = matches!(reply.text("status"), Some("REJECTED" | "CANCELLED"));
        match reply.status {
            200 | 202 if !dead => Self::Accepted,
            408 | 425 | 429 | 500.. => Self::Unknown(reply.excerpt()),
            _ => Self::Refused(reply.excerpt()),
        }
    }
}

/// One reference that was used.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) reference: String,
    /// The switch's ids of what came under it; several when it does not deduplicate.
    pub(super) ids: Vec<String>,
    /// The switch gave an id and did not name our reference.
    pub(super) keyless: bool,
    /// It was taken once.
    accepted: bool,
    /// In the words of the last answer.
    pub(super) stands: String,
    /// Whether the money may have left, or may still leave.
    pub(super) may_leave: bool,
}

impl Entry {
    /// Before anything is sent under `reference`.
    pub(super) fn new(reference: String) -> Self {
        Self {
            reference,
            ids: Vec::new(),
            keyless: false,
            accepted: false,
            stands: "sent, not answered".into(),
            may_leave: true,
        }
    }

    /// Notes an answer to a submit.
    pub(super) fn answered(&mut self, reply: &Result<Reply, String>) -> Said {
        let said = Said::of(reply);
        if let Ok(reply) = reply {
            let id = reply.text("transfer_id").map(str::to_owned);
            if said == Said::Accepted {
                self.accepted = true;
                self.keyless = id.is_some() && reply.text("reference").is_none();
            }
            self.ids.extend(id.filter(|id| !self.ids.contains(id)));
        }
        match &said {
            Said::Accepted => self.stand("accepted", true),
            // A refused repeat does not undo what was accepted before.
            Said::Refused(detail) if !self.accepted => self.stand(format!("refused: {detail}"), false),
            Said::Refused(_) => {}
            Said::Unknown(detail) => self.stand(format!("sent, no answer: {detail}"), true),
        }
        said
    }

    /// Notes how it stands.
    pub(super) fn stand(&mut self, stands: impl Into<String>, may_leave: bool) {
        (self.stands, self.may_leave) = (stands.into(), may_leave);
    }

    /// Names for everything that came under the reference.
    pub(super) fn names(&self) -> Vec<Name> {
        match self.keyless {
            true => self.ids.iter().cloned().map(Name::Id).collect(),
            false => vec![Name::Reference(self.reference.clone())],
        }
    }

    /// For people.
    pub(super) fn left(&self) -> Left {
        Left {
            reference: self.reference.clone(),
            transfer_id: (!self.ids.is_empty()).then(|| self.ids.join(", ")),
            stands: self.stands.clone(),
            may_leave: self.may_leave,
        }
    }
}
