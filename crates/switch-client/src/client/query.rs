//! Query: reads a transfer.

use payment_protocol::keys::Reference;
use payment_protocol::submit::QueryAnswer;
use reqwest::{Method, StatusCode};

use super::{SwitchClient, SwitchReply, TransferRef, path_of};
use crate::bodies::TransferView;
use crate::http::is_temporary;

impl SwitchClient {
    /// Queries a transfer. At a switch without references an ambiguous lookup is no answer.
    pub async fn query(&self, transfer: TransferRef<'_>) -> SwitchReply<QueryAnswer> {
        match transfer {
            TransferRef::Reference(reference) => {
                self.query_at(&format!("/v1/transfers/{reference}"), reference, false).await
            }
            TransferRef::LookupKey(lookup_key) => match &lookup_key.transfer_id {
                Some(id) => self
                    .query_at(&path_of(id), &lookup_key.reference, true)
                    .await
                    .with_transfer_id(Some(id.clone())),
                None => self.read_back(lookup_key).await.into_query_answer(),
            },
        }
    }

    async fn query_at(&self, path: &str, reference: &Reference, by_id: bool) -> SwitchReply<QueryAnswer> {
        let response = match self.call(Method::GET, path, None, None).await {
            Ok(response) => response,
            Err(detail) => return SwitchReply::new(QueryAnswer::NoAnswer { detail }, None),
        };
        let mut transfer_id = None;
        let answer = match response.status {
            StatusCode::OK => match response.json::<TransferView>() {
                Ok(transfer) => {
                    transfer_id.clone_from(&transfer.transfer_id);
                    self.query_answer(transfer, by_id.then_some(reference))
                }
                Err(detail) => QueryAnswer::NoAnswer { detail },
            },
            StatusCode::NOT_FOUND if response.is_unknown_transfer() => QueryAnswer::NotFound,
            status if is_temporary(status) || status.is_success() => {
                QueryAnswer::NoAnswer { detail: response.excerpt() }
            }
            _ => QueryAnswer::OurFault { detail: response.excerpt() },
        };
        SwitchReply::new(answer, response.switch_now).with_transfer_id(transfer_id)
    }
}
