//! What a request is about: a reference with all its transfers, or one transfer
//! by the switch's own id.

use sqlx::PgPool;

use super::ids::TransferId;

/// A reference or a transfer, as a request named it.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    /// Under which the book keeps it and scripts are found.
    pub(crate) reference: String,
    /// The one transfer that is meant; `None` means the reference.
    pub(crate) id: Option<TransferId>,
    /// Whether clients are shown references.
    pub(crate) keys: bool,
}

impl Named {
    /// A reference to the switch's own people, who always see it.
    pub(crate) fn inside(reference: &str) -> Self {
        Self { reference: reference.to_owned(), id: None, keys: true }
    }

    /// The reference as clients are shown it.
    pub(crate) fn shown(&self) -> Option<String> {
        self.keys.then(|| self.reference.clone())
    }
}

/// The reference that came with a transfer.
pub(crate) async fn reference_of(pool: &PgPool, id: TransferId) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!("SELECT reference FROM transfers WHERE id = $1", id.0).fetch_optional(pool).await
}
