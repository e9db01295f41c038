//! Cancel: requests that the switch cancels a transfer.

use payment_protocol::cancel::CancelAnswer;
use payment_protocol::keys::{CompensationKey, Reference};
use reqwest::{Method, StatusCode};

use super::map::reason;
use super::{SwitchClient, SwitchReply, TransferRef, path_of};
use crate::bodies::{CancelAnswerCode, CancelBody};
use crate::http::is_temporary;
use crate::read_back::ReadBackOutcome;

impl SwitchClient {
    /// Cancels a transfer. At a switch without references it first looks the transfer up, and cancels nothing if the
    /// lookup does not find exactly one.
    pub async fn cancel(
        &self,
        transfer: TransferRef<'_>,
        key: &CompensationKey,
    ) -> SwitchReply<CancelAnswer> {
        let lookup_key = match transfer {
            TransferRef::Reference(reference) => {
                return self.cancel_at(&format!("/v1/transfers/{reference}"), key, None).await;
            }
            TransferRef::LookupKey(lookup_key) => lookup_key,
        };
        let id = match &lookup_key.transfer_id {
            Some(id) => id.clone(),
            None => {
                let reply = self.read_back(lookup_key).await;
                match reply.answer {
                    ReadBackOutcome::Match { transfer_id, .. } => transfer_id,
                    ReadBackOutcome::NoMatch => {
                        return SwitchReply::new(CancelAnswer::NotFound, reply.switch_now);
                    }
                    ReadBackOutcome::OurFault { detail } => {
                        return SwitchReply::new(CancelAnswer::OurFault { detail }, reply.switch_now);
                    }
                    ReadBackOutcome::NoAnswer { detail } => {
                        return SwitchReply::new(CancelAnswer::NoAnswer { detail }, reply.switch_now);
                    }
                }
            }
        };
        self.cancel_at(&path_of(&id), key, Some(&lookup_key.reference)).await.with_transfer_id(Some(id))
    }

    /// Sends the cancel of the transfer at `path`; `reference` is our reference if the path names the switch's own id.
    async fn cancel_at(
        &self,
        path: &str,
        key: &CompensationKey,
        reference: Option<&Reference>,
    ) -> SwitchReply<CancelAnswer> {
        let path = format!("{path}/cancel");
        let response = match self.call(Method::POST, &path, Some(key.as_str()), None).await {
            Ok(response) => response,
            Err(detail) => return SwitchReply::new(CancelAnswer::NoAnswer { detail }, None),
        };
        let answer = match response.status {
            StatusCode::OK => match response.json::<CancelBody>() {
                Ok(body) => self.cancel_answer(body, reference),
                Err(detail) => CancelAnswer::NoAnswer { detail },
            },
            // A cancel by reference answers NOT_FOUND in its body; a 404 is our fault there.
            StatusCode::NOT_FOUND if reference.is_some() && response.is_unknown_transfer() => {
                CancelAnswer::NotFound
            }
            status if is_temporary(status) || status.is_success() => {
                CancelAnswer::NoAnswer { detail: response.excerpt() }
            }
            _ => CancelAnswer::OurFault { detail: response.excerpt() },
        };
        SwitchReply::new(answer, response.switch_now)
    }

    fn cancel_answer(&self, body: CancelBody, reference: Option<&Reference>) -> CancelAnswer {
        match body.answer {
            // A transfer that was cancelled by the switch's own id was known, whatever `known` says.
            CancelAnswerCode::Cancelled => {
                CancelAnswer::Cancelled { tombstoned: !body.known && reference.is_none() }
            }
            CancelAnswerCode::AlreadyRejected => CancelAnswer::AlreadyRejected,
            CancelAnswerCode::AlreadySettled | CancelAnswerCode::AlreadyReturned => {
                match body.transfer.and_then(|transfer| self.settled_report(transfer, reference)) {
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
