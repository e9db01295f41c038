//! The simulated switch: its record of one reference, and its answers. The caller makes every choice that the
//! switch is free to make, so that each choice can be explored.

use payment_protocol::SwitchProfile;

/// The status of a transfer at the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransferStatus {
    /// Accepted, not decided.
    Pending,
    /// The money left.
    Settled,
    /// Finally refused.
    Rejected,
    /// Cancelled before it settled.
    Cancelled,
    /// Settled, and the money came back: recalled by us, or returned by the receiving bank.
    Returned,
}

impl TransferStatus {
    /// The status in a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Settled => "settled",
            Self::Rejected => "rejected",
            Self::Cancelled => "cancelled",
            Self::Returned => "returned",
        }
    }
}

/// Everything the switch has recorded under the payment's reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Switch {
    /// Transfers in order of arrival; more than one only at a switch that does not deduplicate.
    pub transfers: Vec<TransferStatus>,
    /// The switch received a cancel for an unknown reference.
    pub tombstone: bool,
    /// The retention of references has expired; a transfer that was accepted may still settle.
    pub retention_expired: bool,
    /// The switch repeats its first answer under cancel's key to every cancel; `None` if it answers anew.
    pub repeated_cancel_answer: Option<RepeatedCancelAnswer>,
    /// A refusal is recorded under recall's key.
    pub recall_refused: bool,
    /// The money came back because of our recall.
    pub recalled: bool,
    /// The receiving bank returned the money by a message of its own.
    pub return_sent: bool,
    /// Another amount than was sent came back.
    pub returned_other_amount: bool,
    /// The switch never answers again.
    pub silent: bool,
    /// The switch never decides the transfer, and says of it for ever that it is pending.
    pub stuck: bool,
    /// How many queries of the transfer the switch answered; counted only where their number is limited.
    pub queries: u8,
    /// A query came before its time, or beyond the limit.
    pub has_refused_a_query: bool,
    /// The switch lost its record of the transfer before its retention, by a failover of its own; the transfer goes on.
    pub forgot: bool,
}

/// An indefinite answer that a switch repeats to every cancel because the key is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RepeatedCancelAnswer {
    /// "Not found".
    NotFound,
    /// "In process" or "refused".
    Undecided,
}

/// How the switch handles a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubmitHandling {
    /// Accepts the transfer.
    Accept,
    /// Refuses the transfer and records the refusal.
    Refuse,
    /// Refuses the transfer and records nothing. Where rejects are final, such an answer has no code that is believed.
    RefuseUnrecorded,
    /// Refuses the transfer because it has one with this reference already.
    RefuseDuplicate,
}

/// The switch's answer to a submit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SubmitResult {
    /// Accepted.
    Accepted,
    /// Refused for good.
    Refused,
    /// Refused without a record.
    RefusedUnrecorded,
    /// Refused because the reference is in use.
    RefusedDuplicate,
}

/// The switch's answer to a cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CancelResult {
    /// The transfer was pending, or cancelled before.
    Cancelled,
    /// Unknown; a tombstone refuses a later submit.
    Tombstoned,
    /// Rejected before.
    AlreadyRejected,
    /// Settled before.
    AlreadySettled,
    /// Settled before, and the money came back.
    AlreadyReturned,
    /// Unknown, without a tombstone.
    NotFound,
    /// Repeated from an earlier cancel: nothing changes.
    Undecided,
}

/// The switch's answer to a query, or the content of its statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryResult {
    /// Not decided.
    Pending,
    /// The money left.
    Settled,
    /// The money left and came back.
    Returned,
    /// The transfer will never settle.
    Void,
    /// Unknown.
    NotFound,
}

/// The switch's answer to a recall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecallResult {
    /// The switch returned the money.
    Recalled,
    /// The switch refuses to return the money.
    Refused,
    /// The switch has no definite answer.
    Unknown,
}

/// The switch's clock, relative to submit's deadline. One tick of the clock leads to the next phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ClockPhase {
    /// Before the deadline.
    BeforeDeadline,
    /// After the deadline on some of the switch's clocks: within `max_skew`.
    WithinSkew,
    /// After the deadline on all of the switch's clocks.
    AfterDeadline,
    /// The retention of references has expired.
    AfterRetention,
}

