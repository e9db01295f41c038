//! The holder of an account lock and the waiting payments, as plain data that continue-as-new hands to the next
//! run.

use std::collections::VecDeque;

use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};

/// A payment that requests or holds the lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// The payment's workflow, which receives the signal `passLock`.
    pub workflow_id: String,
    /// The payment. Its end in our ledger passes the lock on.
    pub payment_id: PaymentId,
}

/// Input of a run, and answer of the query `lockState`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockState {
    /// The payment that holds the lock.
    pub holder: Option<Waiter>,
    /// The payments that wait, oldest first.
    pub waiting: VecDeque<Waiter>,
    /// Grants of this run.
    pub grants: u32,
    /// Grants after which the workflow continues as a new run.
    pub grants_max: u32,
    /// The holder must be signalled that it has the lock.
    pub notify_holder: bool,
    /// The holder released the lock, so its payment must be read again.
    pub recheck_holder: bool,
}

impl LockState {
    /// A lock without holder and waiting payments.
    #[must_use]
    pub fn empty(grants_max: u32) -> Self {
        Self {
            holder: None,
            waiting: VecDeque::new(),
            grants: 0,
            grants_max,
            notify_holder: false,
            recheck_holder: false,
        }
    }

    /// Queues a payment. A repeated request keeps its position; a repeated request of the holder signals the holder
    /// again.
    pub(super) fn request(&mut self, waiter: Waiter) {
        let same = |other: &&mut Waiter| other.payment_id == waiter.payment_id;
        if let Some(holder) = self.holder.as_mut().filter(same) {
            *holder = waiter;
            self.notify_holder = true;
        } else if let Some(queued) = self.waiting.iter_mut().find(same) {
            *queued = waiter;
        } else {
            self.waiting.push_back(waiter);
        }
    }

    /// Withdraws a waiting payment's request. A release by the holder requires that its payment is read again.
    pub(super) fn release(&mut self, waiter: &Waiter) {
        if self.holder.as_ref().is_some_and(|holder| holder.payment_id == waiter.payment_id) {
            self.recheck_holder = true;
        }
        self.waiting.retain(|other| other.payment_id != waiter.payment_id);
    }

    /// Grants the free lock to the payment that has waited longest. False if none waits.
    pub(super) fn grant_next(&mut self) -> bool {
        self.holder = self.waiting.pop_front();
        self.notify_holder = self.holder.is_some();
        self.recheck_holder = false;
        self.grants = self.grants.saturating_add(u32::from(self.notify_holder));
        self.notify_holder
    }

    /// Whether this run has reached its limit of grants.
    pub(super) fn reached_grants_max(&self) -> bool {
        self.grants >= self.grants_max
    }

    /// The input of the next run: this state with its grants reset.
    pub(super) fn for_next_run(&self) -> Self {
        Self { grants: 0, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(payment: &str, workflow: &str) -> Waiter {
        Waiter { workflow_id: workflow.into(), payment_id: PaymentId::new(payment).unwrap() }
    }

    fn holder(state: &LockState) -> Option<&str> {
        state.holder.as_ref().map(|holder| holder.workflow_id.as_str())
    }

    #[test]
    fn s1_5_the_account_lock_is_granted_in_the_order_of_requests() {
        let mut state = LockState::empty(2);
        for id in ["a", "b", "c"] {
            state.request(waiter(id, id));
        }
        assert!(state.grant_next());
        assert_eq!((holder(&state), state.notify_holder), (Some("a"), true));
        state.release(&waiter("b", "b"));
        assert!(!state.recheck_holder, "expected a withdrawn request not to recheck the holder");
        state.release(&waiter("a", "a"));
        assert!(state.recheck_holder);
        assert!(state.grant_next());
        assert_eq!(
            (holder(&state), state.recheck_holder, state.reached_grants_max()),
            (Some("c"), false, true)
        );
        assert!(!state.grant_next());
        assert_eq!(holder(&state), None);
    }

    #[test]
    fn s1_5_a_repeated_lock_request_keeps_its_position_or_signals_the_holder() {
        let mut state = LockState::empty(10);
        for id in ["a", "b", "c"] {
            state.request(waiter(id, id));
        }
        state.request(waiter("b", "b-again"));
        assert_eq!(state.waiting.len(), 3);
        assert!(state.grant_next());
        state.notify_holder = false;
        state.request(waiter("a", "a-again"));
        assert_eq!((holder(&state), state.notify_holder, state.waiting.len()), (Some("a-again"), true, 2));
        assert!(state.grant_next());
        assert_eq!(holder(&state), Some("b-again"));
    }

    #[test]
    fn s1_5_the_next_account_lock_run_keeps_the_holder_and_the_queue() {
        let mut state = LockState::empty(1);
        for id in ["a", "b", "c"] {
            state.request(waiter(id, id));
        }
        assert!(state.grant_next());
        assert!(state.reached_grants_max());
        let next = state.for_next_run();
        assert!(!next.reached_grants_max());
        assert_eq!((holder(&next), next.notify_holder), (Some("a"), true));
        assert_eq!(next.waiting, state.waiting);
    }
}
