//! A pool of connections that do not wait for ever.

use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, PgPool, Postgres, SqlStr};

use crate::{Connection, STATEMENT_LIMIT, Transaction};

/// A pool of [`Connection`]s. Cheap to clone. As an [`Executor`] it runs a statement on any of them, and reads its whole result before it
/// returns the first row.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: PgPool,
    limit: Duration,
}

impl From<PgPool> for Pool {
    /// Limits each statement by [`STATEMENT_LIMIT`].
    fn from(inner: PgPool) -> Self {
        Self { inner, limit: STATEMENT_LIMIT }
    }
}

impl Pool {
    /// The pool with another limit for each statement.
    #[must_use]
    pub fn with_statement_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// The connections.
    #[must_use]
    pub fn inner(&self) -> &PgPool {
        &self.inner
    }

    /// A connection for several statements.
    ///
    /// # Errors
    /// [`sqlx::Error`]: none became free in time, or the database cannot be reached.
    pub async fn acquire(&self) -> sqlx::Result<Connection> {
        Ok(Connection::new(self.inner.acquire().await?, self.limit))
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`sqlx::Error`]: no connection, or the database did not begin.
    pub async fn begin(&self) -> sqlx::Result<Transaction> {
        self.acquire().await?.begin_with("BEGIN").await
    }
}

impl<'p> Executor<'p> for &'p Pool {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<Either<PgQueryResult, PgRow>>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let results = async {
            let mut connection = self.acquire().await?;
            let results: Vec<_> = connection.fetch_many(query).try_collect().await?;
            Ok::<_, sqlx::Error>(stream::iter(results.into_iter().map(Ok)))
        };
        Box::pin(stream::once(results).try_flatten())
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'p: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        Box::pin(async { self.acquire().await?.fetch_optional(query).await })
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'p: 'e,
    {
        Box::pin(async { self.acquire().await?.prepare_with(sql, parameters).await })
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, sqlx::Result<Describe<Postgres>>>
    where
        'p: 'e,
    {
        Box::pin(async { self.acquire().await?.describe(sql).await })
    }
}
