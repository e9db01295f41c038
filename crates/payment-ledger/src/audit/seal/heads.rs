//! The heads of the hash chains, signed, for a place outside the database: who may write all tables can rebuild a chain, and cannot change a
//! head that is kept elsewhere, nor sign another one.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::{SealHash, stored_hash};
use crate::{Ledger, LedgerError};

/// What is signed begins with this, so that the signature counts for nothing else.
const PURPOSE: &[u8] = b"instant-payments chain heads/1\n";

/// The last link of a hash chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHead {
    /// Position of the last sealed entry.
    pub position: i64,
    /// Hash of the link.
    pub hash: SealHash,
}

/// The heads at a moment; `None` while nothing is sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainHeads {
    /// When they were read.
    pub at: Timestamp,
    /// Of the journal.
    pub journal: Option<ChainHead>,
    /// Of the audit log.
    pub audit_log: Option<ChainHead>,
}

/// The key that signs heads: Ed25519.
pub struct HeadsKey(Ed25519KeyPair);

/// The key that verifies them: 32 bytes, as base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadsPublicKey([u8; 32]);

/// A key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key of the chain heads is 32 bytes in base64; make one with: openssl rand -base64 32")]
pub struct HeadsKeyError;

/// A line that no key of the heads has signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeadsLineError {
    /// Not a line of heads.
    #[error("the line is incomplete, or not one of chain heads")]
    Malformed,
    /// Signed by another key, or changed.
    #[error("the line is not signed by this key, or was changed")]
    Signature,
}

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    heads: ChainHeads,
    signature: String,
}

impl ChainHeads {
    /// The hashes, which a later verification expects in the chains.
    pub fn hashes(&self) -> impl Iterator<Item = SealHash> {
        [self.journal, self.audit_log].into_iter().flatten().map(|head| head.hash)
    }

    fn signed_bytes(&self) -> serde_json::Result<Vec<u8>> {
        Ok([PURPOSE, &serde_json::to_vec(self)?].concat())
    }
}

impl HeadsKey {
    /// A key from its 32 bytes in base64.
    ///
    /// # Errors
    /// [`HeadsKeyError`].
    pub fn parse(text: &SecretString) -> Result<Self, HeadsKeyError> {
        let bytes = STANDARD.decode(text.expose_secret().trim()).map_err(|_| HeadsKeyError)?;
        Ed25519KeyPair::from_seed_unchecked(&bytes).map(Self).map_err(|_| HeadsKeyError)
    }

    /// The key that verifies what this one signs.
    ///
    /// # Errors
    /// [`HeadsKeyError`]: never for a key that was parsed.
    pub fn public(&self) -> Result<HeadsPublicKey, HeadsKeyError> {
        self.0.public_key().as_ref().try_into().map(HeadsPublicKey).map_err(|_| HeadsKeyError)
    }

    /// A line with the heads and their signature, without a line break.
    ///
    /// # Errors
    /// If it cannot be serialized.
    pub fn sign(&self, heads: &ChainHeads) -> serde_json::Result<String> {
        let signature = STANDARD.encode(self.0.sign(&heads.signed_bytes()?));
        serde_json::to_string(&Line { heads: *heads, signature })
    }
}

impl HeadsPublicKey {
    /// The heads of a line, if the key has signed them.
    ///
    /// # Errors
    /// [`HeadsLineError`].
    pub fn read(&self, line: &str) -> Result<ChainHeads, HeadsLineError> {
        let Line { heads, signature } = serde_json::from_str(line).map_err(|_| HeadsLineError::Malformed)?;
        let signature = STANDARD.decode(signature).map_err(|_| HeadsLineError::Malformed)?;
        let signed = heads.signed_bytes().map_err(|_| HeadsLineError::Malformed)?;
        let key = UnparsedPublicKey::new(&ED25519, self.0);
        key.verify(&signed, &signature).map_err(|_| HeadsLineError::Signature)?;
        Ok(heads)
    }
}

impl FromStr for HeadsPublicKey {
    type Err = HeadsKeyError;

    fn from_str(text: &str) -> Result<Self, HeadsKeyError> {
        let bytes = STANDARD.decode(text.trim()).map_err(|_| HeadsKeyError)?;
        bytes.try_into().map(Self).map_err(|_| HeadsKeyError)
    }
}

impl fmt::Display for HeadsPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl Ledger {
    /// The heads of both chains, as one moment has them.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn chain_heads(&self) -> Result<ChainHeads, LedgerError> {
        let row = sqlx::query!(
            r#"SELECT clock_timestamp() AS "at!: jiff_sqlx::Timestamp", j.last_position AS "position?", j.hash AS "hash?",
                      a.position AS "audit_log_position?", a.hash AS "audit_log_hash?"
               FROM (SELECT) AS one
               LEFT JOIN (SELECT last_position, hash FROM seal_batches ORDER BY batch DESC LIMIT 1) j ON true
               LEFT JOIN (SELECT position, hash FROM audit_log_seals ORDER BY position DESC LIMIT 1) a ON true"#,
        )
        .fetch_one(&self.pool)
        .await?;
        let head = |chain: &str, position: Option<i64>, hash: Option<Vec<u8>>| match (position, hash) {
            (Some(position), Some(hash)) => {
                let hash = stored_hash(format!("position {position} of the {chain}"), &hash)?;
                Ok::<_, LedgerError>(Some(ChainHead { position, hash }))
            }
            _ => Ok(None),
        };
        Ok(ChainHeads {
            at: row.at.to_jiff(),
            journal: head("journal", row.position, row.hash)?,
            audit_log: head("audit log", row.audit_log_position, row.audit_log_hash)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_that_signed_the_heads_verifies_them() {
        let key = |byte: u8| HeadsKey::parse(&STANDARD.encode([byte; 32]).into()).unwrap();
        let hash: SealHash = "ab".repeat(32).parse().unwrap();
        let heads = ChainHeads {
            at: "2026-01-02T03:04:05Z".parse().unwrap(),
            journal: Some(ChainHead { position: 7, hash }),
            audit_log: None,
        };
        let line = key(1).sign(&heads).unwrap();
        let public: HeadsPublicKey = key(1).public().unwrap().to_string().parse().unwrap();
        assert_eq!(public.read(&line), Ok(heads));
        assert_eq!(heads.hashes().collect::<Vec<_>>(), [hash]);
        assert_eq!(key(2).public().unwrap().read(&line), Err(HeadsLineError::Signature));
        let changed = line.replace("\"position\":7", "\"position\":8");
        assert_eq!(public.read(&changed), Err(HeadsLineError::Signature));
        for broken in ["", "{}", &line[..line.len() - 1], &line.replace("signature", "by")] {
            assert_eq!(public.read(broken), Err(HeadsLineError::Malformed), "{broken}");
        }
        for bad in ["", "x", &STANDARD.encode([1; 31]), &STANDARD.encode([1; 33])] {
            assert!(HeadsKey::parse(&bad.into()).is_err() && bad.parse::<HeadsPublicKey>().is_err(), "{bad}");
        }
    }
}
