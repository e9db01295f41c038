//! Cancel: requests that the switch cancels a transfer.

use payment_protocol::cancel::CancelAnswer;
use payment_protocol::keys::CompensationKey;
use reqwest::{Method, StatusCode};

use super::HttpJsonClient;
use super::address::{Address, NAMES_ANOTHER};
use super::map::reason;
use crate::client::{SwitchReply, TransferRef};
use crate::http_json::bodies::{CancelAnswerCode, CancelBody, TransferStatus};
use crate::http_json::http::is_temporary;

impl HttpJsonClient {
    /// Cancels a transfer. At a switch without references it first looks the transfer up, and cancels nothing if the
    /// lookup does not find exactly one.
    pub async fn cancel(
        &self,
        transfer: TransferRef<'_>,
        key: &CompensationKey,
    ) -> SwitchReply<CancelAnswer> {
        let lookup_key = match transfer {
            TransferRef::Name(name) => {
                return self.cancel_at(Address::Name(name), key).await;
            }
            TransferRef::LookupKey(lookup_key) => lookup_key,
        };
        let id = match &lookup_key.transfer_id {
            Some(id) => id.clone(),
            None => {
                let reply = self.query(transfer).await;
                let Some(id) = reply.transfer_id.clone() else { return reply.into_cancel_answer() };
                id
            }
        };
        let address = Address::Id { id: &id, name: &lookup_key.name };
        self.cancel_at(address, key).await.with_transfer_id(Some(id))
    }

    async fn cancel_at(&self, address: Address<'_>, key: &CompensationKey) -> SwitchReply<CancelAnswer> {
        let path = format!("{}/cancel", address.path());
        let response = match self.call("cancel transfer", Method::POST, &path, Some(key.as_str()), None).await
        {
            Ok(response) => response,
            Err(detail) => return SwitchReply::new(CancelAnswer::NoAnswer { detail }, None),
        };
        let answer = match response.status {
            StatusCode::OK => match response.json::<CancelBody>() {
                Ok(body) => match contradiction(&body, address) {
                    None => self.cancel_answer(body, address),
                    Some(detail) => CancelAnswer::NoAnswer { detail: detail.into() },
                },
                Err(detail) => CancelAnswer::NoAnswer { detail },
            },
            // A cancel by reference answers NOT_FOUND in its body; a 404 is our fault there.
            StatusCode::NOT_FOUND
                if matches!(address, Address::Id { .. }) && response.has_code(address.unknown_code()) =>
            {
                CancelAnswer::NotFound
            }
            status if is_temporary(status) || status.is_success() => {
                CancelAnswer::NoAnswer { detail: response.excerpt() }
            }
            _ => CancelAnswer::OurFault { detail: response.excerpt() },
        };
        SwitchReply::new(answer, response.switch_now)
    }

    fn cancel_answer(&self, body: CancelBody, address: Address<'_>) -> CancelAnswer {
        match body.answer {
            // A transfer that was cancelled by the switch's own id was known, whatever `known` says.
            CancelAnswerCode::Cancelled => CancelAnswer::Cancelled {
                tombstoned: match address {
                    Address::Name(_) => body.known.map(|known| !known),
                    _ => Some(false),
                },
            },
            CancelAnswerCode::AlreadyRejected => CancelAnswer::AlreadyRejected,
            CancelAnswerCode::AlreadySettled | CancelAnswerCode::AlreadyReturned => {
                let name = address.reported();
                match body.transfer.and_then(|transfer| self.settled_report(transfer, name)) {
                    Some(report) if body.answer == CancelAnswerCode::AlreadyReturned => {
                        CancelAnswer::AlreadyReturned(report)
                    }
                    Some(report) => CancelAnswer::AlreadySettled(report),
                    None => CancelAnswer::Undecided {
                        detail: "the switch answered ALREADY_SETTLED or ALREADY_RETURNED without a complete transfer".into(),
                    },
                }
            }
            CancelAnswerCode::NotFound => CancelAnswer::NotFound,
            CancelAnswerCode::CannotCancel => CancelAnswer::CannotCancel,
            CancelAnswerCode::Refused => CancelAnswer::Undecided {
                detail: format!("the switch refused the cancel: {}", reason(body.reason)),
            },
            CancelAnswerCode::InProcess => CancelAnswer::Undecided {
                detail: format!("the switch still processes the transfer: {}", reason(body.reason)),
            },
        }
    }
}

/// Why an answer decides nothing: it is not about our transfer, or the transfer in it has another status than the answer
/// says. `None` if it is in order.
fn contradiction(body: &CancelBody, address: Address<'_>) -> Option<&'static str> {
    use TransferStatus::{Cancelled, Rejected, Returned, Settled};
    if !address.is_named(body.reference.as_deref(), body.transfer_id.as_deref()) {
        return Some(NAMES_ANOTHER);
    }
    let (agrees, is_ours) = match (body.answer, &body.transfer) {
        (CancelAnswerCode::NotFound, transfer) => (transfer.is_none() && body.known != Some(true), true),
        (CancelAnswerCode::Refused | CancelAnswerCode::InProcess | CancelAnswerCode::CannotCancel, _)
        | (_, None) => (true, true),
        (CancelAnswerCode::Cancelled, Some(transfer)) => {
            (transfer.status == Cancelled, address.is_named_by(transfer))
        }
        (CancelAnswerCode::AlreadyRejected, Some(transfer)) => {
            (transfer.status == Rejected, address.is_named_by(transfer))
        }
        (CancelAnswerCode::AlreadySettled, Some(transfer)) => {
            (transfer.status == Settled, address.may_report(transfer))
        }
        (CancelAnswerCode::AlreadyReturned, Some(transfer)) => {
            (transfer.status == Returned, address.may_report(transfer))
        }
    };
    match (agrees, is_ours) {
        (true, true) => None,
        (true, false) => Some(NAMES_ANOTHER),
        (false, _) => Some("the answer of the switch contradicts the transfer in it"),
    }
}
