//! `/operator/v1/payments`: the payments that wait for an operator.

use jiff::Timestamp;
use payment_ledger::reads::queues::StuckPayment;
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Query};
use utoipa::{IntoParams, ToSchema};

use super::bounds::{Limit, WaitingSeconds};
use super::decisions::Decision;
use crate::auth::LoggedIn;
use crate::error::ApiError;

/// An open payment that does not progress.
#[derive(Serialize, ToSchema)]
pub(crate) struct WaitingPayment {
    payment_id: String,
    tenant: String,
    state: &'static str,
    /// Why it needs an operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    operator_reason: Option<String>,
    /// What operators may decide.
    #[schema(value_type = Vec<String>)]
    allowed_actions: Vec<&'static str>,
    /// How long it has needed an operator, been cancelling or not been updated, in seconds.
    waiting_s: i64,
    amount_minor: i64,
    /// ISO 4217 code.
    currency: String,
    source_account: String,
    destination_account: String,
    switch: String,
    #[schema(value_type = String, format = DateTime)]
    accepted_at: Timestamp,
    /// The open decision, which waits for another operator or for the payment's workflow.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_decision: Option<Decision>,
}

impl From<StuckPayment> for WaitingPayment {
    fn from(stuck: StuckPayment) -> Self {
        let StuckPayment { payment, tenant_id, age_s, pending } = stuck;
        Self {
            payment_id: payment.payment_id,
            tenant: tenant_id,
            state: payment.state.as_str(),
            operator_reason: payment.operator_reason.map(|reason| reason.to_string()),
            allowed_actions: payment.allowed_actions.iter().map(|action| action.as_str()).collect(),
            waiting_s: age_s,
            amount_minor: payment.amount_minor,
            currency: payment.currency,
            source_account: payment.source_account,
            destination_account: payment.destination_account,
            switch: payment.switch.to_string(),
            accepted_at: payment.accepted_at,
            open_decision: pending.map(Decision::from),
        }
    }
}

/// Payments.
#[derive(Serialize, ToSchema)]
pub(crate) struct WaitingPayments {
    payments: Vec<WaitingPayment>,
}

/// Which payments.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Filter {
    /// Without progress for at least this many seconds. Default 300.
    #[serde(default)]
    #[param(value_type = i64, minimum = 0, maximum = 31_536_000)]
    waiting_s: WaitingSeconds,
    /// At most this many. Default 50.
    #[serde(default)]
    #[param(value_type = i64, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List payments that wait
///
/// Open payments that need an operator, are being cancelled or are idle, of all tenants, the longest first.
#[utoipa::path(
    get, path = "/operator/v1/payments/waiting", tag = "decisions", security(("session" = [])), params(Filter),
    responses((status = 200, description = "The payments", body = WaitingPayments)),
)]
pub(crate) async fn list_waiting_payments(
    logged_in: LoggedIn,
    Query(filter): Query<Filter>,
) -> Result<Json<WaitingPayments>, ApiError> {
    let stuck = logged_in.ledger.stuck(filter.waiting_s.get(), filter.limit.get()).await?;
    Ok(Json(WaitingPayments { payments: stuck.into_iter().map(WaitingPayment::from).collect() }))
}
