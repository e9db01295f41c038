//! Query: reads a transfer.

use payment_protocol::submit::QueryAnswer;
use reqwest::{Method, StatusCode};

use super::HttpJsonClient;
use super::address::{Address, NAMES_ANOTHER};
use crate::client::{SwitchReply, TransferRef};
use crate::http_json::bodies::{TransferStatus, TransferView};
use crate::http_json::http::is_temporary;

impl HttpJsonClient {
    /// Queries a transfer. At a switch without references an ambiguous lookup is no answer.
    pub async fn query(&self, transfer: TransferRef<'_>) -> SwitchReply<QueryAnswer> {
        match transfer {
            TransferRef::Name(name) => self.query_at(Address::Name(name)).await,
            TransferRef::LookupKey(lookup_key) => match &lookup_key.transfer_id {
                Some(id) => self
                    .query_at(Address::Id { id, name: &lookup_key.name })
                    .await
                    .with_transfer_id(Some(id.clone())),
                None => self.read_back(lookup_key).await.into_query_answer(),
            },
        }
    }

    async fn query_at(&self, address: Address<'_>) -> SwitchReply<QueryAnswer> {
        let response = match self.call("query transfer", Method::GET, &address.path(), None, None).await {
            Ok(response) => response,
            Err(detail) => return SwitchReply::new(QueryAnswer::NoAnswer { detail }, None),
        };
        let mut transfer_id = None;
        let answer = match response.status {
            StatusCode::OK => match response.json::<TransferView>() {
                Ok(transfer) => {
                    transfer_id = transfer.transfer_id.clone().filter(|_| address.is_named_by(&transfer));
                    self.addressed_answer(transfer, address)
                }
                Err(detail) => QueryAnswer::NoAnswer { detail },
            },
            StatusCode::NOT_FOUND if response.has_code(address.unknown_code()) => QueryAnswer::NotFound,
            status if is_temporary(status) || status.is_success() => {
                QueryAnswer::NoAnswer { detail: response.excerpt() }
            }
            _ => QueryAnswer::OurFault { detail: response.excerpt() },
        };
        SwitchReply::new(answer, response.switch_now).with_transfer_id(transfer_id)
    }

    fn addressed_answer(&self, transfer: TransferView, address: Address<'_>) -> QueryAnswer {
        let may_report = match transfer.status {
            TransferStatus::Settled | TransferStatus::Returned => address.may_report(&transfer),
            TransferStatus::Pending | TransferStatus::Rejected | TransferStatus::Cancelled => {
                address.is_named_by(&transfer)
            }
        };
        if may_report {
            self.query_answer(transfer, address.reported())
        } else {
            QueryAnswer::NoAnswer { detail: NAMES_ANOTHER.into() }
        }
    }
}
