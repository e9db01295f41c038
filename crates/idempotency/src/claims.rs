//! Who carries out what: the claims of one transaction, for one key or for many.
//!
//! First the locks, then the look-up in a statement of its own (the database function `idempotency_claim`). A lock is
//! tried, not waited for: a twin that waits would hold a connection. Locks are re-entrant within a session, so the keys
//! of one transaction must differ; whoever makes it sees to that.

use jiff::Timestamp;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use crate::answer::Answer;
use crate::record::{self, Record, SCHEMA_VERSION};
use crate::scope::ScopeId;
use crate::{Fingerprint, IdempotencyError, Scope, Terms};

/// One request under its key.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    pub(crate) id: ScopeId,
    pub(crate) tenant: String,
    pub(crate) client: String,
    pub(crate) key: String,
    pub(crate) fingerprint: Fingerprint,
    /// Names this request among all that come under the key.
    pub(crate) token: Uuid,
}

/// What one request of a transaction may do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Carry it out. The lock is held until the transaction ends.
    New,
    /// It was carried out by this very request: the commit had no answer.
    Own(Answer),
    /// It was carried out before.
    Replay(Answer),
    /// Another request holds the key.
    InProgress,
    /// The key was used for another request.
    Mismatch,
}

/// The claims of one transaction.
#[derive(Debug)]
pub(crate) struct Claims {
    /// When they reached the database, by its clock.
    pub(crate) claimed_at: Timestamp,
    /// For each request, in their order.
    pub(crate) turns: Vec<Turn>,
}

impl Keyed {
    pub(crate) fn new(scope: &Scope<'_>, fingerprint: &Fingerprint) -> Self {
        Self {
            id: scope.id(),
            tenant: scope.tenant.to_owned(),
            client: scope.client.to_owned(),
            key: scope.key.as_str().to_owned(),
            fingerprint: *fingerprint,
            token: Uuid::new_v4(),
        }
    }
}

/// Claims the keys of `requests`, which differ, for the length of the transaction, which must be READ COMMITTED. From
/// here on the database ends it when it stands still for longer than the lease inside or between statements.
pub(crate) async fn take(
    tx: &mut PgConnection,
    requests: &[&Keyed],
    terms: &Terms,
) -> Result<Claims, IdempotencyError> {
    let found = record::claim(tx, requests, terms).await?;
    let mut turns = Vec::with_capacity(requests.len());
    let mut claimed_at = Timestamp::UNIX_EPOCH;
    for (request, found) in requests.iter().zip(found) {
        // Before the effect is brought about in vain.
        if !found.has_partition {
            return Err(IdempotencyError::DayMissing);
        }
        claimed_at = found.claimed_at;
        turns.push(match found.record {
            _ if !found.is_granted => Turn::InProgress,
            None => Turn::New,
            Some(record) => turn(tx, request, record).await?,
        });
    }
    Ok(Claims { claimed_at, turns })
}

async fn turn(tx: &mut PgConnection, request: &Keyed, found: Record) -> Result<Turn, IdempotencyError> {
    if found.schema_version > SCHEMA_VERSION {
        let (version, known) = (found.schema_version, SCHEMA_VERSION);
        return Err(IdempotencyError::LaterVersion { version, known });
    }
    match found.answer {
        _ if found.request_hash != request.fingerprint.as_bytes() => Ok(Turn::Mismatch),
        Some(answer) if found.token == request.token => Ok(Turn::Own(answer)),
        Some(answer) => Ok(Turn::Replay(answer)),
        None if !found.lease_passed => Ok(Turn::InProgress),
        // Its holder is gone: under the lock, nobody else takes it over.
        None => {
            record::remove(tx, request.id, found.token).await?;
            Ok(Turn::New)
        }
    }
}

/// Stores the answers of new requests in the transaction that holds their keys. They are true once that commits.
pub(crate) async fn complete(
    tx: &mut PgConnection,
    answered: &[(&Keyed, &Answer)],
    terms: &Terms,
) -> Result<(), IdempotencyError> {
    if let Some((_, answer)) = answered.iter().find(|(_, answer)| !answer.is_storable()) {
        return Err(IdempotencyError::NotStorable { status: answer.status });
    }
    let written = record::store(tx, answered, terms).await?;
    // Under the lock there is no live row: something wrote without a claim.
    if written == answered.len() as u64 { Ok(()) } else { Err(IdempotencyError::Overtaken) }
}
