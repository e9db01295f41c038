//! The search attribute of payments in Temporal: the switch, by which operators look for workflows. What else they look for, `payctl
//! list` finds in the ledger. It is set at start only: each later change would write to Temporal's visibility store for every payment.

use std::collections::HashMap;

use payment_protocol::Payment;
use temporalio_client::Client;
use temporalio_client::tonic::{IntoRequest as _, Status};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::AddSearchAttributesRequest;
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributes};

const SWITCH: &str = "PaymentSwitch";

/// The attribute of one payment.
pub(crate) fn of(payment: &Payment) -> SearchAttributes {
    SearchAttributes::new([SearchAttributeKey::keyword(SWITCH).value_set(payment.profile.switch.to_string())])
}

/// Registers the attribute, so that a plain `temporal server start-dev` suffices. In a cluster that denies this, its operators register it.
///
/// # Errors
/// Temporal's status: `AlreadyExists`, a refusal, or no answer.
pub(crate) async fn register(client: &Client, namespace: &str) -> Result<(), Status> {
    let attributes = HashMap::from([(SWITCH.to_owned(), IndexedValueType::Keyword as i32)]);
    let request =
        AddSearchAttributesRequest { search_attributes: attributes, namespace: namespace.to_owned() };
    client.connection().operator_service().add_search_attributes(request.into_request()).await.map(drop)
}
