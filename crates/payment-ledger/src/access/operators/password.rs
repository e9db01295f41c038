//! Passwords: what is stored of one, and how a login proves that it knows one.
//!
//! The secret of a password is what argon2id makes of it. The database stores the secret's SHA-256 and compares that alone, so that
//! neither a process nor a reader of the table has anything with which to log in.

use std::sync::{Arc, LazyLock};

use argon2::Argon2;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

/// Fewest characters of a password.
pub const PASSWORD_CHARS_MIN: usize = 12;
/// Most characters of a password: more would only cost time.
pub const PASSWORD_CHARS_MAX: usize = 128;
/// The costs of argon2id, those that OWASP recommends: 19 MiB and two passes, the defaults of the library.
const VERSION: i16 = 1;

/// Secrets computed at once in this process: each takes 19 MiB and a core for some ten milliseconds.
static AT_ONCE: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(2)));

/// A password that an operator may have. Debug output hides it.
#[derive(Clone, Debug)]
pub struct Password(SecretString);

/// What is stored of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPassword {
    pub(super) salt: [u8; 16],
    pub(super) version: i16,
    pub(super) proof: [u8; 32],
}

/// A password that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// Too short or too long.
    #[error("a password has {PASSWORD_CHARS_MIN} to {PASSWORD_CHARS_MAX} characters; this one has {0}")]
    Length(usize),
    /// No randomness, or the library refused it.
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

    /// What is stored of it, with a salt of its own. Takes some ten milliseconds of a core.
    ///
    /// # Errors
    /// [`PasswordError::Hash`].
    pub fn to_stored(&self) -> Result<StoredPassword, PasswordError> {
        let mut salt = [0; 16];
        getrandom::fill(&mut salt).map_err(|error| PasswordError::Hash(error.to_string()))?;
        let secret = secret(&self.0, &salt)?;
        Ok(StoredPassword { salt, version: VERSION, proof: Sha256::digest(secret).into() })
    }
}

/// The secret of a password with the salt of a login, computed beside the runtime, a few at a time. Without a salt, of an unknown login,
/// it takes as long.
pub(super) async fn secret_of_login(
    password: &SecretString,
    salt: Option<(Vec<u8>, i16)>,
) -> Result<[u8; 32], PasswordError> {
    let salt = match salt {
        Some((salt, VERSION)) => salt,
        Some((_, version)) => return Err(PasswordError::Hash(format!("its version {version} is unknown"))),
        None => vec![0; 16],
    };
    let password = password.clone();
    // Never closed.
    let permit = Arc::clone(&AT_ONCE).acquire_owned().await;
    let computed = tokio::task::spawn_blocking(move || {
        // Kept until the end, whether or not somebody still waits.
        let _permit = permit;
        secret(&password, &salt)
    });
    computed.await.unwrap_or_else(|error| Err(PasswordError::Hash(error.to_string())))
}

fn secret(password: &SecretString, salt: &[u8]) -> Result<[u8; 32], PasswordError> {
    let mut secret = [0; 32];
    let made = Argon2::default().hash_password_into(password.expose_secret().as_bytes(), salt, &mut secret);
    made.map(|()| secret).map_err(|error| PasswordError::Hash(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_password_itself_makes_its_secret() {
        let password = Password::new("correct horse battery".into()).unwrap();
        let (one, other) = (password.to_stored().unwrap(), password.to_stored().unwrap());
        assert_ne!(one, other, "each has a salt of its own");
        let proof = async |text: &str, stored: &StoredPassword| {
            let salt = Some((stored.salt.to_vec(), stored.version));
            let secret = secret_of_login(&text.into(), salt).await.unwrap();
            <[u8; 32]>::from(Sha256::digest(secret))
        };
        assert_eq!(proof("correct horse battery", &one).await, one.proof);
        assert_ne!(proof("correct horse batterY", &one).await, one.proof);
        assert!(secret_of_login(&"any".into(), None).await.is_ok());
        assert!(secret_of_login(&"any".into(), Some((vec![0; 16], 2))).await.is_err());
        assert!(!format!("{password:?}").contains("horse"));
    }

    /// The default costs of the library are those of the stored version.
    #[test]
    fn the_costs_of_a_password_are_those_of_its_version() {
        let params = Argon2::default().params().clone();
        assert_eq!((params.m_cost(), params.t_cost(), params.p_cost()), (19 * 1024, 2, 1));
    }

    #[test]
    fn a_password_that_is_too_short_or_too_long_is_refused() {
        for (chars, accepted) in [(0, false), (11, false), (12, true), (128, true), (129, false)] {
            assert_eq!(Password::new("ü".repeat(chars).into()).is_ok(), accepted, "{chars}");
        }
    }
}
