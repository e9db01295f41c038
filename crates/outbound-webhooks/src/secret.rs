//! What deliveries are signed with. The secret of an endpoint is made from its id, its version and a master key that only the
//! processes know: whoever reads the database, or a copy of it, can sign nothing.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use service_kit::signature::{self, Secret};
use sha2::Sha256;

use crate::EndpointId;

/// Shortest master key, in bytes.
pub const MASTER_KEY_BYTES_MIN: usize = 32;
/// Bytes of a check.
const CHECK_BYTES: usize = 8;

/// What all secrets are made from. Debug shows nothing of it. Cheap to clone.
#[derive(Clone)]
pub struct MasterKey(Hmac<Sha256>);

/// A text that is no master key. It is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "outbound_webhooks.master_key is base64 of {MASTER_KEY_BYTES_MIN} bytes at least; make one by: openssl rand -base64 32"
)]
pub struct MasterKeyError;

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey([redacted])")
    }
}

impl MasterKey {
    /// Reads base64.
    ///
    /// # Errors
    /// [`MasterKeyError`].
    pub fn read(text: &SecretString) -> Result<Self, MasterKeyError> {
        let bytes = STANDARD.decode(text.expose_secret()).map_err(|_| MasterKeyError)?;
        if bytes.len() < MASTER_KEY_BYTES_MIN {
            return Err(MasterKeyError);
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| MasterKeyError)
    }

    /// The secret of an endpoint, as its owner is shown it: `whsec_` and base64.
    #[must_use]
    pub fn shown(&self, endpoint: &EndpointId, version: i32) -> SecretString {
        signature::encode_secret(self.bytes(endpoint, version)).into()
    }

    /// The same, to sign with.
    #[must_use]
    pub fn secret(&self, endpoint: &EndpointId, version: i32) -> Secret {
        Secret::from_bytes(self.bytes(endpoint, version))
    }

    /// Tells this master key from another: eight bytes that say nothing of it or of a secret.
    #[must_use]
    pub fn check(&self, endpoint: &EndpointId) -> [u8; CHECK_BYTES] {
        let mut check = [0; CHECK_BYTES];
        // A version is a number, so no secret has this name.
        check.copy_from_slice(&self.named(endpoint, "check")[..CHECK_BYTES]);
        check
    }

    fn bytes(&self, endpoint: &EndpointId, version: i32) -> [u8; 32] {
        self.named(endpoint, &version.to_string())
    }

    fn named(&self, endpoint: &EndpointId, name: &str) -> [u8; 32] {
        let mut mac = self.0.clone();
        // An id has a fixed length, so no two pairs share a text.
        mac.update(format!("{endpoint}:{name}").as_bytes());
        mac.finalize().into_bytes().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: &str = "whe_00000000000000000000000000000001";

    fn key(byte: u8) -> MasterKey {
        MasterKey::read(&STANDARD.encode([byte; 32]).into()).unwrap()
    }

    #[test]
    fn a_secret_is_its_endpoints_and_its_versions() {
        let (one, other) = (EndpointId::new(ENDPOINT).unwrap(), EndpointId::random());
        let shown =
            |key: &MasterKey, id: &EndpointId, version| key.shown(id, version).expose_secret().to_owned();
        // Written down: another form would change what every receiver knows. Made with Python's hmac and base64.
        assert_eq!(shown(&key(7), &one, 1), "whsec_pbQczC8DATn1vzHEFLhjlkNqP2IhunpKyptXsp6sTQ0=");
        let all = [
            shown(&key(7), &one, 1),
            shown(&key(7), &one, 2),
            shown(&key(7), &other, 1),
            shown(&key(8), &one, 1),
        ];
        assert_eq!(std::collections::BTreeSet::from(all.clone()).len(), all.len());
        assert_ne!(key(7).check(&one), key(8).check(&one));
        let sign = |secret: &Secret| signature::sign(secret, "id", 1, b"body");
        assert_eq!(sign(&all[0].parse().unwrap()), sign(&key(7).secret(&one, 1)));
    }

    #[test]
    fn a_short_master_key_is_refused_and_none_is_shown() {
        for text in ["", "not base64!", &STANDARD.encode([1; 31])] {
            assert!(MasterKey::read(&text.into()).is_err(), "{text}");
        }
        assert_eq!(format!("{:?}", key(1)), "MasterKey([redacted])");
    }
}
