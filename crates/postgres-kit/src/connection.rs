//! A connection that does not wait for ever: a server that went away without a word (a failover, a network that dropped the connection)
//! answers nothing and closes nothing, and sqlx would wait for it as long as the kernel does.

use std::io;
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::future::{self, BoxFuture};
use futures::stream::{self, BoxStream};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgQueryResult, PgRow, PgStatement, PgTransactionManager, PgTypeInfo};
use sqlx::{Describe, Either, Execute, Executor, Postgres, SqlSafeStr, SqlStr};
use sqlx_core::transaction::TransactionManager as _;
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::Transaction;

/// Longest time for an answer: each statement, and each row of its result. Longer than the server's own limit on a statement, so that a
/// server that is there answers first, by its error.
pub const STATEMENT_LIMIT: Duration = Duration::from_secs(10);

/// A connection of a [`Pool`](crate::Pool). One whose statement was not answered in time, or was given up by its caller, runs no other
/// statement, and is closed instead of returned to the pool.
#[derive(Debug)]
pub struct Connection {
    inner: PoolConnection<Postgres>,
    answers: Answers,
    is_closed_on_drop: bool,
}

/// Whether the server has answered.
#[derive(Debug)]
struct Answers {
    limit: Duration,
    /// A statement was sent, and its answer did not arrive.
    is_missing: bool,
}

impl Answers {
    /// The answer to a statement.
    async fn within_limit<T>(&mut self, statement: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        if self.is_missing {
            return Err(unanswered());
        }
        self.next(statement).await
    }

    /// The next part of an answer.
    async fn next<T>(&mut self, part: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        self.is_missing = true;
        let Ok(answer) = timeout(self.limit, part).await else { return Err(unanswered()) };
        self.is_missing = false;
        answer
    }
}

/// The error of a statement that was not answered in time: what it did is unknown.
#[must_use]
pub fn unanswered() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database did not answer in time"))
}

impl Connection {
    pub(crate) fn new(inner: PoolConnection<Postgres>, limit: Duration) -> Self {
        Self { inner, answers: Answers { limit, is_missing: false }, is_closed_on_drop: false }
    }

    /// Limits the statements that follow, for as long as the caller has the connection. The server's own limit is to be shorter.
    pub fn set_statement_limit(&mut self, limit: Duration) {
        self.answers.limit = limit;
    }

    /// Closes the connection when it is dropped, in place of its return to the pool: what the session has set and locked ends with it.
    pub fn close_on_drop(&mut self) {
        self.is_closed_on_drop = true;
    }

    /// Begins a transaction by `statement`, which names its isolation level and the like.
    ///
    /// # Errors
    /// [`sqlx::Error`]: the database did not begin.
    pub async fn begin_with(mut self, statement: impl SqlSafeStr) -> sqlx::Result<Transaction> {
        // Of several statements the first may have begun a transaction of which sqlx does not know.
        self.is_closed_on_drop = true;
        let begin = PgTransactionManager::begin(&mut self.inner, Some(statement.into_sql_str()));
        self.answers.within_limit(begin).await?;
        self.is_closed_on_drop = false;
        Ok(Transaction::new(self))
    }

    pub(crate) async fn commit(&mut self) -> sqlx::Result<()> {
        self.answers.within_limit(PgTransactionManager::commit(&mut self.inner)).await
    }

    pub(crate) async fn rollback(&mut self) -> sqlx::Result<()> {
        self.answers.within_limit(PgTransactionManager::rollback(&mut self.inner)).await
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.answers.is_missing || self.is_closed_on_drop {
            self.inner.close_on_drop();
            return;
        }
        // Of a transaction that is open.
        PgTransactionManager::start_rollback(&mut self.inner);
        // What the drop of sqlx's connection does, which asks the server whether it is there, and waits without a limit.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(timeout(self.answers.limit, self.inner.return_to_pool()));
        }
    }
}

impl<'c> Executor<'c> for &'c mut Connection {
    type Database = Postgres;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> BoxStream<'e, sqlx::Result<Either<PgQueryResult, PgRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Connection { inner, answers, .. } = self;
        if answers.is_missing {
            return Box::pin(stream::once(future::ready(Err(unanswered()))));
        }
        let results = (**inner).fetch_many(query);
        Box::pin(stream::try_unfold((results, answers), async |(mut results, answers)| {
            let next = answers.next(results.try_next()).await?;
            // Until the end more is to come.
            answers.is_missing = next.is_some();
            Ok(next.map(|next| (next, (results, answers))))
        }))
    }

    fn fetch_optional<'e, 'q: 'e, E>(self, query: E) -> BoxFuture<'e, sqlx::Result<Option<PgRow>>>
    where
        'c: 'e,
        E: 'q + Execute<'q, Postgres>,
    {
        let Connection { inner, answers, .. } = self;
        Box::pin(answers.within_limit((**inner).fetch_optional(query)))
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [PgTypeInfo],
    ) -> BoxFuture<'e, sqlx::Result<PgStatement>>
    where
        'c: 'e,
    {
        let Connection { inner, answers, .. } = self;
        Box::pin(answers.within_limit((**inner).prepare_with(sql, parameters)))
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, sqlx::Result<Describe<Postgres>>>
    where
        'c: 'e,
    {
        let Connection { inner, answers, .. } = self;
        Box::pin(answers.within_limit((**inner).describe(sql)))
    }
}
