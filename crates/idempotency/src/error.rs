//! What can go wrong around a claim. That a key is taken is an answer ([`crate::Claim`]), not an error.

/// A claim or a completion without an outcome.
#[derive(Debug, thiserror::Error)]
pub enum IdempotencyError {
    /// No answer, a lost connection, a lease that was cut: nothing of the transaction is stored.
    #[error("the idempotency store did not answer")]
    Database(#[from] sqlx::Error),
    /// The row was written by a later release, and its hash may mean something else.
    #[error("the idempotency row has schema version {version}; this release reads up to {known}")]
    LaterVersion {
        /// Version of the row.
        version: i16,
        /// Latest version that is read here.
        known: i16,
    },
    /// A server error is never stored: the repeat may succeed.
    #[error("an answer with status {status} cannot be stored; only 200 to 499 can")]
    NotStorable {
        /// The status handed in.
        status: u16,
    },
    /// A live row stands where the lease found none. A defect: something wrote without a claim.
    #[error("the key was written behind the back of its lease")]
    Overtaken,
}
