//! Who is told, of what, where. What a tenant does with its endpoints, and what the bank's own people do.
//!
//! A deleted endpoint is nobody's any more; its row goes with its last delivery ([`crate::keep`]).

use jiff::Timestamp;
use sqlx::PgConnection;

use crate::secret::MasterKey;
use crate::target::Target;
use crate::{EndpointId, WebhooksError};

/// Whether an endpoint is told of anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is.
    Active,
    /// It is not; what waited for it waits on.
    Disabled,
}

/// Why an endpoint is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisabledReason {
    /// Its tenant asked for it.
    ByTenant,
    /// The bank's own people did so; its tenant cannot undo it.
    ByOperator,
    /// It answered 410.
    EndpointGone,
    /// Every attempt has failed for too long.
    Failing,
}

impl Status {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
        }
    }

    /// Reads a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Active, Self::Disabled].into_iter().find(|status| status.as_str() == word)
    }
}

impl DisabledReason {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ByTenant => "by_tenant",
            Self::ByOperator => "by_operator",
            Self::EndpointGone => "endpoint_gone",
            Self::Failing => "failing",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::ByTenant, Self::ByOperator, Self::EndpointGone, Self::Failing]
            .into_iter()
            .find(|one| one.as_str() == word)
    }
}

/// Whose endpoints are meant.
#[derive(Clone, Copy, Debug)]
pub enum Whose<'a> {
    /// One tenant's: another's are not there.
    Tenant(&'a str),
    /// Anybody's: for the bank's own people.
    Anybodys,
}

impl<'a> Whose<'a> {
    pub(crate) fn tenant(self) -> Option<&'a str> {
        match self {
            Self::Tenant(tenant) => Some(tenant),
            Self::Anybodys => None,
        }
    }
}

/// An endpoint as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its id.
    pub id: EndpointId,
    /// Whose it is.
    pub tenant: String,
    /// Where it is.
    pub url: String,
    /// Kinds of events that it is told of; none means all.
    pub kinds: Vec<String>,
    /// Whether it is told.
    pub status: Status,
    /// Why not.
    pub disabled_reason: Option<DisabledReason>,
    /// Why not, in somebody's words.
    pub disabled_note: Option<String>,
    /// Which of its secrets is the current one, from 1.
    pub secret_version: i32,
    /// Until when the one before signs, too.
    pub old_secret_until: Option<Timestamp>,
    /// Since when no attempt has succeeded.
    pub failing_since: Option<Timestamp>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When its secret was last rotated.
    pub rotated_at: Option<Timestamp>,
}

/// A row, before its words are read.
struct Row {
    endpoint_id: String,
    tenant_id: String,
    url: String,
    kinds: Vec<String>,
    status: String,
    disabled_reason: Option<String>,
    disabled_note: Option<String>,
    secret_version: i32,
    old_secret_until: Option<jiff_sqlx::Timestamp>,
    failing_since: Option<jiff_sqlx::Timestamp>,
    created_at: jiff_sqlx::Timestamp,
    rotated_at: Option<jiff_sqlx::Timestamp>,
}

impl TryFrom<Row> for Endpoint {
    type Error = WebhooksError;

    fn try_from(row: Row) -> Result<Self, WebhooksError> {
        let unreadable = |what, value: &str| WebhooksError::Unreadable {
            id: row.endpoint_id.clone(),
            what,
            value: value.to_owned(),
        };
        let disabled_reason = match &row.disabled_reason {
            Some(word) => {
                Some(DisabledReason::parse(word).ok_or_else(|| unreadable("disabled_reason", word))?)
            }
            None => None,
        };
        Ok(Self {
            id: EndpointId::new(row.endpoint_id.as_str()).map_err(|_| unreadable("id", &row.endpoint_id))?,
            status: Status::parse(&row.status).ok_or_else(|| unreadable("status", &row.status))?,
            disabled_reason,
            tenant: row.tenant_id,
            url: row.url,
            kinds: row.kinds,
            disabled_note: row.disabled_note,
            secret_version: row.secret_version,
            old_secret_until: row.old_secret_until.map(jiff_sqlx::Timestamp::to_jiff),
            failing_since: row.failing_since.map(jiff_sqlx::Timestamp::to_jiff),
            created_at: row.created_at.to_jiff(),
            rotated_at: row.rotated_at.map(jiff_sqlx::Timestamp::to_jiff),
        })
    }
}

/// An endpoint to be made.
#[derive(Clone, Copy, Debug)]
pub struct NewEndpoint<'a> {
    /// Whose.
    pub tenant: &'a str,
    /// Where.
    pub target: &'a Target,
    /// Kinds of events that it is told of; none means all.
    pub kinds: &'a [String],
}

/// What became of a wish for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Creation {
    /// It is told from now on.
    Made(Box<Endpoint>),
    /// The tenant has as many as it may.
    TooMany,
    /// The bank's own people have disabled an endpoint of this tenant on the same host: one made anew would undo that.
    DisabledByOperator,
}

