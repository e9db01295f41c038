//! Typed ids. An id never crosses a crate boundary as a plain `String`.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Longest id accepted from outside, in bytes.
pub const ID_BYTES_MAX: usize = 64;

/// The text is not an id: empty, longer than [`ID_BYTES_MAX`], or with other characters than its alphabet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{subject} must be 1 to {ID_BYTES_MAX} characters of A-Z, a-z, 0-9 and {alphabet}")]
pub struct IdError {
    subject: &'static str,
    alphabet: &'static str,
}

/// The characters of our own ids besides letters and digits.
const PUNCTUATION: &str = "._:-";

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $subject:literal) => {
        id!($(#[$doc])* $name, $subject, PUNCTUATION);
    };
    ($(#[$doc:meta])* $name:ident, $subject:literal, $punctuation:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks length and alphabet.
            ///
            /// # Errors
            /// [`IdError`] if the text is empty, too long or has other characters.
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                let allowed = |c: char| c.is_ascii_alphanumeric() || $punctuation.contains(c);
                if text.is_empty() || text.len() > ID_BYTES_MAX || !text.chars().all(allowed) {
                    return Err(IdError { subject: $subject, alphabet: $punctuation });
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
    /// A customer organisation of the bank; owns accounts and clients.
    TenantId, "tenant id"
);
id!(
    /// One caller of the API within a tenant; unchanged when the caller's API key is rotated.
    ClientId, "client id"
);
id!(
    /// An API key, by its public part.
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
    /// The switch's id of one return, unique per switch. ISO 20022 gives such an id every character of the SEPA set.
    ReturnId, "return id", "._:-/?(),'+ "
);
id!(
    /// Temporal's run id of one run of a payment's workflow.
    RunId, "run id"
);
id!(
    /// One operator decision; also the id of the workflow Update that delivers it.
    DecisionId, "decision id"
);
id!(
    /// One payment. The id is derived from the caller and its idempotency key, so that a repeated request is the same
    /// payment; it is also the first Workflow ID (S0.1).
    PaymentId, "payment id"
);
id!(
    /// The transaction, derived from the payment id; every key sent to the switch starts with it.
    TxId, "transaction id"
);

impl PaymentId {
    /// Derives the id from the request's origin (S1.7): the cell in two hex digits, then 30 hex digits (120 bits) of a hash. Each part is
    /// hashed after its length, so that two different triples never have the same input: (`ab`, `c`) differs from (`a`, `bc`).
    #[must_use]
    pub fn derive(tenant: &TenantId, client: &ClientId, idempotency_key: &str) -> Self {
        let cell = Cell::of(tenant, client, idempotency_key);
        let hash = digest(&["payment", tenant.as_str(), client.as_str(), idempotency_key], 30);
        let id = format!("pay_{cell}{hash}");
        debug_assert!(Self::new(id.as_str()).is_ok(), "{id:?} is no payment id");
        debug_assert_eq!(Self(id.clone()).cell(), Some(cell), "{id:?} does not name its cell");
        Self(id)
    }

    /// The cell that the id names; `None` if the id was not derived here.
    #[must_use]
    pub fn cell(&self) -> Option<Cell> {
        Cell::named_by(self.as_str(), "pay_")
    }
}

impl ReturnId {
    /// 16 hex digits of a hash of the id, for names with a narrower alphabet.
    #[must_use]
    pub fn digest(&self) -> String {
        digest(&["return", self.as_str()], 16)
    }
}

impl DecisionId {
    /// 16 hex digits of a hash of the id, as [`ReturnId::digest`]: the event of a return that a decision books ends with them.
    #[must_use]
    pub fn digest(&self) -> String {
        digest(&["decision", self.as_str()], 16)
    }
}

impl TxId {
    /// Derives the transaction id: the payment's cell in two hex digits, then 22 hex digits (88 bits) of a hash. They keep
    /// `{tx_id}:submit` within the 35 characters that ISO 20022 allows an end-to-end reference.
    #[must_use]
    pub fn derive(payment: &PaymentId) -> Self {
        let cell = payment.cell().unwrap_or(Cell::FIRST);
        let id = format!("tx_{cell}{}", digest(&["transaction", payment.as_str()], 22));
        debug_assert!(Self::new(id.as_str()).is_ok(), "{id:?} is no transaction id");
        debug_assert_eq!(Self(id.clone()).cell(), Some(cell), "{id:?} does not name its cell");
        Self(id)
    }

    /// The cell that the id names; `None` if the id was not derived here.
    #[must_use]
    pub fn cell(&self) -> Option<Cell> {
        Cell::named_by(self.as_str(), "tx_")
    }
}

/// A cell: one installation of the service with a database of its own, which has a part of the payments. There is one today. Ids have
/// a place for its number, so that a payment leads to its cell wherever its id is seen: in a callback, at an operator, in a client's books.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell(u8);

impl Cell {
    /// The only cell today.
    pub const FIRST: Self = Self(0);

    /// The cell of a payment. It follows from the request's origin and from nothing else in the request: a repeat of the request, even
    /// with another source account, must reach the database that has the first one's idempotency key, or it would pay twice.
    #[must_use]
    pub fn of(_tenant: &TenantId, _client: &ClientId, _idempotency_key: &str) -> Self {
        Self::FIRST
    }

    /// The number, 0 to 255.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    fn named_by(id: &str, prefix: &str) -> Option<Self> {
        let digits = id.strip_prefix(prefix)?.get(..2)?;
        let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        u8::from_str_radix(digits, 16).ok().filter(|_| is_hex).map(Self)
    }
}

/// Two hex digits.
impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}", self.0)
    }
}

