//! API keys: how a key is generated and which part of it is stored.

use anyhow::Context as _;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::{Caller, NewKey, Scopes};
use payment_protocol::ids::KeyId;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// Random bytes of a key, besides those of its id.
const KEY_BYTES: usize = 32;
/// Random bytes of an id: enough that ids do not collide.
const ID_BYTES: usize = 6;
/// Characters of an imported key that stay readable, so that an operator can distinguish keys. Far too few
/// to guess the rest.
const PREFIX_CHARS: usize = 8;

/// A key with its id, before it is stored.
pub(crate) struct ApiKey {
    /// Public id, used in logs and on the command line.
    pub(crate) id: KeyId,
    /// The key itself.
    pub(crate) secret: SecretString,
    hash: [u8; 32],
    prefix: String,
}

impl ApiKey {
    /// Generates a key: its id, `_` and 64 hex digits, from the operating system's randomness.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub(crate) fn generate() -> anyhow::Result<Self> {
        let id = new_id()?;
        let secret = format!("{id}_{}", random_hex::<KEY_BYTES>()?);
        Ok(Self { hash: hash(&secret), prefix: id.to_string(), id, secret: secret.into() })
    }

    /// Gives an imported key an id.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub(crate) fn import(secret: SecretString) -> anyhow::Result<Self> {
        let text = secret.expose_secret();
        let prefix = text.chars().take(PREFIX_CHARS).collect();
        Ok(Self { id: new_id()?, hash: hash(text), prefix, secret })
    }

    /// The record to store. `lifetime_s` is `None` if the key does not expire.
    pub(crate) fn new_key<'a>(
        &'a self,
        caller: &'a Caller,
        scopes: &'a Scopes,
        lifetime_s: Option<i64>,
    ) -> NewKey<'a> {
        NewKey { id: &self.id, hash: &self.hash, prefix: &self.prefix, caller, scopes, lifetime_s }
    }

    /// The SHA-256 of the key, in hexadecimal digits.
    pub(crate) fn sha256(&self) -> String {
        self.hash.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Stores an imported key for the caller, with all scopes and without expiry. Idempotent.
///
/// # Errors
/// The key belongs to another client, is revoked or has expired, or the ledger does not answer.
pub(crate) async fn import(ledger: &Ledger, secret: &SecretString, caller: &Caller) -> anyhow::Result<()> {
    let key = ApiKey::import(secret.clone())?;
    ledger.insert_api_key(&key.new_key(caller, &Scopes::all(), None)).await?;
    let valid = ledger.active_api_key(&key.hash).await?;
    let owner = valid.context("the API key is revoked or has expired; use another API key")?.caller;
    anyhow::ensure!(
        owner == *caller,
        "this API key belongs to client {} of tenant {}; use another key",
        owner.client,
        owner.tenant
    );
    Ok(())
}

fn new_id() -> anyhow::Result<KeyId> {
    Ok(KeyId::new(format!("pk_{}", random_hex::<ID_BYTES>()?))?)
}

/// Random bytes as hexadecimal digits.
///
/// # Errors
/// The operating system has no random bytes.
pub(crate) fn random_hex<const BYTES: usize>() -> anyhow::Result<String> {
    let mut bytes = [0_u8; BYTES];
    getrandom::fill(&mut bytes).context("the operating system provides no random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_api_key_is_its_id_and_32_random_bytes() {
        let (one, two) = (ApiKey::generate().unwrap(), ApiKey::generate().unwrap());
        let digits = one.secret.expose_secret().strip_prefix(&format!("{}_", one.id)).unwrap();
        assert_eq!(digits.len(), 2 * KEY_BYTES);
        assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one.id, two.id);
        assert_ne!(one.secret.expose_secret(), two.secret.expose_secret());
        assert_eq!((one.id.as_str().len(), one.prefix.as_str()), (15, one.id.as_str()));
    }
}