/// Makes an endpoint, unless the tenant has `max` already, or has one on that host that was disabled by the bank's own people.
///
/// # Errors
/// [`WebhooksError`]: the transaction must not be committed.
pub async fn create(
    tx: &mut PgConnection,
    master_key: &MasterKey,
    new: NewEndpoint<'_>,
    max: i64,
) -> Result<Creation, WebhooksError> {
    // One of a tenant's at a time, or two could both be the last one.
    sqlx::query!(
        r#"SELECT pg_advisory_xact_lock(hashtextextended('webhook_endpoints:' || $1, 0)) AS "locked?""#,
        new.tenant,
    )
    .execute(&mut *tx)
    .await?;
    if is_barred(&mut *tx, new.tenant, new.target).await? {
        return Ok(Creation::DisabledByOperator);
    }
    let id = EndpointId::random();
    let row = sqlx::query_as!(
        Row,
        "INSERT INTO webhook_endpoints (endpoint_id, tenant_id, url, kinds, secret_check)
         SELECT $1, $2, $3, $4, $5
         WHERE (SELECT count(*) FROM webhook_endpoints WHERE tenant_id = $2 AND status <> 'deleted') < $6
         RETURNING endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                   old_secret_until, failing_since, created_at, rotated_at",
        id.as_str(),
        new.tenant,
        new.target.as_str(),
        new.kinds,
        &master_key.check(&id)[..],
        max,
    )
    .fetch_optional(tx)
    .await?;
    match row {
        Some(row) => Ok(Creation::Made(Box::new(row.try_into()?))),
        None => Ok(Creation::TooMany),
    }
}

/// Whether the bank's own people have disabled an endpoint of this tenant on the target's host.
async fn is_barred(
    connection: &mut PgConnection,
    tenant: &str,
    target: &Target,
) -> Result<bool, WebhooksError> {
    let disabled = sqlx::query_scalar!(
        "SELECT url FROM webhook_endpoints WHERE tenant_id = $1 AND status <> 'deleted' AND disabled_reason = 'by_operator'",
        tenant,
    )
    .fetch_all(connection)
    .await?;
    Ok(disabled.iter().any(|url| target.has_host_of(url)))
}

/// Endpoints, the oldest first, at most `limit`.
///
/// # Errors
/// [`WebhooksError`].
pub async fn list(
    connection: &mut PgConnection,
    whose: Whose<'_>,
    limit: i64,
) -> Result<Vec<Endpoint>, WebhooksError> {
    let rows = sqlx::query_as!(
        Row,
        "SELECT endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                old_secret_until, failing_since, created_at, rotated_at
         FROM webhook_endpoints
         WHERE status <> 'deleted' AND ($1::text IS NULL OR tenant_id = $1)
         ORDER BY tenant_id, created_at, endpoint_id LIMIT $2",
        whose.tenant(),
        limit,
    )
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Endpoint::try_from).collect()
}

/// One endpoint, if it is there and theirs.
///
/// # Errors
/// [`WebhooksError`].
pub async fn get(
    connection: &mut PgConnection,
    whose: Whose<'_>,
    id: &EndpointId,
) -> Result<Option<Endpoint>, WebhooksError> {
    let row = sqlx::query_as!(
        Row,
        "SELECT endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                old_secret_until, failing_since, created_at, rotated_at
         FROM webhook_endpoints
         WHERE endpoint_id = $1 AND status <> 'deleted' AND ($2::text IS NULL OR tenant_id = $2)",
        id.as_str(),
        whose.tenant(),
    )
    .fetch_optional(connection)
    .await?;
    row.map(Endpoint::try_from).transpose()
}

/// What shall be otherwise; the rest stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change<'a> {
    /// Where it is.
    pub target: Option<&'a Target>,
    /// What it is told of.
    pub kinds: Option<&'a [String]>,
    /// Whether it is told.
    pub status: Option<Status>,
}

/// What became of a tenant's wish about an endpoint of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish<T> {
    /// It is done.
    Done(T),
    /// The tenant has no such endpoint.
    NotFound,
    /// The bank's own people have disabled it, or one on the host that it shall move to; only they can undo that.
    DisabledByOperator,
}

