//! The value of the `Idempotency-Key` header.

use std::fmt;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 255;

/// A key as the client chose it: 1 to [`KEY_BYTES_MAX`] visible ASCII characters without quotes and backslashes.
///
/// The IETF draft writes the key as a quoted string (`"8e03978e"`), most clients write it bare. Both forms are accepted and
/// are the same key, because a client may be upgraded from one to the other between a request and its retry. A quote or a
/// backslash anywhere else is refused: it would give one key two spellings.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(String);

/// The header value is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the Idempotency-Key header must be 1 to {KEY_BYTES_MAX} visible ASCII characters without quotes and backslashes, \
     or such characters in double quotes"
)]
pub struct KeyError;

impl IdempotencyKey {
    /// Parses a header value.
    ///
    /// # Errors
    /// [`KeyError`] if the value is empty, too long, or has other characters.
    pub fn parse(header: &[u8]) -> Result<Self, KeyError> {
        let bare = match header {
            [b'"', inner @ .., b'"'] => inner,
            bare => bare,
        };
        let visible = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        if bare.is_empty() || bare.len() > KEY_BYTES_MAX || !bare.iter().all(visible) {
            return Err(KeyError);
        }
        std::str::from_utf8(bare).map(|text| Self(text.to_owned())).map_err(|_| KeyError)
    }

    /// The key without quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_and_a_bare_idempotency_key_header_are_the_same_key() {
        let bare = IdempotencyKey::parse(b"8e03978e-40d5").unwrap();
        assert_eq!(IdempotencyKey::parse(b"\"8e03978e-40d5\"").unwrap(), bare);
        assert_eq!(bare.as_str(), "8e03978e-40d5");
    }

    #[test]
    fn an_idempotency_key_has_a_bounded_length_and_alphabet() {
        assert!(IdempotencyKey::parse(&[b'k'; KEY_BYTES_MAX]).is_ok());
        assert!(IdempotencyKey::parse(b"!#$%&'()*+,-./:;<=>?@[]^_`{|}~").is_ok());
        let long = [b'k'; KEY_BYTES_MAX + 1];
        let bad: [&[u8]; 10] =
            [b"", b"\"\"", b"\"", b"\"k", b"k\"", b"a b", b"a\tb", b"a\\b", "kéy".as_bytes(), &long];
        for header in bad {
            assert_eq!(IdempotencyKey::parse(header), Err(KeyError), "{header:?}");
        }
    }
}
