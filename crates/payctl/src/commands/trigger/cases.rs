//! The failure cases: what each one does, and how it must end.

use payment_protocol::exception::ExceptionKind;
use payment_protocol::{PaymentState, SwitchProfile};

/// What happens to a payment beside what the switch does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// SIGKILL for the payment-worker that carries the payment, once the payment is in this state or past it.
    KillWorker(PaymentState),
    /// The customer sends the request again under the same idempotency key.
    RepeatRequest,
    /// The customer cancels the payment once it is submitted.
    Cancel,
    /// The account is frozen once the amount is reserved, and unfrozen when the payment needs an operator or has ended.
    FreezeAccount,
    /// When the payment needs an operator, two operators decide to debit it.
    DecideDebit,
}

impl Action {
    /// Whether the demo's operators do it.
    pub(super) fn is_of_operators(self) -> bool {
        matches!(self, Self::FreezeAccount | Self::DecideDebit)
    }
}

/// What a case needs of the switch that gets its payment. Most rails lack some of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// The switch voids a pending transfer on request.
    Cancel,
    /// A submit without a definite answer is sent again.
    SecondAttempt,
    /// The switch answers a recall at once.
    PromptRecall,
    /// A transfer may settle 10 s after its submit.
    TenSeconds,
    /// The switch sends callbacks.
    Callback,
}

impl Need {
    /// Whether a switch with this profile has it.
    pub(super) fn is_met(self, profile: &SwitchProfile) -> bool {
        match self {
            Self::Cancel => profile.can_cancel,
            Self::SecondAttempt => !profile.forbids_second_attempt(),
            Self::PromptRecall => profile.can_recall && profile.recall_answer_within_s == 0,
            Self::TenSeconds => !profile.honours_deadline || profile.submit_deadline_ms > 10_000,
            Self::Callback => profile.has_callback,
        }
    }

    /// The need, in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Cancel => "a cancel at the switch",
            Self::SecondAttempt => "a second submit attempt",
            Self::PromptRecall => "a recall that the switch answers at once",
            Self::TenSeconds => "a transfer that may settle 10 s after its submit",
            Self::Callback => "callbacks",
        }
    }
}

/// One failure case.
#[derive(Debug)]
pub(super) struct Case {
    /// Its name on the command line.
    pub(super) name: &'static str,
    /// Where it comes from: a row of the failure table, a path, or a sandbox amount.
    pub(super) source: &'static str,
    /// What happens, in one sentence.
    pub(super) text: &'static str,
    /// Amount of the payment, in minor units; some amounts make the mock switch misbehave.
    pub(super) amount_minor: i64,
    pub(super) actions: &'static [Action],
    pub(super) needs: &'static [Need],
    /// The final state.
    pub(super) ends: PaymentState,
    /// The kinds of exceptions that the case opens.
    pub(super) exceptions: &'static [ExceptionKind],
    /// Whether the payment stays open until the switch's SLA has expired.
    pub(super) takes_sla: bool,
}

