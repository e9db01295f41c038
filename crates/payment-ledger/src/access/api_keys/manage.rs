//! Keys through their life: made, shown, replaced with an overlap, revoked.

use jiff::Timestamp;
use payment_protocol::ids::{ClientId, KeyId, TenantId};
use sqlx::PgExecutor;

use super::{Caller, Scopes, caller, key_id, scopes};
use crate::{Ledger, LedgerError};

/// A key to be stored. The key itself stays outside.
#[derive(Clone, Debug)]
pub struct NewKey<'a> {
    /// Its public id.
    pub id: &'a KeyId,
    /// Its SHA-256.
    pub hash: &'a [u8],
    /// Its recognisable beginning, too short to guess the rest from.
    pub prefix: &'a str,
    /// Whom it belongs to.
    pub caller: &'a Caller,
    /// What it may do.
    pub scopes: &'a Scopes,
    /// For how many seconds it is good; none for ever.
    pub lifetime_s: Option<i64>,
}

/// The key that takes another's place: its client, scopes and lifetime are the other's.
#[derive(Clone, Debug)]
pub struct Successor<'a> {
    /// Its public id.
    pub id: &'a KeyId,
    /// Its SHA-256.
    pub hash: &'a [u8],
    /// Its recognisable beginning.
    pub prefix: &'a str,
}

/// A key and its successor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotated {
    /// The old one, with its end.
    pub old: KeyView,
    /// The one that takes its place.
    pub new: KeyView,
}

/// What became of a wish to rotate a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Both are good now: the successor, and until its end the old one.
    Done(Box<Rotated>),
    /// There is no such key.
    Unknown,
    /// It was rotated before; this key took its place.
    RotatedTo(KeyId),
    /// It is not good any more.
    Over(KeyStatus),
}

/// What became of a wish to revoke a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Revocation {
    /// It is not good from now on.
    Done(KeyView),
    /// There is no such key.
    Unknown,
    /// It was revoked before.
    Before(KeyView),
}

/// Whether a key is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyStatus {
    /// It is.
    Active,
    /// Its time is over.
    Expired,
    /// Somebody revoked it.
    Revoked,
}

impl KeyStatus {
    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

/// A key as operators see it: neither the key nor its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// Its public id.
    pub id: KeyId,
    /// How the key begins.
    pub prefix: String,
    /// Whom it belongs to.
    pub caller: Caller,
    /// What it may do.
    pub scopes: Scopes,
    /// Whether it is good now.
    pub status: KeyStatus,
    /// When it was made.
    pub created_at: Timestamp,
    /// Until when it is good; none for ever.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// The key that took its place.
    pub rotated_to: Option<KeyId>,
}

