//! What changes have set: accounts, limits, kill switches, API keys and operators.

use jiff::Timestamp;
use openapi_kit::ProblemDocument;
use payment_ledger::access::api_keys::KeyView;
use payment_ledger::access::operators::OperatorView;
use payment_ledger::accounts::Account;
use payment_ledger::admission::kill_switches::KillSwitchView;
use payment_ledger::admission::limits::LimitView;
use payment_ledger::operator::erasure::Erasure;
use payment_protocol::ids::{AccountId, ClientId, TenantId};
use serde::{Deserialize, Serialize};
use service_kit::problem::{Json, Path, Query};
use utoipa::{IntoParams, ToSchema};

use super::bounds::Limit;
use crate::auth::LoggedIn;
use crate::error::{ApiError, account_not_found};

/// A customer account.
#[derive(Serialize, ToSchema)]
pub(crate) struct AccountDocument {
    account_id: String,
    /// ISO 4217 code.
    currency: String,
    /// `active`, `frozen` or `closed`.
    status: String,
    available_minor: i64,
    /// Sum of the open holds that the customer bears.
    held_minor: i64,
    /// The erasure of personal fields, if operators have begun one.
    #[serde(skip_serializing_if = "Option::is_none")]
    erasure: Option<ErasureDocument>,
}

/// The erasure of the personal fields of an account's payments.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErasureDocument {
    /// Payments accepted before then are erased.
    #[schema(value_type = String, format = DateTime)]
    requested_at: Timestamp,
    /// Payments erased so far.
    erased_payments: i64,
    /// Payments that had to wait when they were last looked at, which is every hour: they ended too lately, or something of them is open.
    waiting_payments: i64,
    /// When the last one was erased; missing while some have to wait for their end, or for what is open of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    done_at: Option<Timestamp>,
    /// Why the database refused one of the waiting payments, in its words. Missing if it refused none.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl From<Erasure> for ErasureDocument {
    fn from(erasure: Erasure) -> Self {
        let Erasure { requested_at, payments, waiting, done_at, failure } = erasure;
        Self { requested_at, erased_payments: payments, waiting_payments: waiting, done_at, failure }
    }
}

impl AccountDocument {
    fn new(account: Account, erasure: Option<Erasure>) -> Self {
        Self {
            account_id: account.account_id,
            currency: account.currency,
            status: account.status,
            available_minor: account.available_minor,
            held_minor: account.held_minor,
            erasure: erasure.map(ErasureDocument::from),
        }
    }
}

