//! Identities: as whom an OpenID provider knows an operator.

/// Most characters of an issuer and of a subject. Source: OpenID Connect Core 1.0, section 2, for the subject.
pub const IDENTITY_CHARS_MAX: usize = 255;

/// An identity of an OpenID provider: its issuer and, there, the subject. Both are compared character by character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorIdentity {
    issuer: String,
    subject: String,
}

/// Text that no OpenID provider has as an issuer or a subject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the {0} of an identity has 1 to {IDENTITY_CHARS_MAX} visible ASCII characters")]
pub struct IdentityError(&'static str);

impl OperatorIdentity {
    /// An identity.
    ///
    /// # Errors
    /// [`IdentityError`]: a part is empty, too long, or has other characters than visible ASCII.
    pub fn new(issuer: &str, subject: &str) -> Result<Self, IdentityError> {
        for (part, text) in [("issuer", issuer), ("subject", subject)] {
            let is_visible = text.bytes().all(|byte| byte.is_ascii_graphic());
            if text.is_empty() || text.len() > IDENTITY_CHARS_MAX || !is_visible {
                return Err(IdentityError(part));
            }
        }
        Ok(Self { issuer: issuer.to_owned(), subject: subject.to_owned() })
    }

    /// The provider, by its URL.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The provider's name of the operator, which it gives to nobody else.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_has_visible_bounded_parts() {
        let long = "a".repeat(IDENTITY_CHARS_MAX);
        for (issuer, subject, accepted) in [
            ("https://login.example", "u-1", true),
            ("https://login.example", long.as_str(), true),
            ("https://login.example", &format!("{long}a"), false),
            ("https://login.example", "", false),
            ("", "u-1", false),
            ("https://login.example", "two words", false),
            ("https://login.example", "u\0", false),
            ("https://login.example", "ü", false),
        ] {
            assert_eq!(OperatorIdentity::new(issuer, subject).is_ok(), accepted, "{issuer} {subject}");
        }
    }
}
