//! Runs the protocol's own code up to its next question, by giving it the answers it has had.
//!
//! The protocol is asynchronous and keeps its place in its locals, which cannot be copied. Its answers can: to
//! come back to any place, the code is run again from the top with the same answers, as the workflow engine
//! does after a crash. So every step of the exploration is a replay too, and a replay that asks another
//! question than before is reported.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use foldhash::quality::FixedState;

/// Small numbers for values that are few, so that a place in the code is a short row of numbers.
#[derive(Debug)]
pub struct Interned<T> {
    values: RefCell<Vec<Rc<T>>>,
    numbers: RefCell<HashMap<Rc<T>, Number, FixedState>>,
}

impl<T> Default for Interned<T> {
    fn default() -> Self {
        Self { values: RefCell::default(), numbers: RefCell::default() }
    }
}

/// Number of an interned value.
pub type Number = u16;

impl<T: Eq + Hash> Interned<T> {
    /// The number of `value`.
    #[must_use]
    pub fn number(&self, value: T) -> Number {
        if let Some(number) = self.numbers.borrow().get(&value) {
            return *number;
        }
        let value = Rc::new(value);
        let mut values = self.values.borrow_mut();
        let number = Number::try_from(values.len()).unwrap_or(Number::MAX);
        values.push(value.clone());
        self.numbers.borrow_mut().insert(value, number);
        number
    }

    /// The value of a number.
    #[must_use]
    pub fn value(&self, number: Number) -> Option<Rc<T>> {
        self.values.borrow().get(usize::from(number)).cloned()
    }

    /// Every value met so far.
    #[must_use]
    pub fn values(&self) -> Vec<Rc<T>> {
        self.values.borrow().clone()
    }
}

/// One question the code asked and the answer it had.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Exchange<Q, A> {
    /// What it asked.
    pub asked: Q,
    /// What it heard.
    pub heard: A,
}

/// The answers so far, and the question that has none yet.
#[derive(Debug)]
pub struct Script<'a, Q, A> {
    known: &'a Interned<Exchange<Q, A>>,
    past: &'a [Number],
    next: Cell<usize>,
    question: RefCell<Option<Q>>,
}

/// Where the code came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came<Q, R> {
    /// It asks this.
    Asks(Q),
    /// It ended with this.
    Ended(R),
    /// It asked something else than the last time, or waits for nothing.
    Strayed,
}

impl<'a, Q: Eq + Hash, A: Clone + Eq + Hash> Script<'a, Q, A> {
    /// A script with these answers.
    #[must_use]
    pub fn new(known: &'a Interned<Exchange<Q, A>>, past: &'a [Number]) -> Self {
        Self { known, past, next: Cell::new(0), question: RefCell::new(None) }
    }

    /// Asks: the recorded answer, or never.
    pub async fn ask(&self, question: Q) -> A {
        let at = self.next.get();
        if let Some(exchange) = self.past.get(at).and_then(|number| self.known.value(*number))
            && exchange.asked == question
        {
            self.next.set(at + 1);
            return exchange.heard.clone();
        }
        if at == self.past.len() {
            *self.question.borrow_mut() = Some(question);
        }
        std::future::pending().await
    }

    /// Runs `code` with the recorded answers.
    pub fn run<R>(&self, code: impl Future<Output = R>) -> Came<Q, R> {
        let mut code = pin!(code);
        match code.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) if self.next.get() == self.past.len() => Came::Ended(result),
            Poll::Ready(_) => Came::Strayed,
            Poll::Pending => self.question.borrow_mut().take().map_or(Came::Strayed, Came::Asks),
        }
    }
}
