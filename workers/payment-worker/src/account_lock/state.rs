//! Who holds an account and who waits for it, as plain data: it goes from one run of the lock to the
//! next.

use std::collections::VecDeque;

use payment_protocol::ids::PaymentId;
use serde::{Deserialize, Serialize};

/// A payment that wants an account for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Its workflow, which the account is passed to.
    pub workflow_id: String,
    /// The payment, whose end in our ledger passes the account on.
    pub payment_id: PaymentId,
}

/// Input of a run, and answer of the query `lockState`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockState {
    /// Who has the account.
    pub holder: Option<Waiter>,
    /// Who waits, oldest first.
    pub waiting: VecDeque<Waiter>,
    /// Grants of this run.
    pub grants: u32,
    /// Grants after which the lock goes on as a new run.
    pub grants_max: u32,
    /// The holder is to be told that the account is its own.
    pub tell: bool,
    /// The holder says that it has ended.
    pub look_again: bool,
}

impl LockState {
    /// Nobody holds or waits.
    #[must_use]
    pub fn empty(grants_max: u32) -> Self {
        Self { holder: None, waiting: VecDeque::new(), grants: 0, grants_max, tell: false, look_again: false }
    }

    /// A payment wants the account. Asked again, it keeps its place, and is told again if it holds it.
    pub(super) fn ask(&mut self, waiter: Waiter) {
        let same = |other: &&mut Waiter| other.payment_id == waiter.payment_id;
        if let Some(holder) = self.holder.as_mut().filter(same) {
            *holder = waiter;
            self.tell = true;
        } else if let Some(place) = self.waiting.iter_mut().find(same) {
            *place = waiter;
        } else {
            self.waiting.push_back(waiter);
        }
    }

    /// A payment no longer waits; or it holds the account and says that it has ended, which is looked up.
    pub(super) fn let_go(&mut self, waiter: &Waiter) {
        if self.holder.as_ref().is_some_and(|holder| holder.payment_id == waiter.payment_id) {
            self.look_again = true;
        }
        self.waiting.retain(|other| other.payment_id != waiter.payment_id);
    }

    /// Gives the free account to who has waited longest. False when nobody waits.
    pub(super) fn grant(&mut self) -> bool {
        self.holder = self.waiting.pop_front();
        self.tell = self.holder.is_some();
        self.look_again = false;
        self.grants = self.grants.saturating_add(u32::from(self.tell));
        self.tell
    }

    /// Whether this run has granted enough.
    pub(super) fn is_long(&self) -> bool {
        self.grants >= self.grants_max
    }

    /// What the next run begins with: nothing is lost.
    pub(super) fn next_run(&self) -> Self {
        Self { grants: 0, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(payment: &str, workflow: &str) -> Waiter {
        Waiter { workflow_id: workflow.into(), payment_id: PaymentId::new(payment).unwrap() }
    }

    fn held_by(state: &LockState) -> Option<&str> {
        state.holder.as_ref().map(|holder| holder.workflow_id.as_str())
    }

    #[test]
    fn s1_5_the_account_goes_from_one_to_the_next_in_the_order_of_asking() {
        let mut state = LockState::empty(2);
        for id in ["a", "b", "c"] {
            state.ask(waiter(id, id));
        }
        assert!(state.grant());
        assert_eq!((held_by(&state), state.tell), (Some("a"), true));
        state.let_go(&waiter("b", "b"));
        assert!(!state.look_again, "a waiter's withdrawal is no word of the holder");
        state.let_go(&waiter("a", "a"));
        assert!(state.look_again);
        assert!(state.grant());
        assert_eq!((held_by(&state), state.look_again, state.is_long()), (Some("c"), false, true));
        assert!(!state.grant());
        assert_eq!(held_by(&state), None);
    }

    #[test]
    fn s1_5_asking_again_keeps_the_place_and_tells_the_holder_again() {
        let mut state = LockState::empty(10);
        for id in ["a", "b", "c"] {
            state.ask(waiter(id, id));
        }
        state.ask(waiter("b", "b-again"));
        assert_eq!(state.waiting.len(), 3);
        assert!(state.grant());
        state.tell = false;
        state.ask(waiter("a", "a-again"));
        assert_eq!((held_by(&state), state.tell, state.waiting.len()), (Some("a-again"), true, 2));
        assert!(state.grant());
        assert_eq!(held_by(&state), Some("b-again"));
    }

    #[test]
    fn s1_5_the_next_run_begins_where_this_one_stood() {
        let mut state = LockState::empty(1);
        for id in ["a", "b", "c"] {
            state.ask(waiter(id, id));
        }
        assert!(state.grant());
        assert!(state.is_long());
        let next = state.next_run();
        assert!(!next.is_long());
        assert_eq!((held_by(&next), next.tell), (Some("a"), true));
        assert_eq!(next.waiting, state.waiting);
    }
}
