//! The switch profiles that payments were accepted with. Each is stored once, under the hash of its contents, and never changes: so a
//! hash means the same profile in every database, and a process reads and parses each profile once.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use payment_protocol::SwitchProfile;
use sqlx::PgExecutor;

use crate::LedgerError;

/// Profiles kept in memory. A bank changes its switches' profiles now and then: more are forgotten, and read again.
const KEPT_MAX: usize = 1_000;

static KEPT: LazyLock<RwLock<ByHash>> = LazyLock::new(RwLock::default);

type ByHash = HashMap<Vec<u8>, Arc<SwitchProfile>>;

/// Profiles by their hashes.
pub(crate) struct Profiles(ByHash);

impl Profiles {
    /// The profile of a payment's row.
    ///
    /// # Errors
    /// [`LedgerError::Unreadable`]: it is not stored, or this version cannot parse it.
    pub(crate) fn of(&self, payment_id: &str, hash: &[u8]) -> Result<Arc<SwitchProfile>, LedgerError> {
        self.0.get(hash).cloned().ok_or_else(|| LedgerError::Unreadable {
            id: payment_id.to_owned(),
            column: "profile_hash",
            value: hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// Reads the profiles with these hashes. One that is not stored or that this version cannot parse is left out.
pub(crate) async fn read<'a>(
    database: impl PgExecutor<'_>,
    hashes: impl Iterator<Item = &'a [u8]>,
) -> Result<Profiles, LedgerError> {
    let mut profiles = ByHash::new();
    let mut missing: Vec<Vec<u8>> = Vec::new();
    {
        let kept = KEPT.read().unwrap_or_else(PoisonError::into_inner);
        for hash in hashes {
            match kept.get(hash) {
                Some(profile) => drop(profiles.insert(hash.to_owned(), Arc::clone(profile))),
                None => missing.push(hash.to_owned()),
            }
        }
    }
    if missing.is_empty() {
        return Ok(Profiles(profiles));
    }
    let rows = sqlx::query!(
        "SELECT profile_hash, profile FROM switch_profiles WHERE profile_hash = ANY ($1)",
        &missing as &[Vec<u8>],
    )
    .fetch_all(database)
    .await?;
    let mut kept = KEPT.write().unwrap_or_else(PoisonError::into_inner);
    for row in rows {
        let Ok(profile) = serde_json::from_value::<SwitchProfile>(row.profile) else { continue };
        let profile = Arc::new(profile);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(row.profile_hash.clone(), Arc::clone(&profile));
        profiles.insert(row.profile_hash, profile);
    }
    Ok(Profiles(profiles))
}
