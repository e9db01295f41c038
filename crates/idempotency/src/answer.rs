//! What a request was answered.

/// Status and body, as they are stored and replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status, 200 to 499: what failed on our side is never stored.
    pub status: u16,
    /// The body, replayed byte for byte.
    pub body: Vec<u8>,
}

impl Answer {
    /// An answer.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into() }
    }

    pub(crate) fn is_storable(&self) -> bool {
        (200..500).contains(&self.status)
    }
}
