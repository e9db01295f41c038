//! API keys: how one is made, and what of it is stored.

use anyhow::Context as _;
use payment_ledger::Ledger;
use payment_ledger::api_keys::Caller;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// Random bytes of a key.
const KEY_BYTES: usize = 32;
/// Characters that are kept readable, so that a person can tell keys apart. Far too few to guess from.
const PREFIX_CHARS: usize = 8;

/// A new key: `sk_` and 64 hex digits, from the operating system's randomness.
///
/// # Errors
/// When the operating system has none.
pub(crate) fn generate() -> anyhow::Result<SecretString> {
    let mut bytes = [0_u8; KEY_BYTES];
    getrandom::fill(&mut bytes).context("the operating system gave no random bytes")?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("sk_{hex}").into())
}

/// Makes the key known as the caller's. Doing it again changes nothing.
///
/// # Errors
/// When the key is somebody else's or was revoked, or the ledger has no answer.
pub(crate) async fn store(ledger: &Ledger, key: &SecretString, caller: &Caller) -> anyhow::Result<()> {
    let key = key.expose_secret();
    let hash = Sha256::digest(key.as_bytes());
    let prefix: String = key.chars().take(PREFIX_CHARS).collect();
    ledger.store_api_key(&hash, &prefix, caller).await?;
    let owner = ledger.caller(&hash).await?.context("this key was revoked; take another one")?;
    anyhow::ensure!(
        owner == *caller,
        "this key belongs to client {} of tenant {}; take another one",
        owner.client,
        owner.tenant
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_random_bytes() {
        let (one, two) = (generate().unwrap(), generate().unwrap());
        let digits = one.expose_secret().strip_prefix("sk_").unwrap();
        assert_eq!(digits.len(), 2 * KEY_BYTES);
        assert!(digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one.expose_secret(), two.expose_secret());
    }
}
