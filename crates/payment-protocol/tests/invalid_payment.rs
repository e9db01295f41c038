//! S0.2: an invalid payment is rejected before any step. Amounts and ids that the types cannot hold are no payment at all;
//! what only the whole payment can show is rejected, and nothing else is called.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

#[allow(dead_code, reason = "the tests of pay use the rest")]
#[path = "pay/script.rs"]
mod script;
mod support;

use futures::FutureExt as _;
use payment_protocol::ids::{PaymentId, TxId};
use payment_protocol::money::{AMOUNT_MINOR_MAX, Money};
use payment_protocol::pay::pay;
use payment_protocol::profile::Strategy;
use payment_protocol::state::FinalState;
use payment_protocol::{Payment, SwitchProfile};
use serde_json::{Value, json};

use crate::script::{Script, word};
use crate::support::{full_profile, payment};

/// Invalid payments of one strategy, each with the reason of its rejection.
fn invalid_payments(strategy: Strategy) -> Vec<(Payment, &'static str)> {
    const FOREIGN: &str = "reject: the payment's transaction id is not derived from its payment id";
    const OVER_LIMIT: &str = "reject: the payment's amount exceeds the switch's limit of 999 minor units";
    let valid = || Payment { profile: SwitchProfile { strategy, ..full_profile() }, ..payment(0) };
    let over = |amount_minor: i64| {
        let mut over = valid();
        over.profile.amount_limit_minor = 999;
        over.money = Money::from_minor(amount_minor, over.money.currency()).unwrap();
        over
    };
    let other = PaymentId::new("pay_2").unwrap();
    let both = Payment { tx_id: TxId::derive(&other), ..over(1_000) };
    vec![
        (over(1_000), OVER_LIMIT),
        (over(AMOUNT_MINOR_MAX), OVER_LIMIT),
        (Payment { tx_id: TxId::derive(&other), ..valid() }, FOREIGN),
        (Payment { payment_id: other, ..valid() }, FOREIGN),
        (Payment { tx_id: TxId::new("tx_foreign").unwrap(), ..valid() }, FOREIGN),
        (both, FOREIGN),
    ]
}

#[test]
fn s0_2_an_invalid_payment_is_rejected_and_calls_nothing_else() {
    for strategy in Strategy::ALL.iter().copied() {
        for (invalid, call) in invalid_payments(strategy) {
            let port = Script::default();
            let error = pay(&port, &invalid).now_or_never().unwrap().unwrap_err();
            assert_eq!(
                (word(&error).as_str(), error.end()),
                ("invalid", Some(FinalState::Rejected)),
                "{invalid:?}"
            );
            assert_eq!(port.calls.take(), [call], "{invalid:?}");
        }
    }
}

/// The limit itself is valid, so the payment goes on to reserve.
#[test]
fn s0_2_a_payment_of_the_largest_valid_amount_is_not_rejected() {
    let mut largest = payment(0);
    largest.profile.amount_limit_minor = largest.money.amount_minor();
    assert_eq!(largest.validate(), Ok(()));
    largest.profile.amount_limit_minor = AMOUNT_MINOR_MAX;
    largest.money = Money::from_minor(AMOUNT_MINOR_MAX, largest.money.currency()).unwrap();
    assert_eq!(largest.validate(), Ok(()));
}

/// The workflow's input is read into the types before `pay` is called, so no port exists yet.
#[test]
fn s0_2_a_payment_with_an_invalid_amount_or_id_cannot_be_read() {
    let valid = serde_json::to_value(payment(0)).unwrap();
    assert_eq!(serde_json::from_value::<Payment>(valid.clone()).unwrap(), payment(0));
    let overflow: Value = serde_json::from_str("9223372036854775808").unwrap();
    let amounts = [
        json!(0),
        json!(-1),
        json!(i64::MIN),
        json!(AMOUNT_MINOR_MAX + 1),
        json!(i64::MAX),
        overflow,
        json!(10.5),
        json!(1_000.0),
        json!("1000"),
        json!(true),
        json!(null),
    ];
    let text = [json!(""), json!(" "), json!("a b"), json!("a\u{0}b"), json!(1), json!(null)];
    for (pointer, values) in [
        ("/money/amount_minor", &amounts[..]),
        (
            "/money/currency",
            &[json!("XXQ"), json!("eur"), json!(""), json!("XAU"), json!(978), json!(null)][..],
        ),
        ("/payment_id", &text[..]),
        ("/tx_id", &text[..]),
        ("/source_account", &text[..]),
        ("/profile/switch", &text[..]),
        ("/profile/strategy", &text[..]),
    ] {
        for value in values {
            let mut invalid = valid.clone();
            *invalid.pointer_mut(pointer).unwrap() = value.clone();
            assert!(serde_json::from_value::<Payment>(invalid).is_err(), "{pointer} {value}");
        }
        let mut missing = valid.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        missing.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
        assert!(serde_json::from_value::<Payment>(missing).is_err(), "{pointer} missing");
    }
}
