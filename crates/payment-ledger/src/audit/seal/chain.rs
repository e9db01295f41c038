//! The hash chains: a journal entry becomes a hash, and a batch of entries a link; each entry of the audit log is a link. No SQL.
//!
//! An encoding is a sequence of fields, each prefixed by its length (8 bytes, big-endian), so different entries have
//! different bytes. Its first field names the version: a new encoding has a new name, and old links stay valid.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// First field of an entry's encoding.
const ENTRY: &[u8] = b"journal-entry/1";
/// First field of the encoding of the audit log's entry.
const AUDIT_LOG_ENTRY: &[u8] = b"audit-log-entry/1";
/// First field of a batch's encoding.
const BATCH: &[u8] = b"journal-batch/1";
/// Bytes of a hash.
const HASH_BYTES: usize = 32;

/// A SHA-256 of the chain. Displayed and parsed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SealHash([u8; HASH_BYTES]);

/// Not a [`SealHash`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the text is not a seal hash; give 64 hexadecimal digits")]
pub struct SealHashError;

impl SealHash {
    /// The previous hash of the first batch.
    pub(super) const NONE: Self = Self([0; HASH_BYTES]);

    /// The bytes, as stored.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<&[u8]> for SealHash {
    type Error = SealHashError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self).map_err(|_| SealHashError)
    }
}

impl From<SealHash> for String {
    fn from(hash: SealHash) -> Self {
        hash.to_string()
    }
}

impl TryFrom<String> for SealHash {
    type Error = SealHashError;

    fn try_from(text: String) -> Result<Self, SealHashError> {
        text.parse()
    }
}

impl FromStr for SealHash {
    type Err = SealHashError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // from_str_radix accepts a sign.
        if text.len() != 2 * HASH_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(SealHashError);
        }
        let mut hash = [0; HASH_BYTES];
        for (n, byte) in hash.iter_mut().enumerate() {
            let digits = text.get(2 * n..2 * n + 2).ok_or(SealHashError)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| SealHashError)?;
        }
        Ok(Self(hash))
    }
}

impl fmt::Display for SealHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SealHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A journal entry with every sealed column: a column missing here would not be sealed.
#[derive(Clone, Debug)]
pub(super) struct SealedEntry {
    pub(super) entry_id: i64,
    pub(super) operation_key: String,
    pub(super) payment_id: Option<String>,
    pub(super) kind: String,
    pub(super) debit_account: String,
    pub(super) credit_account: String,
    pub(super) amount_minor: i64,
    pub(super) currency: String,
    pub(super) posted_at: jiff_sqlx::Timestamp,
}

impl SealedEntry {
    /// Hash of the entry's content.
    pub(super) fn hash(&self) -> SealHash {
        let mut encoding = Encoding::new(ENTRY);
        encoding.number(self.entry_id);
        encoding.text(&self.operation_key);
        encoding.optional(self.payment_id.as_deref());
        encoding.text(&self.kind);
        encoding.text(&self.debit_account);
        encoding.text(&self.credit_account);
        encoding.number(self.amount_minor);
        encoding.text(&self.currency);
        encoding.number(self.posted_at.to_jiff().as_microsecond());
        encoding.end()
    }
}

/// An entry of the audit log with every sealed column.
#[derive(Clone, Debug)]
pub(super) struct SealedAuditEntry {
    pub(super) entry_id: i64,
    pub(super) recorded_at: jiff_sqlx::Timestamp,
    pub(super) operator: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) login: String,
    pub(super) address: Option<String>,
    pub(super) program: String,
    pub(super) object: String,
    pub(super) subject: String,
    pub(super) action: String,
    /// As the database writes it.
    pub(super) before: Option<String>,
    /// As the database writes it.
    pub(super) after: Option<String>,
}

impl SealedAuditEntry {
    /// The link of the entry at `position`, after `previous`.
    pub(super) fn link(&self, position: i64, previous: &SealHash) -> SealHash {
        let mut encoding = Encoding::new(AUDIT_LOG_ENTRY);
        encoding.number(position);
        encoding.field(previous.as_bytes());
        encoding.number(self.entry_id);
        encoding.number(self.recorded_at.to_jiff().as_microsecond());
        encoding.optional(self.operator.as_deref());
        encoding.optional(self.reason.as_deref());
        encoding.text(&self.login);
        encoding.optional(self.address.as_deref());
        for text in [&self.program, &self.object, &self.subject, &self.action] {
            encoding.text(text);
        }
        encoding.optional(self.before.as_deref());
        encoding.optional(self.after.as_deref());
        encoding.end()
    }
}

/// The link of a batch.
pub(super) struct HashLink(Encoding);

impl HashLink {
    /// Begins batch number `batch`, whose first entry is at `first_position`, after `previous`.
    pub(super) fn new(batch: i64, first_position: i64, previous: &SealHash) -> Self {
        let mut encoding = Encoding::new(BATCH);
        encoding.number(batch);
        encoding.number(first_position);
        encoding.field(previous.as_bytes());
        Self(encoding)
    }

    /// Appends an entry, by its hash.
    pub(super) fn push(&mut self, entry: &SealHash) {
        self.0.field(entry.as_bytes());
    }

    /// The hash of the batch.
    pub(super) fn end(self) -> SealHash {
        self.0.end()
    }
}

struct Encoding(Sha256);

