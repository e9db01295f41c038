//! `GET /api/v1/accounts/{account_id}/statement` and `.../balance`: entries of an account, and its balance at an instant.

use openapi_kit::ProblemDocument;
use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use payment_ledger::reads::statement::{
    AccountStatementEntry, AccountStatementQuery as LedgerStatementQuery, BalanceAt,
};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::accounts::account_id;
use super::payments::decimal;
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, account_not_found, malformed_query};
use crate::paging::page_limit;

/// Balances of an account at an instant, as decimals in major units and as integers in minor units.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Balance {
    account_id: String,
    /// ISO 4217 code.
    currency: String,
    /// The instant; entries posted at it are included.
    #[schema(format = DateTime)]
    at: String,
    /// Balance that was available for payments.
    #[schema(example = "87.50")]
    available: String,
    available_minor: i64,
    /// Balance that was held for payments in progress.
    #[schema(example = "12.50")]
    held: String,
    held_minor: i64,
    /// Ledger balance: the sum of available and held.
    #[schema(example = "100.00")]
    balance: String,
    balance_minor: i64,
}

/// One entry of an account statement.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StatementEntry)]
pub(crate) struct Entry {
    entry_id: i64,
    #[schema(format = DateTime)]
    posted_at: String,
    /// The day from which the entry counts, in UTC: its own, and that of the hold for `release` and `advance`, as if nothing had been
    /// held.
    #[schema(format = Date, example = "2026-11-25")]
    value_date: String,
    /// `fund` (credit), `reserve` (hold for a payment), `release` (release of a hold), `advance` (credit for a payment that is not
    /// confirmed in time), `collect` (debit of such a payment that was executed late), `return` (credit of money that came back),
    /// `late_debit` or `return_credit`. The debit of a hold has no entry of its own, because the reserve entry already reduced the
    /// available balance.
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    payment_id: Option<String>,
    /// Negative for a debit.
    #[schema(example = "-12.50")]
    amount: String,
    amount_minor: i64,
    /// Available balance after the entry.
    #[schema(example = "87.50")]
    available_after: String,
    available_after_minor: i64,
}

/// A page of an account statement, oldest entry first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Statement {
    /// Balance just before the period.
    opening: Balance,
    /// Balance at the end of the period.
    closing: Balance,
    entries: Vec<Entry>,
    /// Value of `after` for the next page; missing on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    next: Option<String>,
}

/// Query of a balance.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct BalanceQuery {
    /// The instant (RFC 3339). Default now; a future instant is treated as now.
    #[param(format = DateTime, example = "2026-01-31T23:00:00Z")]
    at: Option<String>,
}

/// Query of an account statement.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AccountStatementQuery {
    /// Start of the period, inclusive (RFC 3339). Default the first entry.
    #[param(format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: Option<String>,
    /// End of the period, exclusive (RFC 3339). Default now; a future instant is treated as now.
    #[param(format = DateTime, example = "2026-02-01T00:00:00Z")]
    to: Option<String>,
    /// Most entries on the page. Default 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// Cursor: `next` of the previous page.
    #[param(min_length = 3, max_length = 36, pattern = "^-?[0-9]{1,16}-[1-9][0-9]{0,17}$")]
    after: Option<String>,
}

/// Retrieve an account balance at an instant
///
/// For an instant of the last seconds, entries that are committed later may be missing.
#[utoipa::path(
    get, path = "/api/v1/accounts/{account_id}/balance", tag = "accounts", security(("api_key" = ["read"])),
    params(("account_id" = String, Path, description = "Id of an account of your tenant"), BalanceQuery),
    responses(
        (status = 200, description = "The balance", body = Balance),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "account_not_found: no account with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_balance(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(query): Query<BalanceQuery>,
) -> Result<Json<Balance>, ApiError> {
    let at = query.at.as_deref().map(|text| instant("at", text)).transpose()?;
    let account_id = account_id(&id)?;
    let stored = app.reads.balance_at(account_id.as_str(), Some(&caller.tenant), at).await?;
    Ok(Json(balance(stored.ok_or_else(|| account_not_found(&id))?)?))
}

