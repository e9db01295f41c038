//! `GET /api/v1/accounts/{account_id}`: what an account holds.

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
use crate::routes::docs::ProblemDocument;

/// An account as it stands. Amounts are decimals in major units, and the same in minor units.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Account {
    account_id: String,
    /// ISO 4217 code.
    currency: String,
    /// `active`, `frozen` or `closed`.
    status: String,
    /// What can be spent.
    #[schema(example = "87.50")]
    available: String,
    available_minor: i64,
    /// What is set aside for payments under way.
    #[schema(example = "12.50")]
    held: String,
    held_minor: i64,
    /// The ledger balance: available and held.
    #[schema(example = "100.00")]
    balance: String,
    balance_minor: i64,
}

/// Ask for an account
#[utoipa::path(
    get, path = "/api/v1/accounts/{account_id}", tag = "accounts", security(("api_key" = ["read"])),
    params(("account_id" = String, Path, description = "One of your accounts")),
    responses(
        (status = 200, description = "The account", body = Account),
        (status = 404, description = "account_not_found; another tenant's account is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn read_account(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
) -> Result<Json<Account>, ApiError> {
    let account_id = account_id(&id)?;
    let account = app.ledger.account(&caller.tenant, &account_id).await?;
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

/// Reads an account's id from a path; one that cannot be is not found.
pub(super) fn account_id(id: &str) -> Result<AccountId, Problem> {
    AccountId::new(id).map_err(|_| account_not_found(id))
}