impl Ledger {
    /// Stores a key. Storing the same key again changes nothing, whoever it belongs to.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn store_key(&self, key: &NewKey<'_>) -> Result<(), LedgerError> {
        sqlx::query!(
            "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes, expires_at)
             VALUES ($1, $2, $3, $4, $5, $6, now() + $7::bigint * interval '1 second')
             ON CONFLICT (key_hash) DO NOTHING",
            key.id.as_str(),
            key.hash,
            key.prefix,
            key.caller.tenant.as_str(),
            key.caller.client.as_str(),
            &key.scopes.stored(),
            key.lifetime_s,
        )
        .execute(&self.pool)
        .await?;
        Ok(())
    }

    /// Puts `successor` in the place of a key that is good. The old one is good for `overlap_s` seconds
    /// more, but never for longer than it would have been.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn rotate_key(
        &self,
        id: &KeyId,
        successor: &Successor<'_>,
        overlap_s: i64,
    ) -> Result<Rotation, LedgerError> {
        let mut tx = self.pool.begin().await?;
        // Two rotations, or a rotation and a revocation, at once: one after the other.
        sqlx::query!("SELECT id FROM api_keys WHERE id = $1 FOR UPDATE", id.as_str())
            .fetch_optional(&mut *tx)
            .await?;
        let Some(old) = view(&mut *tx, id).await? else { return Ok(Rotation::Unknown) };
        match old {
            KeyView { status: KeyStatus::Active, rotated_to: None, .. } => {}
            KeyView { status: KeyStatus::Active, rotated_to: Some(next), .. } => {
                return Ok(Rotation::RotatedTo(next));
            }
            KeyView { status, .. } => return Ok(Rotation::Over(status)),
        }
        sqlx::query!(
            "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes, expires_at)
             SELECT $2, $3, $4, tenant_id, client_id, scopes, now() + (expires_at - created_at)
             FROM api_keys WHERE id = $1",
            id.as_str(),
            successor.id.as_str(),
            successor.hash,
            successor.prefix,
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!(
            "UPDATE api_keys
             SET rotated_to = $2, expires_at = least(expires_at, clock_timestamp() + $3::bigint * interval '1 second')
             WHERE id = $1",
            id.as_str(),
            successor.id.as_str(),
            overlap_s,
        )
        .execute(&mut *tx)
        .await?;
        let both = (view(&mut *tx, id).await?, view(&mut *tx, successor.id).await?);
        tx.commit().await?;
        match both {
            (Some(old), Some(new)) => Ok(Rotation::Done(Box::new(Rotated { old, new }))),
            _ => Ok(Rotation::Unknown),
        }
    }

    /// Ends a key at once. Its successor, if it has one, stays good.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn revoke_key(&self, id: &KeyId) -> Result<Revocation, LedgerError> {
        let revoked = sqlx::query!(
            "UPDATE api_keys SET revoked_at = clock_timestamp() WHERE id = $1 AND revoked_at IS NULL",
            id.as_str(),
        )
        .execute(&self.pool)
        .await?;
        Ok(match view(&self.pool, id).await? {
            None => Revocation::Unknown,
            Some(view) if revoked.rows_affected() == 0 => Revocation::Before(view),
            Some(view) => Revocation::Done(view),
        })
    }

    /// A key by its id.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn key(&self, id: &KeyId) -> Result<Option<KeyView>, LedgerError> {
        view(&self.pool, id).await
    }

    /// All keys, good or not, by tenant, client and age; only of one tenant, only of one client.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn keys(
        &self,
        tenant: Option<&TenantId>,
        client: Option<&ClientId>,
    ) -> Result<Vec<KeyView>, LedgerError> {
        views(&self.pool, None, tenant, client).await
    }
}

/// A key as it is stored.
struct Row {
    id: String,
    prefix: String,
    tenant_id: String,
    client_id: String,
    scopes: Vec<String>,
    created_at: jiff_sqlx::Timestamp,
    expires_at: Option<jiff_sqlx::Timestamp>,
    revoked_at: Option<jiff_sqlx::Timestamp>,
    rotated_to: Option<String>,
    expired: bool,
}

impl Row {
    fn view(self) -> Result<KeyView, LedgerError> {
        let status = match (&self.revoked_at, self.expired) {
            (Some(_), _) => KeyStatus::Revoked,
            (None, true) => KeyStatus::Expired,
            (None, false) => KeyStatus::Active,
        };
        Ok(KeyView {
            caller: caller(&self.id, self.tenant_id, self.client_id)?,
            scopes: scopes(&self.id, &self.scopes)?,
            id: key_id(self.id)?,
            prefix: self.prefix,
            status,
            created_at: self.created_at.to_jiff(),
            expires_at: self.expires_at.map(|at| at.to_jiff()),
            revoked_at: self.revoked_at.map(|at| at.to_jiff()),
            rotated_to: self.rotated_to.map(key_id).transpose()?,
        })
    }
}

async fn view(executor: impl PgExecutor<'_>, id: &KeyId) -> Result<Option<KeyView>, LedgerError> {
    Ok(views(executor, Some(id), None, None).await?.pop())
}

async fn views(
    executor: impl PgExecutor<'_>,
    id: Option<&KeyId>,
    tenant: Option<&TenantId>,
    client: Option<&ClientId>,
) -> Result<Vec<KeyView>, LedgerError> {
    let rows = sqlx::query_as!(
        Row,
        r#"SELECT id, prefix, tenant_id, client_id, scopes, created_at, expires_at, revoked_at, rotated_to,
               coalesce(expires_at <= clock_timestamp(), false) AS "expired!"
           FROM api_keys
           WHERE ($1::text IS NULL OR id = $1) AND ($2::text IS NULL OR tenant_id = $2)
               AND ($3::text IS NULL OR client_id = $3)
           ORDER BY tenant_id, client_id, created_at, id"#,
        id.map(KeyId::as_str),
        tenant.map(TenantId::as_str),
        client.map(ClientId::as_str),
    )
    .fetch_all(executor)
    .await?;
    rows.into_iter().map(Row::view).collect()
}
