//! The owner of a key: the same text from two clients is two keys (S4.2).

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::IdempotencyKey;

/// A key with the tenant and the client that own it.
#[derive(Clone, Copy, Debug)]
pub struct KeyScope<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The client within the tenant; unchanged by a rotation of its credentials.
    pub client: &'a str,
    /// The key that the client sent.
    pub key: &'a IdempotencyKey,
}

impl KeyScope<'_> {
    /// The id of the row of this key; two scopes collide with a probability of 1 in 2^128.
    #[must_use]
    pub(crate) fn id(&self) -> ScopeId {
        let hash = digest(&[self.tenant.as_bytes(), self.client.as_bytes(), self.key.as_str().as_bytes()]);
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = hash;
        ScopeId(Uuid::from_bytes([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]))
    }
}

/// Fixed-length id of a scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ScopeId(pub(crate) Uuid);

impl ScopeId {
    /// Number of the advisory lock of this key. Two scopes with the same number only exclude each other; another user
    /// of advisory locks in the same database has the same number with a probability of 1 in 2^64.
    pub(crate) fn lock_number(self) -> i64 {
        let (high, low) = self.0.as_u64_pair();
        // Not the id's own bits, which other code may use for locks of its own.
        (high ^ low.rotate_left(17) ^ LOCK_DOMAIN).cast_signed()
    }
}

/// Separates this crate's locks from those of others.
const LOCK_DOMAIN: u64 = 0x6964_656d_706f_7465;

/// SHA-256 over the parts, each prefixed with its length, so that no two lists have the same input.
pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_of_different_scopes_have_different_lock_numbers() {
        let number = |tenant, client, key: &str| {
            let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
            KeyScope { tenant, client, key: &key }.id().lock_number()
        };
        assert_eq!(number("t", "c", "k"), number("t", "c", "k"));
        assert_ne!(number("t", "c", "k"), number("tc", "", "k"));
        assert_ne!(number("t", "c", "k"), number("t", "ck", "k"));
    }

    #[test]
    fn each_bit_of_a_lock_number_is_set_for_half_of_the_scopes() {
        let numbers = (0..1_000_u64).map(|n| {
            ScopeId(Uuid::from_bytes(digest(&[&n.to_be_bytes()])[..16].try_into().unwrap())).lock_number()
        });
        let numbers: Vec<i64> = numbers.collect();
        for bit in 0..64 {
            let set = numbers.iter().filter(|number| **number >> bit & 1 == 1).count();
            assert!((400..=600).contains(&set), "bit {bit} is set for {set} of 1000 scopes");
        }
    }
}