/// Changes a tenant's endpoint. What waits for it goes to where it is then.
///
/// # Errors
/// [`WebhooksError`].
pub async fn change(
    tx: &mut PgConnection,
    tenant: &str,
    id: &EndpointId,
    change: Change<'_>,
) -> Result<Wish<Box<Endpoint>>, WebhooksError> {
    if let Some(target) = change.target
        && is_barred(&mut *tx, tenant, target).await?
    {
        return Ok(Wish::DisabledByOperator);
    }
    let row = sqlx::query_as!(
        Row,
        "UPDATE webhook_endpoints
         SET url = coalesce($3, url), kinds = coalesce($4, kinds), status = coalesce($5, status),
             disabled_reason = CASE WHEN $5::text IS NULL THEN disabled_reason
                                 WHEN $5 = 'disabled' THEN coalesce(disabled_reason, 'by_tenant') END,
             disabled_note = CASE WHEN $5::text IS DISTINCT FROM 'active' THEN disabled_note END,
             -- Another address, or another try, begins anew.
             failing_since = CASE WHEN $3::text IS NULL AND $5::text IS DISTINCT FROM 'active' THEN failing_since END
         WHERE endpoint_id = $1 AND tenant_id = $2 AND status <> 'deleted' AND disabled_reason IS DISTINCT FROM 'by_operator'
         RETURNING endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                   old_secret_until, failing_since, created_at, rotated_at",
        id.as_str(),
        tenant,
        change.target.map(Target::as_str),
        change.kinds,
        change.status.map(Status::as_str),
    )
    .fetch_optional(&mut *tx)
    .await?;
    match row {
        Some(row) => Ok(Wish::Done(Box::new(row.try_into()?))),
        None => why_not(tx, tenant, id).await,
    }
}

/// Why a tenant's wish about an endpoint was not carried out.
async fn why_not<T>(
    connection: &mut PgConnection,
    tenant: &str,
    id: &EndpointId,
) -> Result<Wish<T>, WebhooksError> {
    let there = get(connection, Whose::Tenant(tenant), id).await?;
    Ok(if there.is_some() { Wish::DisabledByOperator } else { Wish::NotFound })
}

/// Gives a tenant's endpoint its next secret; the one before signs on for `overlap_s` seconds, one still older no longer. None
/// where it has no such endpoint.
///
/// # Errors
/// [`WebhooksError`].
pub async fn rotate(
    tx: &mut PgConnection,
    master_key: &MasterKey,
    tenant: &str,
    id: &EndpointId,
    overlap_s: u32,
) -> Result<Option<Endpoint>, WebhooksError> {
    let row = sqlx::query_as!(
        Row,
        "UPDATE webhook_endpoints
         SET secret_version = secret_version + 1, rotated_at = clock_timestamp(), secret_check = $3,
             -- The secret before was made of another master key: nobody here can sign with it.
             old_secret_until = CASE WHEN secret_check = $3
                                     THEN clock_timestamp() + $4::bigint * interval '1 second' END
         WHERE endpoint_id = $1 AND tenant_id = $2 AND status <> 'deleted'
         RETURNING endpoint_id, tenant_id, url, kinds, status, disabled_reason, disabled_note, secret_version,
                   old_secret_until, failing_since, created_at, rotated_at",
        id.as_str(),
        tenant,
        &master_key.check(id)[..],
        i64::from(overlap_s),
    )
    .fetch_optional(tx)
    .await?;
    row.map(Endpoint::try_from).transpose()
}

/// Deletes a tenant's endpoint for ever, with whatever waits for it.
///
/// # Errors
/// [`WebhooksError`].
pub async fn delete(tx: &mut PgConnection, tenant: &str, id: &EndpointId) -> Result<Wish<()>, WebhooksError> {
    let rows = sqlx::query!(
        "UPDATE webhook_endpoints SET status = 'deleted', disabled_reason = NULL, disabled_note = NULL
         WHERE endpoint_id = $1 AND tenant_id = $2 AND status <> 'deleted' AND disabled_reason IS DISTINCT FROM 'by_operator'",
        id.as_str(),
        tenant,
    )
    .execute(&mut *tx)
    .await?;
    if rows.rows_affected() > 0 { Ok(Wish::Done(())) } else { why_not(tx, tenant, id).await }
}

/// Disables anybody's endpoint, as the bank's own people do, with their words; says whether there is such a one.
///
/// # Errors
/// [`WebhooksError`].
pub async fn disable_as_operator(
    tx: &mut PgConnection,
    id: &EndpointId,
    note: &str,
) -> Result<bool, WebhooksError> {
    let rows = sqlx::query!(
        "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = 'by_operator', disabled_note = $2
         WHERE endpoint_id = $1 AND status <> 'deleted'",
        id.as_str(),
        note,
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected() > 0)
}

/// Has anybody's endpoint told again, whoever disabled it; says whether it was disabled.
///
/// # Errors
/// [`WebhooksError`].
pub async fn enable_as_operator(tx: &mut PgConnection, id: &EndpointId) -> Result<bool, WebhooksError> {
    let rows = sqlx::query!(
        "UPDATE webhook_endpoints
         SET status = 'active', disabled_reason = NULL, disabled_note = NULL, failing_since = NULL
         WHERE endpoint_id = $1 AND status = 'disabled'",
        id.as_str(),
    )
    .execute(tx)
    .await?;
    Ok(rows.rows_affected() > 0)
}
