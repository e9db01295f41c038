//! The amount of a payment request, as text, in currencies with 0 to 4 decimals.

use iso_currency::Currency;
use payment_protocol::money::{AMOUNT_MINOR_MAX, Money, format_major};

/// Currencies with 2, 0, 3 and 4 decimals.
const CURRENCIES: [Currency; 4] = [Currency::EUR, Currency::JPY, Currency::BHD, Currency::CLF];

/// What is parsed is the number that the text says: compared digit by digit, without arithmetic. What is printed is parsed back.
pub(crate) fn check(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let mut is_taken = false;
    for currency in CURRENCIES {
        let Ok(money) = Money::parse_major(text, currency) else { continue };
        is_taken = true;
        assert!((1..=AMOUNT_MINOR_MAX).contains(&money.amount_minor()), "{text:?}");
        assert_eq!(money.currency(), currency);
        let decimals = usize::from(currency.exponent().expect("a currency with minor units"));
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        let digits = format!("{whole}{fraction:0<decimals$}");
        assert_eq!(digits.trim_start_matches('0'), money.amount_minor().to_string(), "{text:?} {currency:?}");
        let printed = format_major(money.amount_minor(), currency);
        assert_eq!(Money::parse_major(&printed, currency), Ok(money), "{printed:?}");
    }
    is_taken
}
