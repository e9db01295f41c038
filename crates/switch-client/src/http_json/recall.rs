//! Recall: requests that the switch returns money that left.

use payment_protocol::keys::StepKey;
use payment_protocol::recall::RecallAnswer;
use reqwest::{Method, StatusCode};

use super::HttpJsonClient;
use super::address::Address;
use super::http::NO_CONNECTION;
use super::map::reason;
use crate::client::{SwitchReply, TransferRef};
use crate::http_json::bodies::{RecallAnswerCode, RecallBody};

impl HttpJsonClient {
    /// Recalls a transfer. At a switch without references it first looks the transfer up.
    pub async fn recall(&self, transfer: TransferRef<'_>, key: &StepKey) -> SwitchReply<RecallAnswer> {
        let lookup_key = match transfer {
            TransferRef::Name(name) => {
                return self.recall_at(Address::Name(name), key).await;
            }
            TransferRef::LookupKey(lookup_key) => lookup_key,
        };
        let id = match &lookup_key.transfer_id {
            Some(id) => id.clone(),
            None => {
                let reply = self.query(transfer).await;
                let Some(id) = reply.transfer_id.clone() else { return reply.into_recall_answer() };
                id
            }
        };
        let address = Address::Id { id: &id, name: &lookup_key.name };
        self.recall_at(address, key).await.with_transfer_id(Some(id))
    }

    async fn recall_at(&self, address: Address<'_>, key: &StepKey) -> SwitchReply<RecallAnswer> {
        let path = format!("{}/recall", address.path());
        let response = match self.call("recall transfer", Method::POST, &path, Some(key.as_str()), None).await
        {
            Ok(response) => response,
            Err(detail) if detail == NO_CONNECTION => {
                return SwitchReply::new(RecallAnswer::NotReceived { detail }, None);
            }
            Err(detail) => return SwitchReply::new(RecallAnswer::Unknown { detail }, None),
        };
        let is_ours =
            |body: &RecallBody| address.is_named(body.reference.as_deref(), body.transfer_id.as_deref());
        let answer = match (response.status, response.json::<RecallBody>()) {
            (StatusCode::OK, Ok(body)) if is_ours(&body) => match body.answer {
                RecallAnswerCode::Recalled => RecallAnswer::Recalled,
                RecallAnswerCode::Refused => RecallAnswer::Refused { reason: reason(body.reason) },
                RecallAnswerCode::CannotRecall => RecallAnswer::RecallUnsupported,
                RecallAnswerCode::Promised => RecallAnswer::Promised,
                RecallAnswerCode::InProcess => RecallAnswer::Pending,
                RecallAnswerCode::NotSettled | RecallAnswerCode::NotFound => {
                    RecallAnswer::Unknown { detail: response.excerpt() }
                }
            },
            (StatusCode::TOO_MANY_REQUESTS, _) => RecallAnswer::NotReceived { detail: response.excerpt() },
            _ => RecallAnswer::Unknown { detail: response.excerpt() },
        };
        SwitchReply::new(answer, response.switch_now)
    }
}
