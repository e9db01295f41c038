//! The fingerprint of a request: requests with the same key must have the same fingerprint (S3.3).

use crate::scope::digest;

/// SHA-256 of a request, salted with its tenant, so that hashes of different tenants cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of a request. `body` is the canonical form made by the caller, without anything that may differ
    /// between a request and its retry (spaces, order of fields).
    #[must_use]
    pub fn of(tenant: &str, method: &str, path: &str, body: &[u8]) -> Self {
        Self(digest(&[tenant.as_bytes(), method.as_bytes(), path.as_bytes(), body]))
    }

    /// The bytes of the hash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_http_request_changes_its_idempotency_fingerprint() {
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
