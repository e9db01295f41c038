//! Runs the protocol's own code up to its next call, by replaying the replies to its earlier calls.
//!
//! The protocol is asynchronous and keeps its position in local variables, which cannot be copied. Its replies
//! can: to return to any position, the explorer runs the code again from the start with the same replies, as
//! Temporal does after a crash. So every step of the exploration is also a replay, and a replay that makes
//! another call than before is reported.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use foldhash::quality::FixedState;

/// Gives each of a few values a small index, so that a history is a short list of indices.
#[derive(Debug)]
pub struct Interner<T> {
    values: RefCell<Vec<Rc<T>>>,
    indices: RefCell<HashMap<Rc<T>, Index, FixedState>>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { values: RefCell::default(), indices: RefCell::default() }
    }
}

/// Index of an interned value.
pub type Index = u16;

impl<T: Eq + Hash> Interner<T> {
    /// The index of `value`; the same index for an equal value.
    #[must_use]
    pub fn intern(&self, value: T) -> Index {
        if let Some(index) = self.indices.borrow().get(&value) {
            return *index;
        }
        let value = Rc::new(value);
        let mut values = self.values.borrow_mut();
        assert!(
            values.len() < usize::from(Index::MAX),
            "the interner is full: an index would have two values"
        );
        let index = Index::try_from(values.len()).unwrap_or(Index::MAX);
        values.push(value.clone());
        self.indices.borrow_mut().insert(value, index);
        index
    }

    /// The value of an index; `None` if no value has it.
    #[must_use]
    pub fn value(&self, index: Index) -> Option<Rc<T>> {
        self.values.borrow().get(usize::from(index)).cloned()
    }

    /// Every interned value.
    #[must_use]
    pub fn values(&self) -> Vec<Rc<T>> {
        self.values.borrow().clone()
    }
}

/// One call of the code and its reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange<C, R> {
    /// The call.
    pub call: C,
    /// Its reply.
    pub reply: R,
}

/// The replies so far, and the call that has none yet.
#[derive(Debug)]
pub struct Replay<'a, C, R> {
    exchanges: &'a Interner<Exchange<C, R>>,
    history: &'a [Index],
    next: Cell<usize>,
    awaited: RefCell<Option<C>>,
}

/// The position of the code after a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<C, T> {
    /// The code awaits the reply to this call.
    Awaits(C),
    /// The code returned this result.
    Completed(T),
    /// The code made another call than in its history, or awaits nothing.
    Diverged,
}

impl<'a, C: Eq + Hash, R: Clone + Eq + Hash> Replay<'a, C, R> {
    /// A replay of this history.
    #[must_use]
    pub fn new(exchanges: &'a Interner<Exchange<C, R>>, history: &'a [Index]) -> Self {
        Self { exchanges, history, next: Cell::new(0), awaited: RefCell::new(None) }
    }

    /// Replies with the recorded reply; never returns at the end of the history.
    pub async fn call(&self, call: C) -> R {
        let at = self.next.get();
        if let Some(exchange) = self.history.get(at).and_then(|index| self.exchanges.value(*index))
            && exchange.call == call
        {
            self.next.set(at + 1);
            return exchange.reply.clone();
        }
        if at == self.history.len() {
            *self.awaited.borrow_mut() = Some(call);
        }
        std::future::pending().await
    }

    /// Runs `code` with the recorded replies.
    pub fn run<T>(&self, code: impl Future<Output = T>) -> Progress<C, T> {
        let mut code = pin!(code);
        match code.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) if self.next.get() == self.history.len() => Progress::Completed(result),
            Poll::Ready(_) => Progress::Diverged,
            Poll::Pending => self.awaited.borrow_mut().take().map_or(Progress::Diverged, Progress::Awaits),
        }
    }
}
