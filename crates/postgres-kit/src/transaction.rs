//! A transaction over a connection of its own.

use std::ops::{Deref, DerefMut};

use crate::Connection;

/// A transaction. It is rolled back unless [`Transaction::commit`] succeeds. A caller that goes away meanwhile, for example because a
/// client disconnects or an activity is cancelled, leaves nothing behind: what the next user of the connection writes is never part of it.
#[derive(Debug)]
pub struct Transaction {
    connection: Connection,
}

impl Transaction {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    /// Commits.
    ///
    /// # Errors
    /// [`sqlx::Error`]: it was rolled back if the database says so, and is unknown if the answer is missing.
    pub async fn commit(mut self) -> sqlx::Result<()> {
        self.connection.commit().await
    }

    /// Rolls back, and waits until the locks are given back: a dropped transaction keeps them for another moment.
    ///
    /// # Errors
    /// [`sqlx::Error`]; nothing was committed in any case.
    pub async fn rollback(mut self) -> sqlx::Result<()> {
        self.connection.rollback().await
    }
}

impl Deref for Transaction {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }
}
