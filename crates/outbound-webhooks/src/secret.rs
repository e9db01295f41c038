//! The secrets that sign deliveries. An endpoint's secret is derived from its id, its version and a master key that only the
//! processes have: the database contains nothing that could sign.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use webhook_signature::Secret;

use crate::EndpointId;

/// Shortest master key, in bytes.
pub const MASTER_KEY_BYTES_MIN: usize = 32;
/// Length of a check value, in bytes.
const CHECK_BYTES: usize = 8;

/// The key from which all secrets are derived. Its Debug output is redacted. Cheap to clone.
#[derive(Clone)]
pub struct MasterKey(Hmac<Sha256>);

/// An invalid master key. The message does not contain it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "outbound_webhooks.master_key must be base64 of at least {MASTER_KEY_BYTES_MIN} bytes; create one with: openssl rand -base64 32"
)]
pub struct MasterKeyError;

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey([redacted])")
    }
}

impl MasterKey {
    /// Parses base64.
    ///
    /// # Errors
    /// [`MasterKeyError`].
    pub fn parse(text: &SecretString) -> Result<Self, MasterKeyError> {
        let bytes = STANDARD.decode(text.expose_secret()).map_err(|_| MasterKeyError)?;
        if bytes.len() < MASTER_KEY_BYTES_MIN {
            return Err(MasterKeyError);
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| MasterKeyError)
    }

    /// The secret of an endpoint as its tenant receives it: `whsec_` and base64.
    #[must_use]
    pub fn encoded_secret(&self, endpoint: &EndpointId, version: i32) -> SecretString {
        webhook_signature::encode_secret(self.bytes(endpoint, version)).into()
    }

    /// The secret of an endpoint, for signing.
    #[must_use]
    pub fn secret(&self, endpoint: &EndpointId, version: i32) -> Secret {
        Secret::from_bytes(self.bytes(endpoint, version))
    }

    /// Check value that distinguishes master keys: eight bytes that reveal neither the key nor a secret.
    #[must_use]
    pub fn check(&self, endpoint: &EndpointId) -> [u8; CHECK_BYTES] {
        let mut check = [0; CHECK_BYTES];
        // A version is a number, so no secret is derived from this label.
        check.copy_from_slice(&self.derive(endpoint, "check")[..CHECK_BYTES]);
        check
    }

    fn bytes(&self, endpoint: &EndpointId, version: i32) -> [u8; 32] {
        self.derive(endpoint, &version.to_string())
    }

    fn derive(&self, endpoint: &EndpointId, label: &str) -> [u8; 32] {
        let mut mac = self.0.clone();
        // The id has a fixed length, so the text is unambiguous.
        mac.update(format!("{endpoint}:{label}").as_bytes());
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: &str = "whe_00000000000000000000000000000001";

    fn key(byte: u8) -> MasterKey {
        MasterKey::parse(&STANDARD.encode([byte; 32]).into()).unwrap()
    }

    #[test]
    fn each_webhook_endpoint_and_secret_version_has_its_own_secret() {
        let (one, other) = (EndpointId::new(ENDPOINT).unwrap(), EndpointId::random());
        let encoded = |key: &MasterKey, id: &EndpointId, version| {
            key.encoded_secret(id, version).expose_secret().to_owned()
        };
        // Fixed, since another derivation would change every receiver's secret. Computed with Python's hmac and base64.
        assert_eq!(encoded(&key(7), &one, 1), "whsec_pbQczC8DATn1vzHEFLhjlkNqP2IhunpKyptXsp6sTQ0=");
        let all = [
            encoded(&key(7), &one, 1),
            encoded(&key(7), &one, 2),
            encoded(&key(7), &other, 1),
            encoded(&key(8), &one, 1),
        ];
        assert_eq!(std::collections::BTreeSet::from(all.clone()).len(), all.len());
        assert_ne!(key(7).check(&one), key(8).check(&one));
        let sign = |secret: &Secret| webhook_signature::sign(secret, "id", 1, b"body");
        assert_eq!(sign(&all[0].parse().unwrap()), sign(&key(7).secret(&one, 1)));
    }

    #[test]
    fn a_short_webhook_master_key_is_rejected_and_its_debug_output_redacted() {
        for text in ["", "not base64!", &STANDARD.encode([1; 31])] {
            assert!(MasterKey::parse(&text.into()).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", key(1)), "MasterKey([redacted])");
    }
}
