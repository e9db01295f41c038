//! `GET /api/v1/accounts/{account_id}`: an account with its balances.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use payment_protocol::ids::AccountId;
use serde::Serialize;
use service_kit::problem::{Json, Path, Problem};
use utoipa::ToSchema;

use super::payments::decimal;
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, account_not_found};

/// An account with its current balances, as decimals in major units and as integers in minor units.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Account {
    account_id: String,
    /// ISO 4217 code.
    currency: String,
    /// `active`, `frozen` or `closed`.
    status: String,
    /// Balance available for payments.
    #[schema(example = "87.50")]
    available: String,
    available_minor: i64,
    /// Balance held for payments in progress.
    #[schema(example = "12.50")]
    held: String,
    held_minor: i64,
    /// Ledger balance: the sum of available and held.
    #[schema(example = "100.00")]
    balance: String,
    balance_minor: i64,
}

/// Retrieve an account
#[utoipa::path(
    get, path = "/api/v1/accounts/{account_id}", tag = "accounts", security(("api_key" = ["read"])),
    params(("account_id" = String, Path, description = "Id of an account of your tenant")),
    responses(
        (status = 200, description = "The account", body = Account),
        (status = 404, description = "account_not_found: no account with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_account(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Result<Json<Account>, ApiError> {
    let account_id = account_id(&id)?;
    let account = app.reads.account(&caller.tenant, &account_id).await?;
    let account = account.ok_or_else(|| account_not_found(&id))?;
    let decimal = |minor: i64| decimal(&account.account_id, minor, &account.currency);
    let balance_minor = account.ledger_minor();
    Ok(Json(Account {
        available: decimal(account.available_minor)?,
        available_minor: account.available_minor,
        held: decimal(account.held_minor)?,
        held_minor: account.held_minor,
        balance: decimal(balance_minor)?,
        balance_minor,
        account_id: account.account_id,
        currency: account.currency,
        status: account.status,
    }))
}

/// Parses an account id of a path; a malformed id is not found.
pub(super) fn account_id(id: &str) -> Result<AccountId, Problem> {
    AccountId::new(id).map_err(|_| account_not_found(id))
}