/// SHA-256 over the parts, each after its length.
pub(crate) fn digest_bytes(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// The first `hex_digits` of SHA-256 over the parts, each after its length.
pub(crate) fn digest(parts: &[&str], hex_digits: usize) -> String {
    let nibbles = digest_bytes(parts).into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    nibbles.take(hex_digits).filter_map(|nibble| char::from_digit(u32::from(nibble), 16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payment_id_depends_on_tenant_client_and_key_alone() {
        let id = |tenant: &str, client: &str, key: &str| {
            PaymentId::derive(&TenantId::new(tenant).unwrap(), &ClientId::new(client).unwrap(), key)
        };
        assert_eq!(id("t", "c", "k"), id("t", "c", "k"));
        assert_ne!(id("t", "c", "k"), id("t", "ck", "k"));
        assert_ne!(id("ta", "b", "k"), id("t", "ab", "k"));
        assert_ne!(id("t", "c1", "k"), id("t", "c", "1k"));
    }

    #[test]
    fn a_payment_and_its_transaction_name_the_cell_and_keep_their_lengths() {
        let origin = |key: &str| (TenantId::new("t").unwrap(), ClientId::new("c").unwrap(), key.to_owned());
        for key in 0..200 {
            let (tenant, client, key) = origin(&key.to_string());
            let payment = PaymentId::derive(&tenant, &client, &key);
            let tx = TxId::derive(&payment);
            assert_eq!((payment.cell(), tx.cell()), (Some(Cell::FIRST), Some(Cell::FIRST)));
            assert!(payment.as_str().starts_with("pay_00") && tx.as_str().starts_with("tx_00"));
            assert_eq!((payment.as_str().len(), tx.as_str().len()), (36, 27));
        }
        // A transaction is in the cell of its payment.
        let elsewhere = PaymentId::new("pay_a70123456789abcdef0123456789abcd").unwrap();
        assert_eq!(elsewhere.cell().map(Cell::number), Some(0xa7));
        assert_eq!(TxId::derive(&elsewhere).cell(), elsewhere.cell());
        for foreign in ["pay_1", "pay_+1", "pay_A7", "a7", "tx_a7"] {
            assert_eq!(PaymentId::new(foreign).ok().and_then(|id| id.cell()), None, "{foreign}");
        }
    }

    #[test]
    fn returns_and_decisions_are_named_by_sixteen_hex_digits_of_their_own() {
        let returned = |id: &str| ReturnId::new(id).unwrap().digest();
        let decided = |id: &str| DecisionId::new(id).unwrap().digest();
        for digest in [&returned as &dyn Fn(&str) -> String, &decided] {
            assert_eq!(digest("r-1"), digest("r-1"));
            assert_ne!(digest("r-1"), digest("r-2"));
            assert!(digest("r-1").len() == 16 && digest("r-1").bytes().all(|byte| byte.is_ascii_hexdigit()));
        }
        assert_ne!(returned("r-1"), decided("r-1"));
    }

    #[test]
    fn an_account_id_has_a_bounded_length_and_alphabet() {
        assert!(AccountId::new("a".repeat(ID_BYTES_MAX)).is_ok());
        for bad in ["".to_owned(), "a b".into(), "a\n".into(), "é".into(), "a".repeat(ID_BYTES_MAX + 1)] {
            assert!(AccountId::new(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
