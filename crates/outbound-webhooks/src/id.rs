//! Ids of endpoints.

use std::fmt;

use uuid::Uuid;

const PREFIX: &str = "whe_";
/// Number of hexadecimal digits of an endpoint id, after the prefix.
const DIGITS: usize = 32;

/// Id of an endpoint: `whe_` and 32 hexadecimal digits. It is not secret.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(String);

/// The text is not the id of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of the webhook endpoint is malformed; it is whe_ and {DIGITS} hexadecimal digits")]
pub struct EndpointIdError;

impl EndpointId {
    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self(format!("{PREFIX}{}", Uuid::new_v4().simple()))
    }

    /// Parses an id.
    ///
    /// # Errors
    /// [`EndpointIdError`].
    pub fn new(text: impl Into<String>) -> Result<Self, EndpointIdError> {
        let text = text.into();
        let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        let digits = text.strip_prefix(PREFIX).ok_or(EndpointIdError)?;
        if digits.len() == DIGITS && digits.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err(EndpointIdError)
        }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for EndpointId {
    type Error = EndpointIdError;

    fn try_from(text: String) -> Result<Self, EndpointIdError> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_webhook_endpoint_id_is_parsed_and_malformed_ones_rejected() {
        let id = EndpointId::random();
        assert_eq!(EndpointId::new(id.as_str()), Ok(id.clone()));
        assert_ne!(EndpointId::random(), id);
        for wrong in ["", "whe_", "whe_0", &id.as_str().to_uppercase(), &format!("{id}0"), &id.as_str()[4..]]
        {
            assert_eq!(EndpointId::new(wrong), Err(EndpointIdError), "{wrong}");
        }
    }
}