impl Encoding {
    fn new(version: &[u8]) -> Self {
        let mut encoding = Self(Sha256::new());
        encoding.field(version);
        encoding
    }

    fn field(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_be_bytes());
        self.0.update(bytes);
    }

    fn text(&mut self, text: &str) {
        self.field(text.as_bytes());
    }

    /// Distinguishes no text from an empty one.
    fn optional(&mut self, text: Option<&str>) {
        self.number(text.is_some().into());
        self.text(text.unwrap_or_default());
    }

    fn number(&mut self, number: i64) {
        self.field(&number.to_be_bytes());
    }

    fn end(self) -> SealHash {
        SealHash(self.0.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> SealedEntry {
        SealedEntry {
            entry_id: 1,
            operation_key: "fund:a".into(),
            payment_id: None,
            kind: "fund".into(),
            debit_account: "internal:funding:EUR".into(),
            credit_account: "a".into(),
            amount_minor: 5,
            currency: "EUR".into(),
            posted_at: jiff_sqlx::ToSqlx::to_sqlx(jiff::Timestamp::UNIX_EPOCH),
        }
    }

    #[test]
    fn the_hash_of_a_journal_entry_covers_every_field() {
        type Change = fn(&mut SealedEntry);
        let changes: [Change; 11] = [
            |entry| entry.entry_id = 2,
            |entry| entry.operation_key = "fund:b".into(),
            |entry| entry.payment_id = Some(String::new()),
            |entry| entry.payment_id = Some("p".into()),
            |entry| entry.kind = "reserve".into(),
            |entry| entry.debit_account = "b".into(),
            |entry| entry.credit_account = "b".into(),
            |entry| entry.amount_minor = 6,
            |entry| entry.currency = "USD".into(),
            |entry| {
                entry.posted_at = jiff_sqlx::ToSqlx::to_sqlx(jiff::Timestamp::from_microsecond(1).unwrap())
            },
            // The same bytes, split differently.
            |entry| (entry.operation_key, entry.kind) = ("fund:af".into(), "und".into()),
        ];
        let mut hashes = vec![entry().hash()];
        for change in changes {
            let mut changed = entry();
            change(&mut changed);
            let hash = changed.hash();
            assert!(!hashes.contains(&hash), "{changed:?}");
            hashes.push(hash);
        }
    }

    #[test]
    fn the_link_of_an_audit_log_entry_covers_every_field() {
        let entry = SealedAuditEntry {
            entry_id: 1,
            recorded_at: jiff_sqlx::ToSqlx::to_sqlx(jiff::Timestamp::UNIX_EPOCH),
            operator: Some("ann".into()),
            reason: None,
            login: "payments".into(),
            address: None,
            program: "payctl".into(),
            object: "accounts".into(),
            subject: "a".into(),
            action: "update".into(),
            before: Some("{}".into()),
            after: Some("{}".into()),
        };
        type Change = fn(&mut SealedAuditEntry);
        let changes: [Change; 13] = [
            |entry| entry.entry_id = 2,
            |entry| {
                entry.recorded_at = jiff_sqlx::ToSqlx::to_sqlx(jiff::Timestamp::from_microsecond(1).unwrap())
            },
            |entry| entry.operator = None,
            |entry| entry.operator = Some("bob".into()),
            |entry| entry.reason = Some(String::new()),
            |entry| entry.login = "postgres".into(),
            |entry| entry.address = Some("10.0.0.1".into()),
            |entry| entry.program = "psql".into(),
            |entry| entry.object = "limits".into(),
            |entry| entry.subject = "b".into(),
            |entry| entry.action = "insert".into(),
            |entry| entry.before = None,
            |entry| entry.after = Some("{ }".into()),
        ];
        let mut links = vec![
            entry.link(1, &SealHash::NONE),
            entry.link(2, &SealHash::NONE),
            entry.link(1, &SealHash([1; 32])),
        ];
        for change in changes {
            let mut changed = entry.clone();
            change(&mut changed);
            links.push(changed.link(1, &SealHash::NONE));
        }
        let count = links.len();
        assert_eq!(links.into_iter().collect::<std::collections::HashSet<_>>().len(), count);
    }

    #[test]
    fn a_seal_batch_hash_covers_number_position_previous_hash_and_order() {
        let (a, b) = (SealHash([1; 32]), SealHash([2; 32]));
        let link = |batch, first, previous: &SealHash, entries: &[SealHash]| {
            let mut link = HashLink::new(batch, first, previous);
            entries.iter().for_each(|entry| link.push(entry));
            link.end()
        };
        let one = link(1, 1, &SealHash::NONE, &[a, b]);
        assert_eq!(one, link(1, 1, &SealHash::NONE, &[a, b]));
        for other in [
            link(2, 1, &SealHash::NONE, &[a, b]),
            link(1, 2, &SealHash::NONE, &[a, b]),
            link(1, 1, &a, &[a, b]),
            link(1, 1, &SealHash::NONE, &[b, a]),
            link(1, 1, &SealHash::NONE, &[a]),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn a_seal_hash_is_parsed_from_its_own_text() {
        let hash = entry().hash();
        assert_eq!(hash.to_string().parse(), Ok(hash));
        for wrong in ["", "00", &"+1".repeat(32), &"é".repeat(32), &hash.to_string()[1..]] {
            assert_eq!(wrong.parse::<SealHash>(), Err(SealHashError), "{wrong}");
        }
    }
}
