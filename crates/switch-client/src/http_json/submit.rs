//! Submit: sends a transfer.
//!
//! Two answers are definite: 202 with the transfer, and 422 with the refused transfer. Any other refusal (400, 401, 409 and
//! so on) is about this request. An earlier attempt may have arrived, so it proves nothing about the transfer.

use std::time::Instant;

use payment_protocol::submit::{QueryAnswer, SendAnswer};
use reqwest::{Method, StatusCode};

use super::HttpJsonClient;
use super::address::ReportedName;
use super::map::reject;
use crate::client::{SwitchReply, TransferOrder};
use crate::http_json::bodies::{TransferBody, TransferStatus, TransferView};
use crate::http_json::http::{HttpResponse, is_temporary};

impl HttpJsonClient {
    /// Sends a transfer, and records in the circuit breaker whether the switch answered.
    pub async fn send(&self, order: &TransferOrder) -> SwitchReply<SendAnswer> {
        let (reply, is_answered) = match self.post(order).await {
            Ok(response) => {
                let (answer, transfer_id) = self.send_answer(order, &response);
                let is_answered =
                    !matches!(answer, SendAnswer::Unknown { .. }) || refuses_request(response.status);
                (SwitchReply::new(answer, response.switch_now).with_transfer_id(transfer_id), is_answered)
            }
            Err(detail) => (SwitchReply::new(SendAnswer::Unknown { detail }, None), false),
        };
        self.breaker.record(is_answered, Instant::now());
        self.show_breaker();
        reply
    }

    /// Sends a recorded transfer again, byte for byte, and reads how it stands: for a switch whose only query is the repeated submit.
    /// The circuit breaker is about submits: it neither holds a repeat back nor counts its answer.
    pub async fn repeat(&self, order: &TransferOrder) -> SwitchReply<QueryAnswer> {
        let response = match self.post(order).await {
            Ok(response) => response,
            Err(detail) => return SwitchReply::new(QueryAnswer::NoAnswer { detail }, None),
        };
        let (answer, transfer_id) = match response.json::<TransferView>() {
            Ok(transfer)
                if self.is_about(&transfer, order) && is_definite(response.status, transfer.status) =>
            {
                let transfer_id = transfer.transfer_id.clone();
                (self.query_answer(transfer, ReportedName::Implied(&order.name)), transfer_id)
            }
            _ if refuses_request(response.status) => {
                (QueryAnswer::OurFault { detail: response.excerpt() }, None)
            }
            _ => (QueryAnswer::NoAnswer { detail: response.excerpt() }, None),
        };
        SwitchReply::new(answer, response.switch_now).with_transfer_id(transfer_id)
    }

    async fn post(&self, order: &TransferOrder) -> Result<HttpResponse, String> {
        let body = TransferBody {
            reference: order.name.on_wire(),
            amount_minor: order.money.amount_minor(),
            currency: order.money.currency().code(),
            creditor_account: &order.creditor_account,
            end_to_end_id: order.end_to_end_id.as_deref(),
            deadline: order.deadline.map(|deadline| deadline.to_string()),
        };
        let body =
            serde_json::to_vec(&body).map_err(|error| format!("the transfer has no JSON form: {error}"))?;
        self.call("submit transfer", Method::POST, "/v1/transfers", Some(order.name.on_wire()), Some(body))
            .await
    }

    /// The answer, and the switch's own id of the transfer if the answer is about it.
    fn send_answer(&self, order: &TransferOrder, response: &HttpResponse) -> (SendAnswer, Option<String>) {
        let unknown = || (SendAnswer::Unknown { detail: response.excerpt() }, None);
        let transfer = match response.json::<TransferView>() {
            Ok(transfer) if self.is_about(&transfer, order) => transfer,
            _ => return unknown(),
        };
        let answer = match (response.status, transfer.status) {
            (StatusCode::ACCEPTED, TransferStatus::Rejected | TransferStatus::Cancelled)
            | (StatusCode::UNPROCESSABLE_ENTITY, TransferStatus::Rejected) => {
                SendAnswer::Refused { reject: reject(transfer.reason_code, transfer.reason) }
            }
            (
                StatusCode::ACCEPTED,
                TransferStatus::Pending | TransferStatus::Settled | TransferStatus::Returned,
            ) => SendAnswer::Accepted,
            _ => return unknown(),
        };
        (answer, transfer.transfer_id)
    }

    /// Whether an answer is about the transfer that was sent. A refusal names neither amount nor currency.
    fn is_about(&self, transfer: &TransferView, order: &TransferOrder) -> bool {
        let is_named = match &transfer.reference {
            Some(reference) => reference == order.name.on_wire(),
            None => !self.has_references,
        };
        is_named
            && transfer.amount_minor.is_none_or(|amount_minor| amount_minor == order.money.amount_minor())
            && transfer.currency.as_deref().is_none_or(|currency| currency == order.money.currency().code())
    }
}

/// Whether a response with this status says how the transfer stands; a refusal of anything but a rejected transfer contradicts itself.
fn is_definite(status: StatusCode, transfer: TransferStatus) -> bool {
    status == StatusCode::ACCEPTED
        || (status == StatusCode::UNPROCESSABLE_ENTITY && transfer == TransferStatus::Rejected)
}

/// Whether the switch refused the request itself. It answered, so this is no failure of the switch: a payment that it cannot
/// accept must not hold back the others.
fn refuses_request(status: StatusCode) -> bool {
    status.is_client_error() && !is_temporary(status)
}
