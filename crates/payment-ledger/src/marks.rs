//! Marks that rows get for what happened at Temporal: one statement marks all rows of a short while.
//!
//! A mark saves a repetition and decides nothing: without the mark a payment's start is repeated after its lease and a message is
//! delivered again, both without effect. So a mark may wait for others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use postgres_kit::Pool;
use tokio::sync::oneshot;

use crate::LedgerError;

/// How long a mark waits for others: much shorter than the second after which a message is due again, and the lease of a start.
const GATHER: Duration = Duration::from_millis(50);

/// Marks of one kind that wait to be written.
#[derive(Debug)]
pub(crate) struct Marks<Id> {
    waiting: Arc<Mutex<Vec<WaitingMark<Id>>>>,
}

/// A mark, and how to say that it was written.
type WaitingMark<Id> = (Id, oneshot::Sender<()>);

impl<Id> Clone for Marks<Id> {
    fn clone(&self) -> Self {
        Self { waiting: Arc::clone(&self.waiting) }
    }
}

impl<Id> Default for Marks<Id> {
    fn default() -> Self {
        Self { waiting: Arc::default() }
    }
}

/// Takes the waiting marks, once: also if their first caller goes away, which drops them, and their callers write them.
struct Gathering<'a, Id> {
    waiting: &'a Mutex<Vec<WaitingMark<Id>>>,
    is_taken: bool,
}

impl<Id> Gathering<'_, Id> {
    fn take(&mut self) -> Vec<WaitingMark<Id>> {
        self.is_taken = true;
        std::mem::take(&mut *lock(self.waiting))
    }
}

impl<Id> Drop for Gathering<'_, Id> {
    fn drop(&mut self) {
        if !self.is_taken {
            self.take();
        }
    }
}

fn lock<Id>(waiting: &Mutex<Vec<WaitingMark<Id>>>) -> MutexGuard<'_, Vec<WaitingMark<Id>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<Id> Marks<Id> {
    /// Writes the mark of `id` with the marks that come within [`GATHER`] of the first one. The first caller writes all of them by
    /// `write`; if it does not succeed, each caller writes its own.
    ///
    /// # Errors
    /// [`LedgerError`] of the caller's own write.
    pub(crate) async fn mark(
        &self,
        pool: &Pool,
        id: Id,
        write: impl AsyncFn(&Pool, &[Id]) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError>
    where
        Id: Clone,
    {
        let (reply, written) = oneshot::channel();
        let is_first = {
            let mut waiting = lock(&self.waiting);
            waiting.push((id.clone(), reply));
            waiting.len() == 1
        };
        if !is_first {
            return match written.await {
                Ok(()) => Ok(()),
                Err(_) => write(pool, &[id]).await,
            };
        }
        let mut gathering = Gathering { waiting: &self.waiting, is_taken: false };
        tokio::time::sleep(GATHER).await;
        let gathered = gathering.take();
        let (ids, replies): (Vec<Id>, Vec<_>) = gathered.into_iter().unzip();
        write(pool, &ids).await?;
        for reply in replies {
            // A caller that has gone needs no answer.
            let _ = reply.send(());
        }
        Ok(())
    }
}
