//! Typed ids. A bare `String` never crosses a crate boundary where an id is meant.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest id accepted from outside, in bytes.
pub const ID_BYTES_MAX: usize = 64;

/// A text that is not an id: empty, over [`ID_BYTES_MAX`], or with characters outside
/// `A-Z a-z 0-9 . _ : -`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} must be 1 to {ID_BYTES_MAX} characters of A-Z, a-z, 0-9, '.', '_', ':' and '-'")]
pub struct IdError {
    what: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks length and alphabet.
            ///
            /// # Errors
            /// [`IdError`] when the text is empty, too long or has other characters.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
                if text.is_empty() || text.len() > ID_BYTES_MAX || !text.bytes().all(plain) {
                    return Err(IdError { what: $what });
                }
                Ok(Self(text))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }
    };
}

id!(
    /// A bank's customer organisation on this service; owns accounts and clients.
    TenantId, "tenant id"
);
id!(
    /// One caller of the API within a tenant; stays the same when its API key is rotated.
    ClientId, "client id"
);
id!(
    /// An API key, by the part of it that is no secret.
    KeyId, "key id"
);
id!(
    /// An account on our books, or at the destination bank.
    AccountId, "account"
);
id!(
    /// A switch, by its name in the configuration.
    SwitchName, "switch name"
);
id!(
    /// The switch's id of one callback event, unique per switch (`webhook-id`).
    EventId, "event id"
);
id!(
    /// One run of a payment's workflow, as the workflow engine names it.
    RunId, "run id"
);
id!(
    /// One decision of a person; also the id of the workflow Update that carries it.
    DecisionId, "decision id"
);
id!(
    /// The payment, derived from who asked and under which key, so that asking again is the same
    /// payment. Also the first Workflow ID (S0.1).
    PaymentId, "payment id"
);
id!(
    /// The transaction, derived from the payment id; the root of every key the switch sees.
    TxId, "transaction id"
);

impl PaymentId {
    /// Derives the id from the request's origin (S1.7). Each part is hashed behind its length, so
    /// that no two different triples share an input: (`ab`, `c`) is not (`a`, `bc`).
    #[must_use]
    pub fn derive(tenant: &TenantId, client: &ClientId, idempotency_key: &str) -> Self {
        Self(format!("pay_{}", digest(&["payment", tenant.as_str(), client.as_str(), idempotency_key], 32)))
    }
}

impl TxId {
    /// Derives the transaction id. Its 24 hex digits (96 bits) keep `{tx_id}:submit` within the 35
    /// characters that ISO 20022 allows an end-to-end reference.
    #[must_use]
    pub fn derive(payment: &PaymentId) -> Self {
        Self(format!("tx_{}", digest(&["transaction", payment.as_str()], 24)))
    }
}

/// The first `hex_digits` of SHA-256 over the parts, each behind its length.
pub(crate) fn digest(parts: &[&str], hex_digits: usize) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    let nibbles = hash.finalize().into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    nibbles.take(hex_digits).filter_map(|nibble| char::from_digit(u32::from(nibble), 16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_is_the_same_payment_and_no_other_is() {
        let id = |tenant: &str, client: &str, key: &str| {
            PaymentId::derive(&TenantId::new(tenant).unwrap(), &ClientId::new(client).unwrap(), key)
        };
        assert_eq!(id("t", "c", "k"), id("t", "c", "k"));
        assert_ne!(id("t", "c", "k"), id("t", "ck", "k"));
        assert_ne!(id("ta", "b", "k"), id("t", "ab", "k"));
        assert_ne!(id("t", "c1", "k"), id("t", "c", "1k"));
    }

    #[test]
    fn an_id_is_bounded_in_length_and_alphabet() {
        assert!(AccountId::new("a".repeat(ID_BYTES_MAX)).is_ok());
        for bad in ["".to_owned(), "a b".into(), "a\n".into(), "é".into(), "a".repeat(ID_BYTES_MAX + 1)] {
            assert!(AccountId::new(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
