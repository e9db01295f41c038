//! Passwords: stored as argon2id, compared in a thread of their own.

use std::sync::LazyLock;

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher as _, PasswordVerifier as _};
use secrecy::{ExposeSecret as _, SecretString};

/// Fewest characters of a password.
pub const PASSWORD_CHARS_MIN: usize = 12;
/// Most characters of a password: more would only cost time.
pub const PASSWORD_CHARS_MAX: usize = 128;

/// A password. Debug output hides it.
#[derive(Clone, Debug)]
pub struct Password(SecretString);

/// A password as it is stored: a PHC string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordHashText(String);

/// A password that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Too short or too long.
    #[error("a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters; this one has {0}")]
    Length(usize),
    /// The library refused it.
    #[error("the password could not be hashed: {0}")]
    Hash(String),
}

impl Password {
    /// A password that somebody chose.
    ///
    /// # Errors
    /// [`PasswordError::Length`].
    pub fn new(text: SecretString) -> Result<Self, PasswordError> {
        let chars = text.expose_secret().chars().count();
        if (PASSWORD_CHARS_MIN..=PASSWORD_CHARS_MAX).contains(&chars) {
            Ok(Self(text))
        } else {
            Err(PasswordError::Length(chars))
        }
    }

    /// The stored form, with a salt of its own and the library's default costs, which are those that OWASP recommends: 19 MiB, two
    /// passes. Takes some ten milliseconds of a core.
    ///
    /// # Errors
    /// [`PasswordError::Hash`].
    pub fn hash(&self) -> Result<PasswordHashText, PasswordError> {
        let hash = Argon2::default().hash_password(self.0.expose_secret().as_bytes());
        hash.map(|hash| PasswordHashText(hash.to_string()))
            .map_err(|error| PasswordError::Hash(error.to_string()))
    }
}

impl PasswordHashText {
    pub(super) fn stored(text: String) -> Self {
        Self(text)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// What an unknown name is compared with, so that the time of the answer does not tell it from a known one.
    pub(super) fn of_nobody() -> Self {
        static NOBODY: LazyLock<String> = LazyLock::new(|| {
            let password = Password("the password of nobody".into());
            // Without it, an unknown name is answered faster, and nothing else changes.
            password.hash().map(|hash| hash.0).unwrap_or_default()
        });
        Self(NOBODY.clone())
    }

    /// Whether this is the password. Takes some ten milliseconds of a core.
    pub(super) fn matches(&self, password: &SecretString) -> bool {
        let Ok(hash) = PasswordHash::new(&self.0) else { return false };
        // The costs are those of the stored hash.
        Argon2::default().verify_password(password.expose_secret().as_bytes(), &hash).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_stored_as_argon2id_and_only_itself_matches() {
        let password = Password::new("correct horse battery".into()).unwrap();
        let (one, other) = (password.hash().unwrap(), password.hash().unwrap());
        assert!(one.as_str().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{one:?}");
        assert_ne!(one, other, "each hash has a salt of its own");
        assert!(one.matches(&"correct horse battery".into()));
        assert!(!one.matches(&"correct horse batterY".into()));
        assert!(!PasswordHashText::of_nobody().matches(&"correct horse battery".into()));
        assert!(!PasswordHashText::stored("no hash".into()).matches(&"correct horse battery".into()));
        assert!(!format!("{password:?}").contains("horse"));
    }

    #[test]
    fn a_password_that_is_too_short_or_too_long_is_refused() {
        for (chars, accepted) in [(0, false), (11, false), (12, true), (128, true), (129, false)] {
            assert_eq!(Password::new("ü".repeat(chars).into()).is_ok(), accepted, "{chars}");
        }
    }
}
