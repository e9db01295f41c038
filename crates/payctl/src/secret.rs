//! API keys: how one is made, and what of it is stored.

use anyhow::Context as _;
use payment_ledger::Ledger;
use payment_ledger::access::api_keys::{Caller, NewKey, Scopes, SuccessorKey};
use payment_protocol::ids::KeyId;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// Random bytes of a key, besides those of its id.
const KEY_BYTES: usize = 32;
/// Random bytes of an id: enough that no two keys share one.
const ID_BYTES: usize = 6;
/// Characters of a key made elsewhere that are kept readable, so that a person can tell keys apart. Far too
/// few to guess from.
const PREFIX_CHARS: usize = 8;

/// A key with its id, before it is stored.
pub(crate) struct Key {
    /// What people and logs call it.
    pub(crate) id: KeyId,
    /// The key itself.
    pub(crate) secret: SecretString,
    hash: [u8; 32],
    prefix: String,
}

impl Key {
    /// A new key: its id, `_` and 64 hex digits, from the operating system's randomness.
    ///
    /// # Errors
    /// When the operating system has none.
    pub(crate) fn generate() -> anyhow::Result<Self> {
        let id = new_id()?;
        let secret = format!("{id}_{}", random_hex::<KEY_BYTES>()?);
        Ok(Self { hash: hash(&secret), prefix: id.to_string(), id, secret: secret.into() })
    }

    /// A key that was made elsewhere.
    ///
    /// # Errors
    /// When the operating system has no random bytes for an id.
    pub(crate) fn given(secret: SecretString) -> anyhow::Result<Self> {
        let text = secret.expose_secret();
        let prefix = text.chars().take(PREFIX_CHARS).collect();
        Ok(Self { id: new_id()?, hash: hash(text), prefix, secret })
    }

    /// The key to be stored.
    pub(crate) fn new_key<'a>(
        &'a self,
        caller: &'a Caller,
        scopes: &'a Scopes,
        lifetime_s: Option<i64>,
    ) -> NewKey<'a> {
        NewKey { id: &self.id, hash: &self.hash, prefix: &self.prefix, caller, scopes, lifetime_s }
    }

    /// The key as another's successor.
    pub(crate) fn successor(&self) -> SuccessorKey<'_> {
        SuccessorKey { id: &self.id, hash: &self.hash, prefix: &self.prefix }
    }
}

/// Makes a key that was made elsewhere known as the caller's, for everything and for ever. Doing it again
/// changes nothing.
///
/// # Errors
/// When the key is somebody else's, was revoked or has expired, or the ledger has no answer.
pub(crate) async fn store(ledger: &Ledger, secret: &SecretString, caller: &Caller) -> anyhow::Result<()> {
    let key = Key::given(secret.clone())?;
    ledger.insert_api_key(&key.new_key(caller, &Scopes::all(), None)).await?;
    let good = ledger.active_api_key(&key.hash).await?;
    let owner = good.context("this key was revoked or has expired; take another one")?.caller;
    anyhow::ensure!(
        owner == *caller,
        "this key belongs to client {} of tenant {}; take another one",
        owner.client,
        owner.tenant
    );
    Ok(())
}

fn new_id() -> anyhow::Result<KeyId> {
    Ok(KeyId::new(format!("pk_{}", random_hex::<ID_BYTES>()?))?)
}

fn random_hex<const BYTES: usize>() -> anyhow::Result<String> {
    let mut bytes = [0_u8; BYTES];
    getrandom::fill(&mut bytes).context("the operating system gave no random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_id_and_32_random_bytes() {
        let (one, two) = (Key::generate().unwrap(), Key::generate().unwrap());
        let digits = one.secret.expose_secret().strip_prefix(&format!("{}_", one.id)).unwrap();
        assert_eq!(digits.len(), 2 * KEY_BYTES);
        assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one.id, two.id);
        assert_ne!(one.secret.expose_secret(), two.secret.expose_secret());
        assert_eq!((one.id.as_str().len(), one.prefix.as_str()), (15, one.id.as_str()));
    }
}
