//! The chain over the audit log: each entry is a link, since operators act seldom. Sealed after its commit, as the journal is.

use postgres_kit::Connection;

use std::collections::{BTreeMap, BTreeSet};

use super::chain::SealedAuditEntry;
use super::verify::VerificationReport;
use super::{BatchSize, SealHash, SealOutcome, nothing_to_seal, stored_hash};
use crate::{Ledger, LedgerError};

/// Seals read per page.
const SEALS_AT_ONCE: i64 = 1_000;

/// A row of `audit_log_seals`.
struct Seal {
    position: i64,
    entry_id: i64,
    previous_hash: Vec<u8>,
    hash: Vec<u8>,
}

impl Ledger {
    /// Seals unsealed entries of the audit log, unless another sealer is running.
    ///
    /// # Errors
    /// [`LedgerError`]: unknown whether the entries were sealed; the next call continues from the committed head.
    pub async fn seal_audit_log(&self, size: BatchSize) -> Result<SealOutcome, LedgerError> {
        let Some(mut tx) = self.lock_sealer().await? else { return Ok(SealOutcome::Busy) };
        let ids =
            sqlx::query_scalar!("SELECT entry_id FROM audit_log_unsealed ORDER BY entry_id LIMIT $1", size.0)
                .fetch_all(&mut *tx)
                .await?;
        // One that was deleted before it was sealed stays in audit_log_unsealed, where the verification finds it.
        let entries = entries(&mut tx, &ids).await?;
        if entries.is_empty() {
            return nothing_to_seal(tx).await;
        }
        let last = sqlx::query!("SELECT position, hash FROM audit_log_seals ORDER BY position DESC LIMIT 1")
            .fetch_optional(&mut *tx)
            .await?;
        let (mut position, mut head) = match last {
            None => (0, SealHash::NONE),
            Some(last) => {
                let id = format!("position {} of the audit log", last.position);
                (last.position, stored_hash(id, &last.hash)?)
            }
        };
        let (mut ids, mut positions, mut previous_hashes, mut hashes) = (vec![], vec![], vec![], vec![]);
        for entry in entries.values() {
            position += 1;
            let link = entry.link(position, &head);
            ids.push(entry.entry_id);
            positions.push(position);
            previous_hashes.push(head.as_bytes().to_vec());
            hashes.push(link.as_bytes().to_vec());
            head = link;
        }
        sqlx::query!(
            "INSERT INTO audit_log_seals (position, entry_id, previous_hash, hash)
             SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[])",
            &positions,
            &ids,
            &previous_hashes,
            &hashes,
        )
        .execute(&mut *tx)
        .await?;
        sqlx::query!("DELETE FROM audit_log_unsealed WHERE entry_id = ANY ($1)", &ids)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(SealOutcome::batch(entries.len(), size))
    }
}

/// The entries with these numbers that exist.
async fn entries(tx: &mut Connection, ids: &[i64]) -> Result<BTreeMap<i64, SealedAuditEntry>, LedgerError> {
    let entries = sqlx::query_as!(
        SealedAuditEntry,
        "SELECT entry_id, recorded_at, operator, reason, login, address, program, object, subject, action,
                before::text, after::text
         FROM audit_log WHERE entry_id = ANY ($1)",
        ids,
    )
    .fetch_all(tx)
    .await?;
    Ok(entries.into_iter().map(|entry| (entry.entry_id, entry)).collect())
}

/// Recomputes the chain from the audit log, and finds entries that are neither sealed nor about to be. Takes the heads that the chain
/// contains out of `missing`.
pub(super) async fn verify(
    tx: &mut Connection,
    verified: &mut VerificationReport,
    missing: &mut BTreeSet<SealHash>,
) -> Result<(), LedgerError> {
    let (mut position, mut previous) = (0, SealHash::NONE.as_bytes().to_vec());
    loop {
        let seals = sqlx::query_as!(
            Seal,
            "SELECT position, entry_id, previous_hash, hash FROM audit_log_seals
             WHERE position > $1 ORDER BY position LIMIT $2",
            position,
            SEALS_AT_ONCE,
        )
        .fetch_all(&mut *tx)
        .await?;
        if seals.is_empty() {
            break;
        }
        let ids: Vec<i64> = seals.iter().map(|seal| seal.entry_id).collect();
        let entries = entries(tx, &ids).await?;
        for seal in seals {
            let subject = format!("audit log position {}", seal.position);
            if seal.position != position + 1 || seal.previous_hash != previous {
                let detail = format!("does not follow position {position}");
                verified.add_finding("audit_log_chain_broken", subject.clone(), detail);
            }
            let entry = format!("audit log entry {}", seal.entry_id);
            match (entries.get(&seal.entry_id), SealHash::try_from(seal.previous_hash.as_slice())) {
                (None, _) => {
                    let detail = format!("sealed at position {}, but not in the audit log", seal.position);
                    verified.add_finding("audit_log_entry_missing", entry, detail);
                }
                (Some(sealed), Ok(before)) if sealed.link(seal.position, &before).as_bytes() == seal.hash => {
                }
                (Some(_), _) => {
                    let detail = format!("its seal at position {} does not match it", seal.position);
                    verified.add_finding("audit_log_entry_changed", entry, detail);
                }
            }
            let head = SealHash::try_from(seal.hash.as_slice()).ok();
            if let Some(head) = head {
                missing.remove(&head);
            }
            verified.audit_log_entries += 1;
            verified.audit_log_head = head;
            (position, previous) = (seal.position, seal.hash);
        }
    }
    find_unsealed(tx, verified).await
}

/// Counts the entries that are to be sealed, and finds those that are not in the books as they should be.
async fn find_unsealed(tx: &mut Connection, verified: &mut VerificationReport) -> Result<(), LedgerError> {
    verified.audit_log_unsealed =
        sqlx::query_scalar!(r#"SELECT count(*) AS "count!" FROM audit_log_unsealed"#)
            .fetch_one(&mut *tx)
            .await?;
    let inserted = sqlx::query_scalar!(
        "SELECT entry_id FROM audit_log l
         WHERE NOT EXISTS (SELECT FROM audit_log_seals s WHERE s.entry_id = l.entry_id)
           AND NOT EXISTS (SELECT FROM audit_log_unsealed u WHERE u.entry_id = l.entry_id)
         ORDER BY entry_id LIMIT 100",
    )
    .fetch_all(&mut *tx)
    .await?;
    for id in inserted {
        let detail = "neither sealed nor in audit_log_unsealed".to_owned();
        verified.add_finding("audit_log_entry_inserted", format!("audit log entry {id}"), detail);
    }
    let missing = sqlx::query_scalar!(
        "SELECT entry_id FROM audit_log_unsealed u
         WHERE NOT EXISTS (SELECT FROM audit_log l WHERE l.entry_id = u.entry_id) ORDER BY entry_id LIMIT 100",
    )
    .fetch_all(tx)
    .await?;
    for id in missing {
        let detail = "in audit_log_unsealed, but not in the audit log".to_owned();
        verified.add_finding("audit_log_entry_missing", format!("audit log entry {id}"), detail);
    }
    Ok(())
}
