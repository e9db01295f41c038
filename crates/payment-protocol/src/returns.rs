//! Returns: money of a settled transfer that comes back by messages of their own, whole or in parts, each once. A return is paid to
//! the bearer of the charge; the payment keeps its final state.

use crate::ids::{ReturnId, SwitchName};
use crate::money::Money;
use crate::report::Difference;
use crate::state::text_enum;

/// A return, in the switch's words: authentic, and not yet compared with the payment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReturnReport {
    /// The switch that sent it, known by its secret or its address.
    pub switch: SwitchName,
    /// The switch's id of the return.
    pub return_id: ReturnId,
    /// The reference of the transfer whose money comes back.
    pub reference: String,
    /// The returned amount, in minor units.
    pub amount_minor: i64,
    /// The currency.
    pub currency: String,
    /// The switch's reason, with its code if there is one.
    pub reason: Option<String>,
}

text_enum!(
    /// The bearer of an amount that left.
    Charged {
        /// The customer was debited.
        Customer = "customer",
        /// The bank's claim on the customer is open.
        Claim = "claim",
        /// The bank gave its claim up.
        Loss = "loss",
    }
);

/// What the books say about the money of one payment that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    /// The bearer of the amount; `None` while nothing is charged.
    pub bearer: Option<Charged>,
    /// Whether a charge may still follow: the payment is open.
    pub is_open: bool,
    /// Whether the return of the whole transfer is the payment's final status.
    pub is_returned: bool,
    /// What came back before and was paid to the bearer, in minor units.
    pub returned_minor: i64,
}

/// Ruling on one return.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReturnRuling {
    /// Pay it to the bearer.
    Book(Charged),
    /// Nothing is charged yet: keep it until the debit.
    Keep,
    /// Nothing was charged, because the return of the whole transfer was known before: nothing is to be paid.
    NothingOwed,
    /// Another switch or currency than the payment's: record an exception, move nothing.
    Differs(Difference),
    /// The payment ended, and nothing was charged: record an exception, and keep it in case a late debit follows.
    Uncharged,
    /// More than was charged comes back: record an exception, move nothing.
    Exceeds,
}

/// Rules on a return that is not booked. `switch` and `money`: the payment's.
#[must_use]
pub fn book(charge: &Charge, switch: &SwitchName, money: Money, report: &ReturnReport) -> ReturnRuling {
    if report.switch != *switch {
        return ReturnRuling::Differs(Difference::Switch);
    }
    if report.currency != money.currency().code() {
        return ReturnRuling::Differs(Difference::Currency);
    }
    let left_minor = money.amount_minor().saturating_sub(charge.returned_minor);
    if report.amount_minor <= 0 || report.amount_minor > left_minor {
        return ReturnRuling::Exceeds;
    }
    match charge.bearer {
        Some(bearer) => ReturnRuling::Book(bearer),
        None if charge.is_open => ReturnRuling::Keep,
        None if charge.is_returned => ReturnRuling::NothingOwed,
        None => ReturnRuling::Uncharged,
    }
}

text_enum!(
    /// Where the money of a settled transfer is at the receiving bank. It moves no money: the settlement is final, and money that comes
    /// back comes as a return.
    Posting {
        /// The payee has the money.
        Posted = "posted",
        /// The receiving bank has the money and has not posted it yet (ACWP, deemed approved).
        Pending = "pending",
        /// The receiving bank keeps it back.
        Blocked = "blocked",
        /// The receiving bank will return it.
        ReturnComing = "return_coming",
    }
);

/// A report about the posting of a settled transfer, in the switch's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostingReport {
    /// The reported reference.
    pub reference: String,
    /// Where the money is.
    pub posting: Posting,
    /// The transfer's amount, in minor units.
    pub amount_minor: i64,
    /// The transfer's currency.
    pub currency: String,
    /// The switch's reason.
    pub reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use iso_currency::Currency;

    #[test]
    fn i30_a_return_is_paid_to_the_bearer_and_never_more_than_was_charged() {
        let switch = SwitchName::new("northern").unwrap();
        let money = Money::from_minor(1_000, Currency::EUR).unwrap();
        let report = |amount_minor| ReturnReport {
            switch: switch.clone(),
            return_id: ReturnId::new("r1").unwrap(),
            reference: "tx_1:submit".into(),
            amount_minor,
            currency: "EUR".into(),
            reason: None,
        };
        let charge =
            |bearer, is_open, returned_minor| Charge { bearer, is_open, is_returned: false, returned_minor };
        let ruled = |charge: Charge, amount_minor| book(&charge, &switch, money, &report(amount_minor));
        for bearer in Charged::ALL.iter().copied() {
            assert_eq!(ruled(charge(Some(bearer), false, 0), 1_000), ReturnRuling::Book(bearer));
            assert_eq!(ruled(charge(Some(bearer), false, 600), 400), ReturnRuling::Book(bearer));
            assert_eq!(ruled(charge(Some(bearer), false, 600), 401), ReturnRuling::Exceeds);
        }
        assert_eq!(ruled(charge(None, true, 0), 1_000), ReturnRuling::Keep);
        assert_eq!(ruled(charge(None, false, 0), 1_000), ReturnRuling::Uncharged);
        let returned = Charge { is_returned: true, ..charge(None, false, 0) };
        assert_eq!(ruled(returned, 1_000), ReturnRuling::NothingOwed);
        for wrong in [0, -1, 1_001] {
            assert_eq!(ruled(charge(Some(Charged::Customer), false, 0), wrong), ReturnRuling::Exceeds);
        }
        let charge = charge(Some(Charged::Customer), false, 0);
        let other = ReturnReport { switch: SwitchName::new("southern").unwrap(), ..report(1) };
        assert_eq!(book(&charge, &switch, money, &other), ReturnRuling::Differs(Difference::Switch));
        let dollars = ReturnReport { currency: "USD".into(), ..report(1) };
        assert_eq!(book(&charge, &switch, money, &dollars), ReturnRuling::Differs(Difference::Currency));
    }
}
