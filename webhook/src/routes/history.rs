//! `GET /api/v1/accounts/{account_id}/statement` and `.../balance`: what moved an account, and what it held at an instant.

use std::sync::Arc;

use axum::extract::State;
use jiff::Timestamp;
use payment_ledger::reads::statement::{BalanceAt, StatementEntry, StatementQuery};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Problem, Query};
use utoipa::{IntoParams, ToSchema};

use super::accounts::account_id;
use super::payments::decimal;
use crate::app::App;
use crate::auth::Reader;
use crate::error::{ApiError, account_not_found};
use crate::routes::docs::ProblemDocument;

/// Entries on a page when nothing is said.
const LIMIT_DEFAULT: i64 = 50;
/// Entries on a page at most.
const LIMIT_MAX: i64 = 200;

/// What an account held at an instant. Amounts are decimals in major units, and the same in minor units.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Balance {
    account_id: String,
    /// ISO 4217 code.
    currency: String,
    /// What was posted at this instant is counted.
    #[schema(format = DateTime)]
    at: String,
    /// What could be spent.
    #[schema(example = "87.50")]
    available: String,
    available_minor: i64,
    /// What was set aside for payments under way.
    #[schema(example = "12.50")]
    held: String,
    held_minor: i64,
    /// The ledger balance: available and held.
    #[schema(example = "100.00")]
    balance: String,
    balance_minor: i64,
}

/// One entry.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Entry {
    entry_id: i64,
    #[schema(format = DateTime)]
    posted_at: String,
    /// `fund` (paid in), `reserve` (set aside for a payment), `release` (given back from what was set aside), `late_debit`
    /// or `return_credit`. What is set aside and then sent has no entry of its own: it was taken out when it was set aside.
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    payment_id: Option<String>,
    /// Negative for what was taken.
    #[schema(example = "-12.50")]
    amount: String,
    amount_minor: i64,
    /// What could be spent after it.
    #[schema(example = "87.50")]
    available_after: String,
    available_after_minor: i64,
}

/// A page of a statement, oldest entry first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Statement {
    /// Just before the period.
    opening: Balance,
    /// At its end.
    closing: Balance,
    entries: Vec<Entry>,
    /// Value of `after` for the next page; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Which instant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Instant {
    /// The instant (RFC 3339). Default now, and now for one that is still to come.
    #[param(format = DateTime, example = "2026-01-31T23:00:00Z")]
    at: Option<String>,
}

/// Which part of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// From this instant on (RFC 3339). Default from the beginning.
    #[param(format = DateTime, example = "2026-01-01T00:00:00Z")]
    from: Option<String>,
    /// Until before this instant (RFC 3339). Default now, and now for one that is still to come.
    #[param(format = DateTime, example = "2026-02-01T00:00:00Z")]
    to: Option<String>,
    /// At most so many entries. Default 50.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<i64>,
    /// Only after this place: `next` of the page before.
    #[param(min_length = 3, max_length = 36, pattern = "^-?[0-9]{1,16}-[1-9][0-9]{0,17}$")]
    after: Option<String>,
}

/// Ask what an account held
///
/// An instant of the last seconds is what was committed when it was looked at.
#[utoipa::path(
    get, path = "/api/v1/accounts/{account_id}/balance", tag = "accounts", security(("api_key" = ["read"])),
    params(("account_id" = String, Path, description = "One of your accounts"), Instant),
    responses(
        (status = 200, description = "The balance", body = Balance),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "account_not_found; another tenant's account is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn read_balance(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(which): Query<Instant>,
) -> Result<Json<Balance>, ApiError> {
    let at = which.at.as_deref().map(|text| instant("at", text)).transpose()?;
    let account_id = account_id(&id)?;
    let found = app.ledger.balance_at(account_id.as_str(), Some(&caller.tenant), at).await?;
    Ok(Json(balance(found.ok_or_else(|| account_not_found(&id))?)?))
}

/// Ask for an account's statement
///
/// Oldest entry first, with what could be spent before the period, after each entry, and at the end.
#[utoipa::path(
    get, path = "/api/v1/accounts/{account_id}/statement", tag = "accounts", security(("api_key" = ["read"])),
    params(("account_id" = String, Path, description = "One of your accounts"), Which),
    responses(
        (status = 200, description = "A page of the statement", body = Statement),
        (status = 400, description = "malformed_query",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 404, description = "account_not_found; another tenant's account is not found either",
         body = ProblemDocument, content_type = "application/problem+json"),
        (status = 422, description = "empty_period: from is not before to",
         body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn read_statement(
    State(app): State<Arc<App>>,
    Reader(caller): Reader,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Result<Json<Statement>, ApiError> {
    let period = period(&which)?;
    let account_id = account_id(&id)?;
    let found = app.ledger.statement(account_id.as_str(), Some(&caller.tenant), &period).await?;
    let found = found.ok_or_else(|| account_not_found(&id))?;
    let currency = found.opening.currency.clone();
    let entries = found.lines.into_iter().map(|line| entry(&id, &currency, line));
    Ok(Json(Statement {
        entries: entries.collect::<Result<_, _>>()?,
        opening: balance(found.opening)?,
        closing: balance(found.closing)?,
        next: found.next.map(|next| next.to_string()),
    }))
}

fn period(which: &Which) -> Result<StatementQuery, Problem> {
    let from = which.from.as_deref().map_or(Ok(Timestamp::UNIX_EPOCH), |text| instant("from", text))?;
    let to = which.to.as_deref().map(|text| instant("to", text)).transpose()?;
    if to.is_some_and(|to| from >= to) {
        return Err(Problem::unprocessable("empty_period", "from must be before to".to_owned()));
    }
    let limit = which.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(refused(&format!("limit must be from 1 to {LIMIT_MAX}")));
    }
    let after = which.after.as_deref().map(str::parse).transpose();
    let after = after.map_err(|error| refused(&format!("after: {error}")))?;
    Ok(StatementQuery { from, to, after, limit })
}

/// An instant that the ledger can have entries of.
fn instant(name: &str, text: &str) -> Result<Timestamp, Problem> {
    match text.parse::<Timestamp>() {
        // What PostgreSQL can hold begins later than what can be written here.
        Ok(at) if at < Timestamp::UNIX_EPOCH => Err(refused(&format!("{name} is before there were ledgers"))),
        Ok(at) => Ok(at),
        Err(_) => Err(refused(&format!("{name} is not an instant like 2026-01-31T23:00:00Z"))),
    }
}

fn refused(detail: &str) -> Problem {
    Problem::bad_request("malformed_query", detail.to_owned())
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

fn entry(account_id: &str, currency: &str, line: StatementEntry) -> Result<Entry, ApiError> {
    let decimal = |minor: i64| decimal(account_id, minor, currency);
    Ok(Entry {
        entry_id: line.entry_id,
        posted_at: line.posted_at.to_string(),
        kind: line.kind,
        payment_id: line.payment_id,
        amount: decimal(line.amount_minor)?,
        amount_minor: line.amount_minor,
        available_after: decimal(line.balance_minor)?,
        available_after_minor: line.balance_minor,
    })
}
