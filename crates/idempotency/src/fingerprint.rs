//! Whether two requests under one key are the same request (S3.3).

use crate::scope::digest;

/// SHA-256 of a request, salted with its tenant: the hashes of two tenants cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a request. `body` is its canonical form, made by the caller: what may
    /// differ between a request and its honest repeat (spaces, order of fields) must not be in it.
    #[must_use]
    pub fn of(tenant: &str, method: &str, path: &str, body: &[u8]) -> Self {
        Self(digest(&[tenant.as_bytes(), method.as_bytes(), path.as_bytes(), body]))
    }

    /// The hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts_and_none_runs_into_the_next() {
        let first = Fingerprint::of("t", "POST", "/a", b"{}");
        assert_eq!(first, Fingerprint::of("t", "POST", "/a", b"{}"));
        for other in [
            Fingerprint::of("u", "POST", "/a", b"{}"),
            Fingerprint::of("t", "PUT", "/a", b"{}"),
            Fingerprint::of("t", "POST", "/b", b"{}"),
            Fingerprint::of("t", "POST", "/a", b"{ }"),
            Fingerprint::of("t", "POST", "/a{", b"}"),
            Fingerprint::of("tPOST", "", "/a", b"{}"),
        ] {
            assert_ne!(first, other);
        }
    }
}