/// Retrieve an account
#[utoipa::path(
    get, path = "/operator/v1/tenants/{tenant_id}/accounts/{account_id}", tag = "settings", security(("session" = [])),
    params(
        ("tenant_id" = String, Path, description = "Id of the tenant"),
        ("account_id" = String, Path, description = "Id of the account"),
    ),
    responses(
        (status = 200, description = "The account", body = AccountDocument),
        (status = 404, description = "account_not_found", body = ProblemDocument, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn retrieve_account(
    logged_in: LoggedIn,
    Path((tenant, account)): Path<(String, String)>,
) -> Result<Json<AccountDocument>, ApiError> {
    let missing = || account_not_found(&tenant, &account);
    let ids = TenantId::new(tenant.as_str()).ok().zip(AccountId::new(account.as_str()).ok());
    let (tenant_id, account_id) = ids.ok_or_else(missing)?;
    let account = logged_in.ledger.account(&tenant_id, &account_id).await?.ok_or_else(missing)?;
    let erasure = logged_in.ledger.erasure(&account_id).await?;
    Ok(Json(AccountDocument::new(account, erasure)))
}

/// A limit in force. A bound that is missing is unlimited.
#[derive(Serialize, ToSchema)]
pub(crate) struct LimitDocument {
    /// `account` or `tenant`.
    scope: String,
    scope_id: String,
    /// ISO 4217 code.
    currency: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_payment_minor: Option<i64>,
    /// Of one UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_day_minor: Option<i64>,
    /// Payments of one UTC day.
    #[serde(skip_serializing_if = "Option::is_none")]
    per_day_count: Option<i64>,
    used_today_minor: i64,
    used_today_count: i64,
    set_by: String,
    reason: String,
}

impl From<LimitView> for LimitDocument {
    fn from(limit: LimitView) -> Self {
        Self {
            scope: limit.scope,
            scope_id: limit.scope_id,
            currency: limit.currency,
            per_payment_minor: limit.bounds.per_payment_minor,
            per_day_minor: limit.bounds.per_day_minor,
            per_day_count: limit.bounds.per_day_count,
            used_today_minor: limit.used_minor,
            used_today_count: limit.used_count,
            set_by: limit.set_by,
            reason: limit.reason,
        }
    }
}

/// Limits.
#[derive(Serialize, ToSchema)]
pub(crate) struct Limits {
    limits: Vec<LimitDocument>,
}

/// How many.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Limited {
    /// At most this many. Default 50.
    #[serde(default)]
    #[param(value_type = i64, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List limits
///
/// Those in force, by scope.
#[utoipa::path(
    get, path = "/operator/v1/limits", tag = "settings", security(("session" = [])), params(Limited),
    responses((status = 200, description = "The limits", body = Limits)),
)]
pub(crate) async fn list_limits(
    logged_in: LoggedIn,
    Query(Limited { limit }): Query<Limited>,
) -> Result<Json<Limits>, ApiError> {
    let limits = logged_in.ledger.limits(limit.get()).await?;
    Ok(Json(Limits { limits: limits.into_iter().map(LimitDocument::from).collect() }))
}

/// A kill switch: of a switch, or of a currency and destination accounts with a prefix.
#[derive(Serialize, ToSchema)]
pub(crate) struct KillSwitchDocument {
    kill_switch_id: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    switch: Option<String>,
    /// ISO 4217 code.
    #[serde(skip_serializing_if = "Option::is_none")]
    currency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_prefix: Option<String>,
    activated_by: String,
    reason: String,
    #[schema(value_type = String, format = DateTime)]
    activated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifted_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lift_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    lifted_at: Option<Timestamp>,
}

impl From<KillSwitchView> for KillSwitchDocument {
    fn from(view: KillSwitchView) -> Self {
        Self {
            kill_switch_id: view.kill_switch_id,
            switch: view.switch,
            currency: view.currency,
            destination_prefix: view.destination_prefix,
            activated_by: view.activated_by,
            reason: view.reason,
            activated_at: view.activated_at,
            lifted_by: view.lifted_by,
            lift_reason: view.lift_reason,
            lifted_at: view.lifted_at,
        }
    }
}

/// Kill switches.
#[derive(Serialize, ToSchema)]
pub(crate) struct KillSwitches {
    kill_switches: Vec<KillSwitchDocument>,
}

/// Which kill switches.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct KillSwitchFilter {
    /// Lifted ones, too.
    #[serde(default)]
    with_lifted: bool,
    /// At most this many. Default 50.
    #[serde(default)]
    #[param(value_type = i64, minimum = 1, maximum = 1000)]
    limit: Limit,
}

/// List kill switches
///
/// Active ones, newest first.
#[utoipa::path(
    get, path = "/operator/v1/kill-switches", tag = "settings", security(("session" = [])), params(KillSwitchFilter),
    responses((status = 200, description = "The kill switches", body = KillSwitches)),
)]
pub(crate) async fn list_kill_switches(
    logged_in: LoggedIn,
    Query(KillSwitchFilter { with_lifted, limit }): Query<KillSwitchFilter>,
) -> Result<Json<KillSwitches>, ApiError> {
    let found = logged_in.ledger.kill_switches(with_lifted, limit.get()).await?;
    Ok(Json(KillSwitches { kill_switches: found.into_iter().map(KillSwitchDocument::from).collect() }))
}

