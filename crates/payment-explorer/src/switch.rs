//! The simulated switch: what it has of one reference, and what it can be asked. Every choice it is free to
//! make is made by the caller, so that each can be explored.

use payment_protocol::SwitchProfile;

/// How a transfer stands at the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Status {
    /// Taken, not decided.
    Pending,
    /// The money left.
    Settled,
    /// Finally refused.
    Rejected,
    /// Cancelled before it settled.
    Cancelled,
    /// Settled, and given back.
    Recalled,
}

/// Everything it has under the payment's reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Switch {
    /// Transfers in order of arrival; more than one only where it does not deduplicate.
    pub transfers: Vec<Status>,
    /// A cancel came for a reference it did not know.
    pub tombstone: bool,
    /// It has retention_expired its references; what it took may settle all the same.
    pub retention_expired: bool,
    /// It repeats "not found" to every cancel, since that was its first answer under the key.
    pub stuck_not_found: bool,
    /// What it recorded under recall's key.
    pub recall_refused: bool,
}

/// What becomes of a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Take {
    /// Takes it.
    Accept,
    /// Refuses it, and remembers that.
    Refuse,
    /// Refuses it and remembers nothing.
    RefuseUnrecorded,
}

/// Answer to a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sent {
    /// It has it.
    Accepted,
    /// It does not want it.
    Refused,
}

/// Answer to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cancelled {
    /// It was pending, or cancelled before.
    Cancelled,
    /// Unknown; a mark keeps a later submit out.
    Tombstoned,
    /// It had rejected it.
    AlreadyRejected,
    /// It had settled it.
    AlreadySettled,
    /// Unknown, and no mark.
    NotFound,
}

/// Answer to a query, or what a statement shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Found {
    /// Not decided.
    Pending,
    /// The money left.
    Settled,
    /// It never will.
    Void,
    /// Unknown.
    Nothing,
}

/// Answer to a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GivenBack {
    /// The money came back.
    Recalled,
    /// It will not.
    Refused,
    /// It cannot say.
    Unknown,
}

/// Moment on the switch's clock, relative to submit's deadline. One step is one tick of [`crate::state::State`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// Before the deadline.
    Before,
    /// Past the deadline on some of its clocks: within `max_skew`.
    Skew,
    /// Past it on all of them.
    Past,
    /// Its retention of references has passed.
    Retired,
}

impl Moment {
    /// The next one.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self {
            Self::Before => Some(Self::Skew),
            Self::Skew => Some(Self::Past),
            Self::Past => Some(Self::Retired),
            Self::Retired => None,
        }
    }
}

impl Switch {
    /// Whether the money left and did not come back.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.transfers.contains(&Status::Settled)
    }

    /// Whether something it took may still settle.
    #[must_use]
    pub fn pending(&self) -> bool {
        self.transfers.contains(&Status::Pending)
    }

    /// What it would do with a submit that arrives now: each way it is free to choose.
    #[must_use]
    pub fn takes(&self, profile: &SwitchProfile, now: Moment) -> Vec<Take> {
        if self.known_to_a_submit(profile) {
            return vec![Take::Accept];
        }
        match now {
            Moment::Past | Moment::Retired if profile.honours_deadline => vec![Take::Refuse],
            // The warning under which such a profile is accepted: nothing is paused for that long.
            Moment::Retired => Vec::new(),
            _ => vec![Take::Accept, Take::Refuse, Take::RefuseUnrecorded],
        }
    }

    /// Whether a submit that arrives now could still lead to a transfer.
    #[must_use]
    pub fn would_take(&self, profile: &SwitchProfile, now: Moment) -> bool {
        !self.known_to_a_submit(profile) && self.takes(profile, now).contains(&Take::Accept)
    }

    /// Whether the answer to a submit follows from what it has already.
    fn known_to_a_submit(&self, profile: &SwitchProfile) -> bool {
        !self.retention_expired && (self.tombstone || (profile.deduplicates && !self.transfers.is_empty()))
    }

    /// A submit arrives.
    pub fn submit(&mut self, profile: &SwitchProfile, take: Take) -> Sent {
        if self.known_to_a_submit(profile) {
            let dead = self.tombstone
                || self.transfers.iter().all(|status| matches!(status, Status::Rejected | Status::Cancelled));
            return if dead { Sent::Refused } else { Sent::Accepted };
        }
        match take {
            Take::Accept => {
                self.transfers.push(Status::Pending);
                Sent::Accepted
            }
            Take::Refuse => {
                self.transfers.push(Status::Rejected);
                Sent::Refused
            }
            Take::RefuseUnrecorded => Sent::Refused,
        }
    }

    /// A cancel arrives.
    pub fn cancel(&mut self, profile: &SwitchProfile) -> Cancelled {
        if self.stuck_not_found && !self.retention_expired {
            return Cancelled::NotFound;
        }
        if self.retention_expired || self.transfers.is_empty() {
            if self.tombstone && !self.retention_expired {
                return Cancelled::Tombstoned;
            }
            if !profile.tombstones {
                return Cancelled::NotFound;
            }
            // What it forgot is not found by a submit either: the mark is a new one.
            self.tombstone = !self.retention_expired;
            return Cancelled::Tombstoned;
        }
        if self.settled() {
            return Cancelled::AlreadySettled;
        }
        let mut answer = Cancelled::AlreadyRejected;
        for status in &mut self.transfers {
            match status {
                Status::Pending | Status::Cancelled => {
                    *status = Status::Cancelled;
                    answer = Cancelled::Cancelled;
                }
                Status::Settled | Status::Rejected | Status::Recalled => {}
            }
        }
        answer
    }

    /// A query arrives.
    #[must_use]
    pub fn query(&self) -> Found {
        if self.retention_expired {
            return Found::Nothing;
        }
        if self.tombstone {
            return Found::Void;
        }
        self.show(false)
    }

    /// The statement is read: what is final, also of retention_expired references.
    #[must_use]
    pub fn statement(&self) -> Found {
        self.show(true)
    }

    fn show(&self, only_final: bool) -> Found {
        if self.transfers.iter().any(|status| matches!(status, Status::Settled | Status::Recalled)) {
            Found::Settled
        } else if self.pending() {
            if only_final { Found::Nothing } else { Found::Pending }
        } else if self.transfers.is_empty() {
            Found::Nothing
        } else {
            Found::Void
        }
    }

    /// A recall arrives; `gives` is its choice where it is free.
    pub fn recall(&mut self, gives: bool) -> GivenBack {
        if self.retention_expired {
            return GivenBack::Unknown;
        }
        if self.recall_refused {
            return GivenBack::Refused;
        }
        if self.transfers.contains(&Status::Recalled) {
            return GivenBack::Recalled;
        }
        match self.transfers.iter_mut().find(|status| **status == Status::Settled) {
            None => GivenBack::Unknown,
            Some(status) if gives => {
                *status = Status::Recalled;
                GivenBack::Recalled
            }
            Some(_) => {
                self.recall_refused = true;
                GivenBack::Refused
            }
        }
    }

    /// Whether a recall's answer is its free choice now.
    #[must_use]
    pub fn may_give_back(&self) -> bool {
        !self.retention_expired && !self.recall_refused && self.settled()
    }
}
