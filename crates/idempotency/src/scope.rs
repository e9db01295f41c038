//! Whose key it is. The same text from two clients is two keys (S4.2).

use sha2::{Digest, Sha256};

use crate::IdempotencyKey;

/// Starts every hash of this crate's locks, so that another user of advisory locks in the same
/// database meets them only by a chance of 1 in 2^64.
const LOCK_DOMAIN: &str = "idempotency-lock";

/// A key with the tenant and the client it belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The tenant.
    pub tenant: &'a str,
    /// The client within the tenant; the same through rotation of its credentials.
    pub client: &'a str,
    /// The key it sent.
    pub key: &'a IdempotencyKey,
}

impl Scope<'_> {
    /// Number of the advisory lock. Two scopes that share one by chance only wait for each other.
    pub(crate) fn lock_number(&self) -> i64 {
        let hash = digest(&[
            LOCK_DOMAIN.as_bytes(),
            self.tenant.as_bytes(),
            self.client.as_bytes(),
            self.key.as_str().as_bytes(),
        ]);
        hash.iter().take(8).fold(0, |number, byte| (number << 8) | i64::from(*byte))
    }
}

/// SHA-256 over the parts, each behind its length, so that no two lists share an input.
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
    fn each_scope_has_its_own_lock() {
        let number = |tenant, client, key: &str| {
            let key = IdempotencyKey::parse(key.as_bytes()).unwrap();
            Scope { tenant, client, key: &key }.lock_number()
        };
        assert_eq!(number("t", "c", "k"), number("t", "c", "k"));
        assert_ne!(number("t", "c", "k"), number("tc", "", "k"));
        assert_ne!(number("t", "c", "k"), number("t", "ck", "k"));
    }
}
