//! The token of a session: who has it acts as its operator.

use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// Random bytes of a token.
const BYTES: usize = 32;
/// Distinguishes a token from an API key, for people and for scanners of secrets.
const PREFIX: &str = "ops_";

/// A session's token: `ops_` and 64 hexadecimal digits. Debug output hides it.
#[derive(Clone, Debug)]
pub struct SessionToken(SecretString);

impl SessionToken {
    /// A new token, from the operating system's randomness.
    ///
    /// # Errors
    /// The operating system has no random bytes.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0_u8; BYTES];
        getrandom::fill(&mut bytes)?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self(format!("{PREFIX}{digits}").into()))
    }

    /// A token as a client sent it; `None` if it has not the form of one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (digits.len() == 2 * BYTES && digits.bytes().all(is_hex)).then(|| Self(text.into()))
    }

    /// The token itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// What statements carry in its place, and what a log of statements shows: its SHA-256 in hexadecimal digits, which no request is
    /// accepted with.
    pub(crate) fn proof(&self) -> String {
        Sha256::digest(self.expose().as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_token_is_random_and_is_read_back() {
        let (one, other) = (SessionToken::generate().unwrap(), SessionToken::generate().unwrap());
        assert_ne!(one.expose(), other.expose());
        assert_eq!(SessionToken::parse(one.expose()).unwrap().proof(), one.proof());
        assert!(!format!("{one:?}").contains(one.expose()));
        for bad in [
            "",
            "ops_",
            "ops_00",
            &one.expose()[4..],
            &format!("{}0", one.expose()),
            &one.expose().to_uppercase(),
        ] {
            assert!(SessionToken::parse(bad).is_none(), "{bad}");
        }
    }
}