/// Retrieve an account statement
///
/// Entries of a period, oldest first, with the available balance before the period, after each entry, and at the end.
#[utoipa::path(
    get, path = "/api/v1/accounts/{account_id}/statement", tag = "accounts", security(("api_key" = ["read"])),
    params(("account_id" = String, Path, description = "Id of an account of your tenant"), AccountStatementQuery),
    responses(
        (status = 200, description = "A page of the statement", body = Statement),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "account_not_found: no account with this id belongs to your tenant",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "empty_period: from must be before to",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_statement(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(query): Query<AccountStatementQuery>,
) -> Result<Json<Statement>, ApiError> {
    let period = period(&query)?;
    let account_id = account_id(&id)?;
    let statement = app.reads.statement(account_id.as_str(), Some(&caller.tenant), &period).await?;
    let statement = statement.ok_or_else(|| account_not_found(&id))?;
    let currency = statement.opening.currency.clone();
    let entries = statement.lines.into_iter().map(|line| entry(&id, &currency, line));
    Ok(Json(Statement {
        entries: entries.collect::<Result<_, _>>()?,
        opening: balance(statement.opening)?,
        closing: balance(statement.closing)?,
        next: statement.next.map(|next| next.to_string()),
    }))
}

fn period(query: &AccountStatementQuery) -> Result<LedgerStatementQuery, Problem> {
    let from = query.from.as_deref().map_or(Ok(Timestamp::UNIX_EPOCH), |text| instant("from", text))?;
    let to = query.to.as_deref().map(|text| instant("to", text)).transpose()?;
    if to.is_some_and(|to| from >= to) {
        return Err(Problem::unprocessable(
            "empty_period",
            "the period is empty: from must be before to".to_owned(),
        ));
    }
    let limit = page_limit(query.limit)?;
    let after = query.after.as_deref().map(str::parse).transpose();
    let after = after
        .map_err(|error| malformed_query(format!("after is not a cursor of this statement: {error}")))?;
    Ok(LedgerStatementQuery { from, to, after, limit })
}

/// Parses an instant at which the ledger can have entries.
fn instant(name: &str, text: &str) -> Result<Timestamp, Problem> {
    match text.parse::<Timestamp>() {
        // PostgreSQL supports fewer years than the text.
        Ok(at) if at < Timestamp::UNIX_EPOCH => {
            Err(malformed_query(format!("{name} must not be before 1970-01-01T00:00:00Z")))
        }
        Ok(at) => Ok(at),
        Err(_) => Err(malformed_query(format!("{name} must be an instant such as 2026-01-31T23:00:00Z"))),
    }
}

fn balance(at: BalanceAt) -> Result<Balance, ApiError> {
    let decimal = |minor: i64| decimal(&at.account_id, minor, &at.currency);
    let balance_minor = at.ledger_minor();
    Ok(Balance {
        at: at.at.to_string(),
        available: decimal(at.available_minor)?,
        available_minor: at.available_minor,
        held: decimal(at.held_minor)?,
        held_minor: at.held_minor,
        balance: decimal(balance_minor)?,
        balance_minor,
        account_id: at.account_id,
        currency: at.currency,
    })
}

fn entry(account_id: &str, currency: &str, line: AccountStatementEntry) -> Result<Entry, ApiError> {
    let decimal = |minor: i64| decimal(account_id, minor, currency);
    Ok(Entry {
        entry_id: line.entry_id,
        posted_at: line.posted_at.to_string(),
        value_date: line.value_date.to_string(),
        kind: line.kind,
        payment_id: line.payment_id,
        amount: decimal(line.amount_minor)?,
        amount_minor: line.amount_minor,
        available_after: decimal(line.balance_minor)?,
        available_after_minor: line.balance_minor,
    })
}