/// The case with this name.
pub(super) fn find(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

const TABLE: &str = "failure table";
const PATHS: &str = "paths";
const SANDBOX: &str = "sandbox amounts";

/// Fields that most cases share.
const SETTLES: Case = Case {
    name: "",
    source: SANDBOX,
    text: "",
    amount_minor: 0,
    actions: &[],
    needs: &[],
    ends: PaymentState::Settled,
    exceptions: &[],
    takes_sla: false,
};

/// All cases.
pub(super) const CASES: &[Case] = &[
    Case {
        name: "crash-after-accepted",
        source: TABLE,
        text: "The worker is killed after the switch accepted the transfer; the switch settles it after 10 s.",
        amount_minor: 9_019,
        needs: &[Need::TenSeconds],
        actions: &[Action::KillWorker(PaymentState::Submitted)],
        ..SETTLES
    },
    Case {
        name: "sla-expires",
        source: TABLE,
        text: "The switch never finishes the transfer: when the SLA expires the service cancels it at the switch, then releases the hold.",
        amount_minor: 9_004,
        needs: &[Need::Cancel],
        ends: PaymentState::TimedOut,
        takes_sla: true,
        ..SETTLES
    },
    Case {
        name: "crash-after-reserve",
        source: TABLE,
        text: "The worker is killed while the switch answers the first submits with 503: the amount is reserved, the transfer is not accepted.",
        amount_minor: 9_011,
        needs: &[Need::SecondAttempt],
        actions: &[Action::KillWorker(PaymentState::Reserved)],
        ..SETTLES
    },
    Case {
        name: "customer-submits-twice",
        source: TABLE,
        text: "The customer sends the request a second time under the same idempotency key.",
        amount_minor: 1_250,
        actions: &[Action::RepeatRequest],
        ..SETTLES
    },
    Case {
        name: "another-worker",
        source: TABLE,
        text: "The worker is killed while the payment waits for a callback that comes 10 s late: another worker carries it on.",
        amount_minor: 9_013,
        needs: &[Need::Callback],
        actions: &[Action::KillWorker(PaymentState::Submitted)],
        ..SETTLES
    },
    Case {
        name: "debit-fails",
        source: TABLE,
        text: "The account is frozen before the confirmation, so the debit is refused: the service recalls the money and releases the hold.",
        amount_minor: 9_019,
        needs: &[Need::PromptRecall, Need::TenSeconds],
        actions: &[Action::FreezeAccount],
        ends: PaymentState::Failed,
        ..SETTLES
    },
    Case {
        name: "path-a",
        source: PATHS,
        text: "The switch refuses the submit: the service cancels the transfer at the switch, then releases the hold.",
        amount_minor: 9_006,
        needs: &[Need::Cancel],
        ends: PaymentState::Failed,
        ..SETTLES
    },
    Case {
        name: "path-b",
        source: PATHS,
        text: "The transfer settles and its callback is lost: after the SLA the switch answers the cancel with ALREADY_SETTLED, and the service debits.",
        amount_minor: 9_003,
        needs: &[Need::Cancel, Need::Callback],
        takes_sla: true,
        ..SETTLES
    },
    Case {
        name: "path-c",
        source: PATHS,
        text: "The debit is refused because the account is frozen, and the switch refuses the recall: two operators decide to debit once the freeze is lifted.",
        amount_minor: 9_016,
        needs: &[Need::PromptRecall],
        actions: &[Action::FreezeAccount, Action::DecideDebit],
        ..SETTLES
    },
    Case {
        name: "rejected-later",
        text: "The switch accepts the transfer, then rejects it with a FAILURE callback.",
        amount_minor: 9_001,
        needs: &[Need::Callback],
        ends: PaymentState::Failed,
        ..SETTLES
    },
    Case {
        name: "answer-lost",
        text: "The switch accepts the transfer and its answer is lost: the next attempt finds the transfer.",
        amount_minor: 9_002,
        needs: &[Need::SecondAttempt],
        ..SETTLES
    },
    Case {
        name: "callback-lost",
        text: "The transfer settles and its callback is lost.",
        amount_minor: 9_003,
        needs: &[Need::Callback],
        takes_sla: true,
        ..SETTLES
    },
    Case {
        name: "never-settles",
        text: "The switch never finishes the transfer and can cancel it.",
        amount_minor: 9_004,
        needs: &[Need::Cancel],
        ends: PaymentState::TimedOut,
        takes_sla: true,
        ..SETTLES
    },
    Case {
        name: "callback-three-times",
        text: "The transfer settles and its callback comes three times.",
        amount_minor: 9_005,
        needs: &[Need::Callback],
        ..SETTLES
    },
    Case {
        name: "submit-refused",
        text: "The switch refuses the submit.",
        amount_minor: 9_006,
        ends: PaymentState::Failed,
        ..SETTLES
    },
    Case {
        name: "submit-lost",
        text: "The first submit is lost on its way to the switch.",
        amount_minor: 9_007,
        needs: &[Need::SecondAttempt],
        ..SETTLES
    },
    Case {
        name: "failure-before-success",
        text: "A false FAILURE callback comes before the SUCCESS: the FAILURE alone is not believed.",
        amount_minor: 9_008,
        needs: &[Need::Callback],
        exceptions: &[ExceptionKind::ContradictoryFinalStatus],
        ..SETTLES
    },
    Case {
        name: "cancel-in-process",
        text: "The switch never finishes the transfer and answers the first two cancels with IN_PROCESS.",
        amount_minor: 9_009,
        needs: &[Need::Cancel],
        ends: PaymentState::TimedOut,
        takes_sla: true,
        ..SETTLES
    },
    Case {
        name: "cancels-refused",
        text: "The customer cancels; the switch refuses each cancel, and settles the transfer after 10 s: the service repeats the cancel until then, and debits.",
        amount_minor: 9_010,
        actions: &[Action::Cancel],
        needs: &[Need::Cancel, Need::TenSeconds],
        ..SETTLES
    },
    Case {
        name: "unavailable-twice",
        text: "The switch answers the first two submits with 503.",
        amount_minor: 9_011,
        needs: &[Need::SecondAttempt],
        ..SETTLES
    },
    Case {
        name: "busy-once",
        text: "The switch answers the first submit with 429.",
        amount_minor: 9_012,
        needs: &[Need::SecondAttempt],
        ..SETTLES
    },
    Case {
        name: "callback-late",
        text: "The transfer settles and its callback comes 10 s late.",
        amount_minor: 9_013,
        needs: &[Need::Callback],
        ..SETTLES
    },
    Case {
        name: "callback-of-another-amount",
        text: "The transfer settles and its callback names another amount; queried, the switch says the right one, and the payment is debited.",
        amount_minor: 9_014,
        needs: &[Need::Callback],
        exceptions: &[ExceptionKind::ConfirmationMismatch],
        ..SETTLES
    },
    Case {
        name: "failure-after-success",
        text: "A false FAILURE callback comes after the SUCCESS.",
        amount_minor: 9_015,
        needs: &[Need::Callback],
        exceptions: &[ExceptionKind::ContradictoryFinalStatus],
        ..SETTLES
    },
    Case {
        name: "recall-refused",
        text: "The transfer settles; the switch would refuse a recall, which this payment does not need.",
        amount_minor: 9_016,
        ..SETTLES
    },
    Case {
        name: "submits-lost",
        text: "No submit ever arrives: after the submit budget the cancel leaves a tombstone at the switch, and the hold is released.",
        amount_minor: 9_017,
        needs: &[Need::Cancel],
        ends: PaymentState::Failed,
        ..SETTLES
    },
    Case {
        name: "cancel-answer-lost",
        text: "The switch never finishes the transfer, and its answer to the first cancel is lost.",
        amount_minor: 9_018,
        needs: &[Need::Cancel],
        ends: PaymentState::TimedOut,
        takes_sla: true,
        ..SETTLES
    },
    Case {
        name: "settles-late",
        text: "The transfer settles after 10 s.",
        amount_minor: 9_019,
        needs: &[Need::TenSeconds],
        ..SETTLES
    },
];

#[cfg(test)]
mod tests {
    use payment_protocol::ids::SwitchName;
    use payment_protocol::profile::Rail;

    use super::*;

    #[test]
    fn payctl_trigger_has_a_case_for_every_sandbox_amount_of_the_mock_switch() {
        let triggered: Vec<i64> =
            CASES.iter().filter(|case| case.source == SANDBOX).map(|case| case.amount_minor).collect();
        let sandbox: Vec<i64> = mock_switch::sandbox::TABLE.iter().map(|amount| amount.code).collect();
        assert_eq!(triggered, sandbox);
    }

    #[test]
    fn each_rail_shows_the_cases_whose_needs_its_profile_meets() {
        let switch = SwitchName::new("probed").unwrap();
        let refused = |rail: &Rail| -> String {
            let profile = rail.profile(&switch).unwrap();
            let lacks = |case: &&Case| !case.needs.iter().all(|need| need.is_met(&profile));
            CASES.iter().filter(lacks).map(|case| case.name).collect::<Vec<_>>().join(" ")
        };
        let no_cancel = "sla-expires debit-fails path-a path-b path-c never-settles cancel-in-process cancels-refused submits-lost \
                         cancel-answer-lost";
        let one_attempt = "sla-expires crash-after-reserve debit-fails path-a path-b path-c answer-lost never-settles submit-lost \
                           cancel-in-process cancels-refused unavailable-twice busy-once submits-lost cancel-answer-lost";
        assert_eq!([Rail::Rtp, Rail::Pix].map(|rail| refused(&rail)), [no_cancel; 2]);
        assert_eq!([Rail::FedNow, Rail::Upi].map(|rail| refused(&rail)), [one_attempt; 2]);
        assert_eq!(refused(&Rail::SctInst), format!("crash-after-accepted {one_attempt} settles-late"));
    }

    #[test]
    fn every_case_of_payctl_trigger_has_its_own_name_and_ends() {
        let mut names: Vec<_> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
        assert!(CASES.iter().all(|case| case.ends.end().is_some() && case.text.ends_with('.')));
    }
}
