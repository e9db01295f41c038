//! Numbers of the book as clients see them: opaque texts in ascending order.

use serde::{Deserialize, Serialize};

macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, sqlx::Type)]
        #[serde(into = "String", try_from = "String")]
        #[sqlx(transparent)]
        pub(crate) struct $name(pub(crate) i64);

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.0.to_string()
            }
        }

        impl TryFrom<String> for $name {
            type Error = std::num::ParseIntError;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse().map(Self)
            }
        }
    };
}

opaque! {
    /// The switch's own id of a transfer, in order of arrival.
    TransferId
}

opaque! {
    /// Position of an entry in the statement.
    Cursor
}

impl TransferId {
    /// An id that no transfer has.
    pub(crate) const NONE: Self = Self(0);
}
