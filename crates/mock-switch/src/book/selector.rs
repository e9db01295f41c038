//! Selects what a request is about: a reference with all its transfers, or one transfer by the switch's own id.

use sqlx::PgPool;

use super::ids::TransferId;

/// What a request is about: a reference or one transfer.
#[derive(Debug, Clone)]
pub(crate) struct TransferSelector {
    /// The reference under which the book stores the transfer and the plan finds its scripts.
    pub(crate) reference: String,
    /// The selected transfer; `None` selects the reference.
    pub(crate) id: Option<TransferId>,
    /// Whether clients see references.
    pub(crate) shows_reference: bool,
    /// Whether forgotten transfers are selected, too.
    pub(crate) sees_forgotten: bool,
}

impl TransferSelector {
    /// A reference as a client selects it.
    pub(crate) fn of_reference(reference: String, shows_reference: bool) -> Self {
        Self { reference, id: None, shows_reference, sees_forgotten: false }
    }

    /// A reference, for the admin API, which always sees references and transfers that clients no longer find.
    pub(crate) fn for_admin(reference: &str) -> Self {
        Self { sees_forgotten: true, ..Self::of_reference(reference.to_owned(), true) }
    }

    /// The reference as clients see it.
    pub(crate) fn visible_reference(&self) -> Option<String> {
        self.shows_reference.then(|| self.reference.clone())
    }
}

/// The reference of a transfer; `None` if the transfer does not exist.
pub(crate) async fn reference_of(pool: &PgPool, id: TransferId) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar!("SELECT reference FROM transfers WHERE id = $1", id.0).fetch_optional(pool).await
}
