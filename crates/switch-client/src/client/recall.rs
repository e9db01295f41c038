//! Recall: requests that the switch returns money that left.

use payment_protocol::keys::StepKey;
use payment_protocol::recall::RecallAnswer;
use reqwest::{Method, StatusCode};

use super::map::reason;
use super::{SwitchClient, SwitchReply, TransferRef, path_of};
use crate::bodies::{RecallAnswerCode, RecallBody};
use crate::read_back::{LookupKey, ReadBackOutcome};

impl SwitchClient {
    /// Recalls a transfer. At a switch without references it first looks the transfer up.
    pub async fn recall(&self, transfer: TransferRef<'_>, key: &StepKey) -> SwitchReply<RecallAnswer> {
        let (path, id) = match transfer {
            TransferRef::Reference(reference) => (format!("/v1/transfers/{reference}"), None),
            TransferRef::LookupKey(LookupKey { transfer_id: Some(id), .. }) => {
                (path_of(id), Some(id.clone()))
            }
            TransferRef::LookupKey(lookup_key) => match self.read_back(lookup_key).await.answer {
                ReadBackOutcome::Match { transfer_id, .. } => (path_of(&transfer_id), Some(transfer_id)),
                ReadBackOutcome::NoMatch => {
                    let detail = "the transfer was not found in the switch's listing".into();
                    return SwitchReply::new(RecallAnswer::Unknown { detail }, None);
                }
                ReadBackOutcome::OurFault { detail } | ReadBackOutcome::NoAnswer { detail } => {
                    return SwitchReply::new(RecallAnswer::Unknown { detail }, None);
                }
            },
        };
        let path = format!("{path}/recall");
        let response = match self.call(Method::POST, &path, Some(key.as_str()), None).await {
            Ok(response) => response,
            Err(detail) => {
                return SwitchReply::new(RecallAnswer::Unknown { detail }, None).with_transfer_id(id);
            }
        };
        let answer = match (response.status, response.json::<RecallBody>()) {
            (StatusCode::OK, Ok(body)) => match body.answer {
                RecallAnswerCode::Recalled => RecallAnswer::Recalled,
                RecallAnswerCode::Refused => RecallAnswer::Refused { reason: reason(body.reason) },
                RecallAnswerCode::CannotRecall => RecallAnswer::RecallUnsupported,
                RecallAnswerCode::InProcess | RecallAnswerCode::NotSettled | RecallAnswerCode::NotFound => {
                    RecallAnswer::Unknown { detail: response.excerpt() }
                }
            },
            _ => RecallAnswer::Unknown { detail: response.excerpt() },
        };
        SwitchReply::new(answer, response.switch_now).with_transfer_id(id)
    }
}
