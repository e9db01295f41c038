//! Submit: sends a transfer.

use std::time::Instant;

use payment_protocol::submit::SendAnswer;
use reqwest::{Method, StatusCode};

use super::map::reason;
use super::{SwitchClient, SwitchReply, TransferOrder};
use crate::bodies::{TransferBody, TransferStatus, TransferView};
use crate::http::is_temporary;

impl SwitchClient {
    /// Sends a transfer, and records in the circuit breaker whether the switch answered.
    pub async fn send(&self, order: &TransferOrder) -> SwitchReply<SendAnswer> {
        let reply = self.send_once(order).await;
        self.breaker.record(!matches!(reply.answer, SendAnswer::Unknown { .. }), Instant::now());
        self.show_breaker();
        reply
    }

    async fn send_once(&self, order: &TransferOrder) -> SwitchReply<SendAnswer> {
        let body = TransferBody {
            reference: order.reference.as_str(),
            amount_minor: order.money.amount_minor(),
            currency: order.money.currency().code(),
            creditor_account: &order.creditor_account,
            end_to_end_id: order.end_to_end_id.as_deref(),
            deadline: order.deadline.map(|deadline| deadline.to_string()),
        };
        let Ok(body) = serde_json::to_vec(&body) else {
            let reason = "the transfer could not be serialised as JSON".into();
            return SwitchReply::new(SendAnswer::Refused { reason }, None);
        };
        let key = order.reference.as_str();
        let response = match self.call(Method::POST, "/v1/transfers", Some(key), Some(body)).await {
            Ok(response) => response,
            Err(detail) => return SwitchReply::new(SendAnswer::Unknown { detail }, None),
        };
        let transfer: Result<TransferView, String> = response.json();
        let transfer_id = transfer.as_ref().ok().and_then(|transfer| transfer.transfer_id.clone());
        let answer = match (response.status, transfer) {
            (StatusCode::OK | StatusCode::ACCEPTED, Ok(transfer)) => match transfer.status {
                TransferStatus::Rejected | TransferStatus::Cancelled => {
                    SendAnswer::Refused { reason: reason(transfer.reason) }
                }
                TransferStatus::Pending | TransferStatus::Settled | TransferStatus::Returned => {
                    SendAnswer::Accepted
                }
            },
            (StatusCode::UNPROCESSABLE_ENTITY, Ok(transfer)) => {
                SendAnswer::Refused { reason: reason(transfer.reason) }
            }
            (status, _) if is_temporary(status) || status.is_success() => {
                SendAnswer::Unknown { detail: response.excerpt() }
            }
            _ => SendAnswer::Refused { reason: response.excerpt() },
        };
        SwitchReply::new(answer, response.switch_now).with_transfer_id(transfer_id)
    }
}