impl ClockPhase {
    /// The next phase; `None` after the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self {
            Self::BeforeDeadline => Some(Self::WithinSkew),
            Self::WithinSkew => Some(Self::AfterDeadline),
            Self::AfterDeadline => Some(Self::AfterRetention),
            Self::AfterRetention => None,
        }
    }
}

impl Switch {
    /// Whether the money left and was not returned.
    #[must_use]
    pub fn settled(&self) -> bool {
        self.transfers.contains(&TransferStatus::Settled)
    }

    /// Whether the money left and came back.
    #[must_use]
    pub fn returned(&self) -> bool {
        self.transfers.contains(&TransferStatus::Returned)
    }

    /// Whether an accepted transfer may still settle.
    #[must_use]
    pub fn pending(&self) -> bool {
        !self.stuck && self.has_undecided()
    }

    /// Whether the switch has an accepted transfer without a decision.
    fn has_undecided(&self) -> bool {
        self.transfers.contains(&TransferStatus::Pending)
    }

    /// How the switch may handle a submit that arrives now: each way that it is free to choose.
    #[must_use]
    pub fn submit_choices(&self, profile: &SwitchProfile, clock: ClockPhase) -> Vec<SubmitHandling> {
        if self.knows_submit(profile) {
            return vec![SubmitHandling::Accept];
        }
        // A rail that tracks its references refuses a used one, and accepts no rejected one.
        if profile.burns_reference && !self.transfers.is_empty() {
            if self.retention_expired {
                return Vec::new();
            }
            let is_burnt = self.transfers.contains(&TransferStatus::Rejected);
            let is_late = profile.honours_deadline && clock >= ClockPhase::AfterDeadline;
            return if is_burnt || is_late {
                vec![SubmitHandling::RefuseDuplicate]
            } else {
                vec![SubmitHandling::RefuseDuplicate, SubmitHandling::Accept]
            };
        }
        match clock {
            ClockPhase::AfterDeadline | ClockPhase::AfterRetention if profile.honours_deadline => {
                vec![SubmitHandling::Refuse]
            }
            // The warning under which such a profile is accepted: no request is delayed for that long.
            ClockPhase::AfterRetention => Vec::new(),
            _ => vec![SubmitHandling::Accept, SubmitHandling::Refuse, SubmitHandling::RefuseUnrecorded],
        }
    }

    /// Whether a submit that arrives now could still lead to a transfer.
    #[must_use]
    pub fn would_accept(&self, profile: &SwitchProfile, clock: ClockPhase) -> bool {
        !self.knows_submit(profile) && self.submit_choices(profile, clock).contains(&SubmitHandling::Accept)
    }

