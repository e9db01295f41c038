//! Search attributes of payments in Temporal. They are set at start only: each later change would write to
//! Temporal's visibility store for every payment.

use std::collections::HashMap;

use payment_protocol::Payment;
use temporalio_client::Client;
use temporalio_client::tonic::{Code, IntoRequest as _};
use temporalio_common::protos::temporal::api::enums::v1::IndexedValueType;
use temporalio_common::protos::temporal::api::operatorservice::v1::AddSearchAttributesRequest;
use temporalio_common::search_attributes::{SearchAttributeKey, SearchAttributes};

const SWITCH: &str = "PaymentSwitch";
const CURRENCY: &str = "PaymentCurrency";
const ACCOUNT: &str = "PaymentAccount";
const AMOUNT_MINOR: &str = "PaymentAmountMinor";

/// The attributes of one payment.
pub(crate) fn of(payment: &Payment) -> SearchAttributes {
    SearchAttributes::new([
        SearchAttributeKey::keyword(SWITCH).value_set(payment.profile.switch.to_string()),
        SearchAttributeKey::keyword(CURRENCY).value_set(payment.money.currency().code().to_owned()),
        SearchAttributeKey::keyword(ACCOUNT).value_set(payment.source_account.to_string()),
        SearchAttributeKey::int(AMOUNT_MINOR).value_set(payment.money.amount_minor()),
    ])
}

/// Registers the attributes, so that a plain `temporal server start-dev` suffices. In a cluster that denies this,
/// its operators register the attributes; otherwise Temporal refuses every start.
pub(crate) async fn register(client: &Client, namespace: &str) {
    let attributes = HashMap::from([
        (SWITCH.to_owned(), IndexedValueType::Keyword as i32),
        (CURRENCY.to_owned(), IndexedValueType::Keyword as i32),
        (ACCOUNT.to_owned(), IndexedValueType::Keyword as i32),
        (AMOUNT_MINOR.to_owned(), IndexedValueType::Int as i32),
    ]);
    let request =
        AddSearchAttributesRequest { search_attributes: attributes, namespace: namespace.to_owned() };
    match client.connection().operator_service().add_search_attributes(request.into_request()).await {
        Ok(_) => {
            tracing::info!("the payment-worker registered the search attributes of payments at Temporal")
        }
        Err(status) if status.code() == Code::AlreadyExists => {}
        Err(status) => {
            tracing::warn!(%status, "the payment-worker could not register the search attributes of payments; unless they exist, Temporal refuses to start payment workflows")
        }
    }
}
