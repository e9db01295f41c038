//! The response to a request, as it is stored and replayed.

/// Status and body of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    /// HTTP status, 200 to 499: server errors are never stored.
    pub status: u16,
    /// The body, replayed byte for byte.
    pub body: Vec<u8>,
}

impl StoredResponse {
    /// A response with this status and body.
    #[must_use]
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, body: body.into() }
    }

    pub(crate) fn is_storable(&self) -> bool {
        (200..500).contains(&self.status)
    }
}
