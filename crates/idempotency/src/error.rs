//! What can go wrong around a claim. That a key is taken is an answer ([`crate::Claim`], [`crate::Outcome`]), not an
//! error.

/// A claim or a completion without an outcome.
#[derive(Debug, thiserror::Error)]
pub enum IdempotencyError {
    /// No answer, a lost connection, a lease that was cut: whether the transaction is stored is not known.
    #[error("the idempotency store did not answer")]
    Database(#[from] sqlx::Error),
    /// What the request changes could not be changed.
    #[error("the effect failed")]
    Effect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The transaction took longer than the lease.
    #[error("the transaction outlived its lease")]
    Late,
    /// The store does not answer at the moment, and nobody asked it: the request was not carried out.
    #[error("the idempotency store is out of reach")]
    Unavailable,
    /// Too many requests wait: this one was not carried out.
    #[error("too many requests wait for the idempotency store")]
    Busy,
    /// The process stops, or its lane is gone.
    #[error("the request was not seen to its end")]
    Stopped,
    /// There is no partition for today: [`crate::make_days`], then again.
    #[error("there is no partition of idempotency_keys for today")]
    DayMissing,
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
    /// A live row stands where the lease found none, or another has taken over. Nothing of the transaction may stay.
    #[error("the key was taken over by another request")]
    Overtaken,
    /// A defect of an [`crate::Effect`].
    #[error("the effect gave {verdicts} verdicts on {requests} requests")]
    Miscounted {
        /// Requests handed in.
        requests: usize,
        /// Verdicts that came back.
        verdicts: usize,
    },
}

impl IdempotencyError {
    /// Whether the store did not answer, as opposed to answering with a refusal.
    #[must_use]
    pub fn is_store_lost(&self) -> bool {
        match self {
            Self::Unavailable | Self::Late => true,
            Self::Database(error) => is_lost(error),
            Self::Effect(source) => source.downcast_ref::<sqlx::Error>().is_some_and(is_lost),
            _ => false,
        }
    }

    /// Whether redoing the batch one by one cannot help.
    pub(crate) fn is_final(&self) -> bool {
        // Nothing was sent where no connection came.
        matches!(
            self,
            Self::Unavailable | Self::Database(sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)
        )
    }
}

fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        // Classes: connection exception, insufficient resources (disk full, too many connections), operator
        // intervention (shutting down, cannot connect now), system error.
        sqlx::Error::Database(error) => error
            .code()
            .is_some_and(|code| ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class))),
        _ => false,
    }
}
