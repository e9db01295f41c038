//! Amounts in texts for operators.

use payment_protocol::money::{format_major, parse_currency};

/// An amount in major units, `90.04 EUR`; in minor units if the currency is unknown.
pub(crate) fn amount(minor: i64, currency: &str) -> String {
    match parse_currency(currency) {
        Ok(known) => format!("{} {currency}", format_major(minor, known)),
        Err(_) => format!("{minor} minor units of {currency:?}"),
    }
}
