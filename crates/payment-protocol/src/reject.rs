//! Rejects of a switch: what a reason code says about the transfer.
//!
//! A reject alone releases nothing. A real rail guarantees more: a reject of this very reference by the switch is final, and the
//! reference is burnt, so that no delayed attempt of it is accepted later. Its profile then lists the reason codes
//! (`reject_codes`), and only a code with the meaning `dead` is believed (`reject_is_final`). A code that the profile does not list
//! says nothing: the switch is asked.

use serde::{Deserialize, Serialize};

use crate::profile::SwitchProfile;
use crate::state::text_enum;
use crate::submit::{QueryAnswer, SendAnswer};

text_enum!(
    /// What a reason code says about the transfer.
    RejectMeaning {
        /// This transfer was refused and never settles.
        Dead = "dead",
        /// The switch has a transfer with this reference already: the first one is alive.
        Duplicate = "duplicate",
        /// The code says nothing certain: ask the switch.
        Ask = "ask",
        /// The request itself was wrong: the switch is asked; where the request was a query, operators are alerted.
        OurFault = "our_fault",
    }
);

/// A reject, in the switch's words.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reject {
    /// The reason code; `None` if the switch gave none.
    pub code: Option<String>,
    /// The reason in words.
    pub reason: String,
}

impl Reject {
    /// A reject without a code.
    #[must_use]
    pub fn uncoded(reason: impl Into<String>) -> Self {
        Self { code: None, reason: reason.into() }
    }
}

/// The code, if any, and the reason.
impl std::fmt::Display for Reject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.code {
            Some(code) => write!(f, "{code}: {}", self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

impl SwitchProfile {
    /// What a reject says about the transfer, by the profile's table of codes.
    #[must_use]
    pub fn meaning(&self, reject: &Reject) -> RejectMeaning {
        let listed = reject.code.as_deref().and_then(|code| self.reject_codes.get(code));
        listed.copied().unwrap_or(RejectMeaning::Ask)
    }

    /// Whether a reject is the switch's last word about the reference: the transfer is void, and nobody needs to ask.
    #[must_use]
    pub fn is_final(&self, reject: &Reject) -> bool {
        self.reject_is_final && self.meaning(reject) == RejectMeaning::Dead
    }

    /// A send answer as this profile reads it: a duplicate is no refusal, because the first transfer is alive.
    #[must_use]
    pub fn read_send_answer(&self, answer: SendAnswer) -> SendAnswer {
        match answer {
            SendAnswer::Refused { reject } if self.meaning(&reject) == RejectMeaning::Duplicate => {
                SendAnswer::Unknown { detail: format!("the switch has the reference already: {reject}") }
            }
            other => other,
        }
    }

    /// A query answer as this profile reads it. A switch whose profile lists no codes says "rejected" of the transfer only; one
    /// with codes may mean the query, or an earlier transfer.
    #[must_use]
    pub fn read_query_answer(&self, answer: QueryAnswer) -> QueryAnswer {
        match answer {
            QueryAnswer::Void { reject } if !self.reject_codes.is_empty() => match self.meaning(&reject) {
                RejectMeaning::Dead => QueryAnswer::Void { reject },
                RejectMeaning::Duplicate => QueryAnswer::Pending,
                RejectMeaning::Ask => QueryAnswer::NoAnswer {
                    detail: format!("the profile gives the reject no certain meaning: {reject}"),
                },
                RejectMeaning::OurFault => QueryAnswer::OurFault { detail: reject.to_string() },
            },
            other => other,
        }
    }
}