/// An API key, without the key and its hash.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApiKeyDocument {
    key_id: String,
    /// The readable beginning of the key.
    prefix: String,
    tenant_id: String,
    client_id: String,
    /// `pay`, `read` and `webhooks`.
    #[schema(value_type = Vec<String>)]
    scopes: Vec<&'static str>,
    /// `active`, `expired` or `revoked`.
    #[schema(value_type = String)]
    status: &'static str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Missing if the key does not expire.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
    /// The successor.
    #[serde(skip_serializing_if = "Option::is_none")]
    rotated_to: Option<String>,
}

impl From<KeyView> for ApiKeyDocument {
    fn from(key: KeyView) -> Self {
        Self {
            key_id: key.id.to_string(),
            prefix: key.prefix,
            tenant_id: key.caller.tenant.to_string(),
            client_id: key.caller.client.to_string(),
            scopes: key.scopes.words(),
            status: key.status.as_str(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            rotated_to: key.rotated_to.map(|id| id.to_string()),
        }
    }
}

/// API keys.
#[derive(Serialize, ToSchema)]
pub(crate) struct ApiKeys {
    api_keys: Vec<ApiKeyDocument>,
}

/// Which API keys.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ApiKeyFilter {
    /// Only those of this tenant.
    #[serde(default)]
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    tenant_id: Option<TenantId>,
    /// Only those of clients with this name.
    #[serde(default)]
    #[param(value_type = Option<String>, pattern = "^[A-Za-z0-9._:-]{1,64}$")]
    client_id: Option<ClientId>,
}

/// List API keys
///
/// By tenant, client and age, also expired and revoked ones.
#[utoipa::path(
    get, path = "/operator/v1/api-keys", tag = "settings", security(("session" = [])), params(ApiKeyFilter),
    responses((status = 200, description = "The API keys", body = ApiKeys)),
)]
pub(crate) async fn list_api_keys(
    logged_in: LoggedIn,
    Query(ApiKeyFilter { tenant_id, client_id }): Query<ApiKeyFilter>,
) -> Result<Json<ApiKeys>, ApiError> {
    let keys = logged_in.ledger.api_keys(tenant_id.as_ref(), client_id.as_ref()).await?;
    Ok(Json(ApiKeys { api_keys: keys.into_iter().map(ApiKeyDocument::from).collect() }))
}

/// An operator.
#[derive(Serialize, ToSchema)]
pub(crate) struct OperatorDocument {
    name: String,
    /// `viewer`, `operator`, `approver` and `administrator`.
    #[schema(value_type = Vec<String>)]
    roles: Vec<&'static str>,
    /// The OpenID provider at which the operator logs in; missing for a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    /// The claim `sub` in the operator's ID tokens; missing for a password.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    disabled_at: Option<Timestamp>,
    /// Until when no password is accepted; missing if one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    locked_until: Option<Timestamp>,
    open_sessions: i64,
}

impl From<OperatorView> for OperatorDocument {
    fn from(operator: OperatorView) -> Self {
        let identity = operator.identity.as_ref();
        Self {
            roles: operator.roles.iter().map(|role| role.as_str()).collect(),
            issuer: identity.map(|identity| identity.issuer().to_owned()),
            subject: identity.map(|identity| identity.subject().to_owned()),
            name: operator.name,
            created_at: operator.created_at,
            disabled_at: operator.disabled_at,
            locked_until: operator.locked_until,
            open_sessions: operator.open_sessions,
        }
    }
}

/// Operators.
#[derive(Serialize, ToSchema)]
pub(crate) struct Operators {
    operators: Vec<OperatorDocument>,
}

/// List operators
///
/// By name, also disabled ones.
#[utoipa::path(
    get, path = "/operator/v1/operators", tag = "settings", security(("session" = [])),
    responses((status = 200, description = "The operators", body = Operators)),
)]
pub(crate) async fn list_operators(logged_in: LoggedIn) -> Result<Json<Operators>, ApiError> {
    let operators = logged_in.ledger.operators().await?;
    Ok(Json(Operators { operators: operators.into_iter().map(OperatorDocument::from).collect() }))
}
