//! Errors around a claim. That a key is in use is an outcome ([`crate::ClaimOutcome`], [`crate::RequestOutcome`]), not an
//! error.

/// A claim or a completion failed.
#[derive(Debug, thiserror::Error)]
pub enum IdempotencyError {
    /// The store did not answer, the connection was lost or the lease was cut off: whether the transaction was committed is
    /// unknown.
    #[error(
        "the database of the idempotency store did not answer and the outcome of the request is unknown; the client retries the request with the same Idempotency-Key"
    )]
    Database(#[from] sqlx::Error),
    /// The effect of the request failed.
    #[error(
        "the effect of an idempotent request failed, so its transaction was rolled back and nothing was stored"
    )]
    BatchEffect(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The transaction took longer than the lease.
    #[error(
        "the transaction of a request took longer than the lease of its idempotency key; the client retries the request with the same Idempotency-Key"
    )]
    LeaseExceeded,
    /// The store is unavailable or its circuit is open: the request was not executed.
    #[error(
        "the idempotency store is unavailable or its circuit is open, and the request was not executed; the client retries the request later"
    )]
    Unavailable,
    /// Too many requests are queued: the request was not executed.
    #[error(
        "the queue of the idempotency store is full and the request was not executed; the client retries the request later"
    )]
    QueueFull,
    /// The process is stopping, its database did not answer, or the batch worker is gone: whether the request was executed is unknown.
    #[error(
        "the outcome of the request is unknown because the process stopped or its database did not answer; the client retries the request with the same Idempotency-Key"
    )]
    OutcomeUnknown,
    /// No partition exists for today: call [`crate::create_partitions`] and retry.
    #[error(
        "the table idempotency.keys has no partition for today; the caller must create the partition and repeat the request"
    )]
    PartitionMissing,
    /// The row was written by a later release, and its hash may have another meaning.
    #[error(
        "the row of an idempotency key has schema version {version}, but this release supports only versions up to {supported}; deploy the release that wrote the row"
    )]
    UnsupportedSchemaVersion {
        /// Version of the row.
        version: i16,
        /// Latest version that this release reads.
        supported: i16,
    },
    /// A server error is never stored, because a retry may succeed.
    #[error(
        "a response with status {status} cannot be stored for an idempotency key; only statuses 200 to 499 can"
    )]
    NotStorable {
        /// The HTTP status that was to be stored.
        status: u16,
    },
    /// Another request has taken the key over. The transaction must be rolled back.
    #[error(
        "another request took over the idempotency key while this request ran; the caller must roll this request's transaction back"
    )]
    ClaimLost,
    /// A defect of a [`crate::BatchEffect`].
    #[error(
        "the effect of a batch of idempotent requests returned {outcomes} outcomes for {requests} requests; this is a software defect"
    )]
    OutcomeCount {
        /// Requests passed to the effect.
        requests: usize,
        /// Outcomes returned by it.
        outcomes: usize,
    },
}

impl IdempotencyError {
    /// Whether the store did not answer, as opposed to answering with an error.
    #[must_use]
    pub fn is_store_unavailable(&self) -> bool {
        match self {
            Self::Unavailable | Self::LeaseExceeded => true,
            Self::Database(error) => is_unavailable(error),
            Self::BatchEffect(source) => source.downcast_ref::<sqlx::Error>().is_some_and(is_unavailable),
            _ => false,
        }
    }

    /// Whether retrying the batch one by one cannot help.
    pub(crate) fn is_final(&self) -> bool {
        // Without a connection nothing was sent.
        matches!(
            self,
            Self::Unavailable | Self::Database(sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed)
        )
    }
}

fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        // Classes: connection exception, insufficient resources (disk full, too many connections), operator
        // intervention (shutting down, cannot connect now), system error; and a lock that was not granted in time.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            ["08", "53", "57", "58", "55P03"].iter().any(|beginning| code.starts_with(beginning))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error of the server with this SQLSTATE.
    #[derive(Debug)]
    struct ServerError(&'static str);

    impl std::fmt::Display for ServerError {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }

    impl std::error::Error for ServerError {}

    impl sqlx::error::DatabaseError for ServerError {
        fn message(&self) -> &str {
            self.0
        }
        fn code(&self) -> Option<std::borrow::Cow<'_, str>> {
            Some(self.0.into())
        }
        fn as_error(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
            self
        }
        fn as_error_mut(&mut self) -> &mut (dyn std::error::Error + Send + Sync + 'static) {
            self
        }
        fn into_error(self: Box<Self>) -> Box<dyn std::error::Error + Send + Sync + 'static> {
            self
        }
        fn kind(&self) -> sqlx::error::ErrorKind {
            sqlx::error::ErrorKind::Other
        }
    }

    fn server(code: &'static str) -> sqlx::Error {
        sqlx::Error::Database(Box::new(ServerError(code)))
    }

    #[test]
    fn a_store_that_did_not_answer_is_no_store_that_refused() {
        let silent = [
            IdempotencyError::Unavailable,
            IdempotencyError::LeaseExceeded,
            IdempotencyError::Database(sqlx::Error::PoolTimedOut),
            IdempotencyError::Database(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into())),
            IdempotencyError::Database(server("08006")),
            IdempotencyError::Database(server("53100")),
            IdempotencyError::Database(server("55P03")),
            IdempotencyError::Database(server("57P01")),
            IdempotencyError::Database(server("58030")),
            IdempotencyError::BatchEffect(Box::new(sqlx::Error::PoolClosed)),
            IdempotencyError::BatchEffect(Box::new(server("57P03"))),
        ];
        for error in silent {
            assert!(error.is_store_unavailable(), "{error:?}");
        }
        let answered = [
            IdempotencyError::QueueFull,
            IdempotencyError::ClaimLost,
            IdempotencyError::Database(sqlx::Error::RowNotFound),
            IdempotencyError::Database(server("23505")),
            IdempotencyError::Database(server("40001")),
            IdempotencyError::BatchEffect(Box::new(server("22012"))),
            IdempotencyError::BatchEffect("no database error".into()),
        ];
        for error in answered {
            assert!(!error.is_store_unavailable(), "{error:?}");
        }
    }

    #[test]
    fn only_a_batch_that_was_not_sent_is_final() {
        for error in [
            IdempotencyError::Unavailable,
            IdempotencyError::Database(sqlx::Error::PoolTimedOut),
            IdempotencyError::Database(sqlx::Error::PoolClosed),
        ] {
            assert!(error.is_final(), "{error:?}");
        }
        for error in [
            IdempotencyError::LeaseExceeded,
            IdempotencyError::Database(server("57P01")),
            IdempotencyError::BatchEffect(Box::new(sqlx::Error::PoolTimedOut)),
        ] {
            assert!(!error.is_final(), "{error:?}");
        }
    }
}
