//! What operators may decide: the words, what takes two operators, and what each difference allows.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use payment_protocol::action::{Action, Correction, OperatorAction};
use payment_protocol::drift::Drift;

/// The word, the action, whether it moves money.
const ACTIONS: &[(&str, OperatorAction, bool)] = &[
    ("retry_cancel", OperatorAction::OpenPayment(Action::RetryCancel), false),
    ("debit", OperatorAction::OpenPayment(Action::Debit), true),
    ("release", OperatorAction::OpenPayment(Action::Release), true),
    ("late_debit", OperatorAction::Correction(Correction::LateDebit), true),
    ("return_credit", OperatorAction::Correction(Correction::ReturnCredit), true),
    ("write_off", OperatorAction::Correction(Correction::WriteOff), true),
    ("close", OperatorAction::Close, false),
];

#[test]
fn each_action_has_a_word_and_one_that_moves_money_takes_two_operators() {
    assert_eq!(ACTIONS.len(), Action::ALL.len() + Correction::ALL.len() + 1);
    for (word, action, moves_money) in ACTIONS {
        assert_eq!((action.as_str(), action.to_string().as_str()), (*word, *word));
        assert_eq!(OperatorAction::parse(word), Some(*action));
        assert_eq!(action.moves_money(), *moves_money, "{word}");
        if let OperatorAction::OpenPayment(action) = action {
            assert_eq!(action.moves_money(), *moves_money, "{word}");
        }
    }
    assert_eq!(OperatorAction::parse("refund"), None);
}

/// A write-off depends on nothing that the switch did.
#[test]
fn a_correction_that_depends_on_the_switch_takes_evidence() {
    for (correction, needs_evidence) in
        [(Correction::LateDebit, true), (Correction::ReturnCredit, true), (Correction::WriteOff, false)]
    {
        assert_eq!(correction.needs_evidence(), needs_evidence, "{correction}");
    }
}

#[test]
fn each_drift_can_be_closed_and_money_moves_as_the_difference_says() {
    for drift in Drift::ALL {
        let words: Vec<_> = drift.allowed().iter().map(|action| action.as_str()).collect();
        let expected: &[&str] = match drift {
            Drift::SettledNotDebited | Drift::ReleasedButSettled => &["late_debit", "close"],
            Drift::DebitedNotSettled => &["return_credit", "close"],
            Drift::StuckCancelling | Drift::PaymentWithoutWorkflow => {
                &["retry_cancel", "debit", "release", "close"]
            }
            _ => &["close"],
        };
        assert_eq!(words, expected, "{drift}");
    }
}