    /// How the switch handles a submit that arrives now, in words.
    #[must_use]
    pub fn submit_words(&self, profile: &SwitchProfile, handling: SubmitHandling) -> &'static str {
        match handling {
            _ if self.knows_submit(profile) && self.tombstone => "the switch refuses: it has a tombstone",
            _ if self.knows_submit(profile) => "the switch has it already",
            SubmitHandling::Accept => "the switch accepts",
            SubmitHandling::Refuse => "the switch refuses",
            SubmitHandling::RefuseUnrecorded => "the switch refuses and records nothing",
            SubmitHandling::RefuseDuplicate => "the switch refuses: it has the reference already",
        }
    }

    /// Whether the switch's record determines its answer to a submit.
    fn knows_submit(&self, profile: &SwitchProfile) -> bool {
        !self.retention_expired && (self.tombstone || (profile.deduplicates && !self.transfers.is_empty()))
    }

    /// A submit arrives.
    pub fn submit(&mut self, profile: &SwitchProfile, handling: SubmitHandling) -> SubmitResult {
        if self.knows_submit(profile) {
            let finished = |status: &TransferStatus| {
                matches!(status, TransferStatus::Rejected | TransferStatus::Cancelled)
            };
            let void = self.tombstone || self.transfers.iter().all(finished);
            return if void { SubmitResult::Refused } else { SubmitResult::Accepted };
        }
        match handling {
            SubmitHandling::Accept => {
                self.transfers.push(TransferStatus::Pending);
                SubmitResult::Accepted
            }
            SubmitHandling::Refuse => {
                self.transfers.push(TransferStatus::Rejected);
                SubmitResult::Refused
            }
            SubmitHandling::RefuseUnrecorded => SubmitResult::RefusedUnrecorded,
            SubmitHandling::RefuseDuplicate => SubmitResult::RefusedDuplicate,
        }
    }

    /// A cancel arrives.
    pub fn cancel(&mut self, profile: &SwitchProfile) -> CancelResult {
        match self.repeated_cancel_answer.filter(|_| !self.retention_expired) {
            Some(RepeatedCancelAnswer::NotFound) => return CancelResult::NotFound,
            Some(RepeatedCancelAnswer::Undecided) => return CancelResult::Undecided,
            None => {}
        }
        if self.retention_expired || self.forgot || self.transfers.is_empty() {
            if self.tombstone && !self.retention_expired {
                return CancelResult::Tombstoned;
            }
            if !profile.tombstones {
                return CancelResult::NotFound;
            }
            // After the retention the switch keeps no tombstone that a later submit would meet.
            self.tombstone = !self.retention_expired;
            return CancelResult::Tombstoned;
        }
        if self.settled() {
            return CancelResult::AlreadySettled;
        }
        if self.returned() {
            return CancelResult::AlreadyReturned;
        }
        let mut result = CancelResult::AlreadyRejected;
        for status in &mut self.transfers {
            match status {
                TransferStatus::Pending | TransferStatus::Cancelled => {
                    *status = TransferStatus::Cancelled;
                    result = CancelResult::Cancelled;
                }
                TransferStatus::Settled | TransferStatus::Rejected | TransferStatus::Returned => {}
            }
        }
        result
    }

    /// Counts a query against the switch's limits.
    pub fn count_query(&mut self, profile: &SwitchProfile, age_ms: u64) {
        if profile.asks_max > 0 {
            self.queries += 1;
        }
        self.has_refused_a_query |=
            u32::from(self.queries) > profile.asks_max || age_ms < profile.first_ask_after_ms;
    }

    /// A query arrives.
    #[must_use]
    pub fn query(&self) -> QueryResult {
        // A transfer without a decision is not dropped. A tombstone is the trace of a cancel, not of a transfer.
        let is_dropped = self.retention_expired && !self.stuck;
        if is_dropped || self.forgot || self.tombstone {
            return QueryResult::NotFound;
        }
        self.status(false)
    }

    /// The statement is read: every final status, also after the retention of references.
    #[must_use]
    pub fn statement(&self) -> QueryResult {
        self.status(true)
    }

    fn status(&self, only_final: bool) -> QueryResult {
        if self.settled() {
            QueryResult::Settled
        } else if self.returned() {
            QueryResult::Returned
        } else if self.has_undecided() {
            if only_final { QueryResult::NotFound } else { QueryResult::Pending }
        } else if self.transfers.is_empty() {
            QueryResult::NotFound
        } else {
            QueryResult::Void
        }
    }

    /// A recall arrives; `returns` is the switch's choice if it is free to choose.
    pub fn recall(&mut self, returns: bool) -> RecallResult {
        if self.retention_expired {
            return RecallResult::Unknown;
        }
        if self.recall_refused {
            return RecallResult::Refused;
        }
        if self.returned() {
            return RecallResult::Recalled;
        }
        match self.transfers.iter_mut().find(|status| **status == TransferStatus::Settled) {
            None => RecallResult::Unknown,
            Some(status) if returns => {
                *status = TransferStatus::Returned;
                self.recalled = true;
                RecallResult::Recalled
            }
            Some(_) => {
                self.recall_refused = true;
                RecallResult::Refused
            }
        }
    }

    /// Whether the switch is free to choose its answer to a recall now.
    #[must_use]
    pub fn may_return_money(&self) -> bool {
        !self.retention_expired && !self.recall_refused && self.settled()
    }
}
