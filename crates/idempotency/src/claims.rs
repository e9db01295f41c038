//! Claims of one transaction, for one key or for many: which requests may be executed.
//!
//! The database function `idempotency.claim` first takes the advisory locks and then reads the rows in a statement of its
//! own. A lock is tried, not waited for: a waiting duplicate would hold a connection. Advisory locks are re-entrant within
//! a session, so the caller must pass distinct keys.

use jiff::Timestamp;
use postgres_kit::Connection;

use crate::claim_request::ClaimRequest;
use crate::rows::{self, KeyRow, SCHEMA_VERSION};
use crate::stored_response::StoredResponse;
use crate::{IdempotencyError, IdempotencyOptions};

/// State of one claimed key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// The key is unused: the request may be executed. The lock is held until the transaction ends.
    New,
    /// This very request was executed, but the commit had not been confirmed to the worker.
    OwnResponse(StoredResponse),
    /// An earlier request was executed.
    Replay(StoredResponse),
    /// Another request holds the key.
    InProgress,
    /// The key was used for a different request.
    Mismatch,
}

/// The claims of one transaction.
#[derive(Debug)]
pub(crate) struct Claims {
    /// When the claims reached the database, by its clock.
    pub(crate) claimed_at: Timestamp,
    /// One state for each request, in their order.
    pub(crate) states: Vec<KeyState>,
}

/// Claims the distinct keys of `requests` until the end of the transaction, which must be READ COMMITTED. From here on the
/// database aborts the transaction if it stays idle, or in one statement, for longer than the lease.
pub(crate) async fn claim_keys(
    tx: &mut Connection,
    requests: &[&ClaimRequest],
    options: &IdempotencyOptions,
) -> Result<Claims, IdempotencyError> {
    let lookups = rows::lock_and_look_up(tx, requests, options).await?;
    let mut states = Vec::with_capacity(requests.len());
    let mut claimed_at = Timestamp::UNIX_EPOCH;
    for (request, lookup) in requests.iter().zip(lookups) {
        // Checked before the effect, which would be in vain.
        if !lookup.has_partition {
            return Err(IdempotencyError::PartitionMissing);
        }
        claimed_at = lookup.claimed_at;
        states.push(match lookup.row {
            // Without the lock, only the row of a completed request is read: it never changes.
            Some(row) if lookup.is_lock_granted || row.response.is_some() => {
                state_of(tx, request, row).await?
            }
            None if lookup.is_lock_granted => KeyState::New,
            Some(_) | None => KeyState::InProgress,
        });
    }
    Ok(Claims { claimed_at, states })
}

async fn state_of(
    tx: &mut Connection,
    request: &ClaimRequest,
    row: KeyRow,
) -> Result<KeyState, IdempotencyError> {
    if row.schema_version > SCHEMA_VERSION {
        let (version, supported) = (row.schema_version, SCHEMA_VERSION);
        return Err(IdempotencyError::UnsupportedSchemaVersion { version, supported });
    }
    match row.response {
        _ if row.request_hash != request.fingerprint.as_bytes() => Ok(KeyState::Mismatch),
        Some(response) if row.token == request.token => Ok(KeyState::OwnResponse(response)),
        Some(response) => Ok(KeyState::Replay(response)),
        None if !row.is_lease_expired => Ok(KeyState::InProgress),
        // The holder's lease has expired; the advisory lock admits one successor.
        None => {
            rows::delete_in_progress(tx, request.id, row.token).await?;
            Ok(KeyState::New)
        }
    }
}

/// Stores the responses of new requests in the transaction that holds their keys; they become valid with its commit.
pub(crate) async fn complete(
    tx: &mut Connection,
    completed: &[(&ClaimRequest, &StoredResponse)],
    options: &IdempotencyOptions,
) -> Result<(), IdempotencyError> {
    if let Some((_, response)) = completed.iter().find(|(_, response)| !response.is_storable()) {
        return Err(IdempotencyError::NotStorable { status: response.status });
    }
    let written = rows::insert_completed(tx, completed, options).await?;
    // No live row exists under the lock, so a missing insert means a write without a claim.
    if written == completed.len() as u64 { Ok(()) } else { Err(IdempotencyError::ClaimLost) }
}
