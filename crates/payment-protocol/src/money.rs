//! Money: integer minor units and an ISO 4217 currency.
//!
//! No amount is ever a float. A decimal amount is parsed from its raw text, with the number of decimals of the
//! currency (ISO 4217 exponent: JPY 0, EUR 2, BHD 3).

use std::fmt;

use iso_currency::Currency;
use serde::{Deserialize, Serialize};

/// Largest amount of one payment, in minor units (10^14: a billion in a currency of five decimals).
/// Far below `i64::MAX`: sums over tens of thousands of maximal payments do not overflow.
pub const AMOUNT_MINOR_MAX: i64 = 100_000_000_000_000;

/// A positive amount of one currency, at most [`AMOUNT_MINOR_MAX`] minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawMoney", into = "RawMoney")]
pub struct Money {
    amount_minor: i64,
    currency: Currency,
}

/// Why a text or a number is not a valid amount of money.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// Not a plain decimal. Valid: digits, at most one point, no sign, no exponent, no grouping.
    #[error(
        "the amount {0:?} is not a plain decimal number; write an amount like 12.50, without signs, spaces or exponents"
    )]
    NotADecimal(String),
    /// Zero or negative.
    #[error("the amount must be greater than zero")]
    NotPositive,
    /// More decimals than the currency has.
    #[error(
        "{currency} has {allowed} decimals, but the amount has {given}; write the amount with at most {allowed}"
    )]
    TooManyDecimals {
        /// The currency's ISO 4217 code.
        currency: String,
        /// Decimals of the currency in ISO 4217.
        allowed: u32,
        /// Decimals of the amount.
        given: usize,
    },
    /// Over [`AMOUNT_MINOR_MAX`].
    #[error("the amount exceeds the maximum of {AMOUNT_MINOR_MAX} minor units; send a smaller amount")]
    OverMaximum,
    /// Not an ISO 4217 code, or a code without minor units (precious metals, test codes).
    #[error("the currency {0:?} is not an ISO 4217 currency with minor units; use a code like EUR")]
    UnknownCurrency(String),
}

impl Money {
    /// Money from minor units.
    ///
    /// # Errors
    /// [`MoneyError::NotPositive`], [`MoneyError::OverMaximum`], or
    /// [`MoneyError::UnknownCurrency`] for a currency without minor units.
    pub fn from_minor(amount_minor: i64, currency: Currency) -> Result<Self, MoneyError> {
        exponent(currency)?;
        if amount_minor <= 0 {
            return Err(MoneyError::NotPositive);
        }
        if amount_minor > AMOUNT_MINOR_MAX {
            return Err(MoneyError::OverMaximum);
        }
        Ok(Self { amount_minor, currency })
    }

    /// Parses a decimal in major units (`"12.5"` EUR is 1250 minor units) from its raw text.
    ///
    /// # Errors
    /// Every variant of [`MoneyError`].
    pub fn parse_major(raw: &str, currency: Currency) -> Result<Self, MoneyError> {
        let allowed = exponent(currency)?;
        let not_a_decimal = || MoneyError::NotADecimal(raw.chars().take(40).collect());
        let unsigned = raw.strip_prefix('-').unwrap_or(raw);
        let (whole, fraction) = match unsigned.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
            Some(_) => return Err(not_a_decimal()),
            None => (unsigned, ""),
        };
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
            return Err(not_a_decimal());
        }
        if raw.starts_with('-') {
            return Err(MoneyError::NotPositive);
        }
        if fraction.len() > allowed as usize {
            return Err(MoneyError::TooManyDecimals {
                currency: currency.code().to_owned(),
                allowed,
                given: fraction.len(),
            });
        }
        let padding = allowed as usize - fraction.len();
        let digits = whole.bytes().chain(fraction.bytes()).chain(std::iter::repeat_n(b'0', padding));
        let mut amount_minor: i64 = 0;
        for digit in digits {
            amount_minor = amount_minor
                .checked_mul(10)
                .and_then(|shifted| shifted.checked_add(i64::from(digit - b'0')))
                .filter(|sum| *sum <= AMOUNT_MINOR_MAX)
                .ok_or(MoneyError::OverMaximum)?;
        }
        Self::from_minor(amount_minor, currency)
    }

    /// The amount in minor units, 1 to [`AMOUNT_MINOR_MAX`].
    #[must_use]
    pub fn amount_minor(&self) -> i64 {
        self.amount_minor
    }

    /// The currency.
    #[must_use]
    pub fn currency(&self) -> Currency {
        self.currency
    }
}

/// Parses an ISO 4217 code that has minor units.
///
/// # Errors
/// [`MoneyError::UnknownCurrency`].
pub fn parse_currency(code: &str) -> Result<Currency, MoneyError> {
    let currency = Currency::from_code(code)
        .ok_or_else(|| MoneyError::UnknownCurrency(code.chars().take(8).collect()))?;
    exponent(currency).map(|_| currency)
}

/// Formats minor units as a decimal in major units, with all decimals of the currency (`"12.50"`). Also formats
/// balances, which may be zero or negative.
#[must_use]
pub fn format_major(amount_minor: i64, currency: Currency) -> String {
    let decimals = usize::from(currency.exponent().unwrap_or(0));
    let sign = if amount_minor < 0 { "-" } else { "" };
    let digits = format!("{:0width$}", amount_minor.unsigned_abs(), width = decimals + 1);
    let (whole, fraction) = digits.split_at(digits.len() - decimals);
    if decimals == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

fn exponent(currency: Currency) -> Result<u32, MoneyError> {
    currency.exponent().map(u32::from).ok_or_else(|| MoneyError::UnknownCurrency(currency.code().to_owned()))
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", format_major(self.amount_minor, self.currency), self.currency.code())
    }
}

#[derive(Serialize, Deserialize)]
struct RawMoney {
    amount_minor: i64,
    currency: String,
}

impl TryFrom<RawMoney> for Money {
    type Error = MoneyError;

    fn try_from(raw: RawMoney) -> Result<Self, MoneyError> {
        Self::from_minor(raw.amount_minor, parse_currency(&raw.currency)?)
    }
}

impl From<Money> for RawMoney {
    fn from(money: Money) -> Self {
        Self { amount_minor: money.amount_minor, currency: money.currency.code().to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_parsed_with_the_exponent_of_its_currency() {
        for (raw, currency, minor) in [
            ("12.50", "EUR", 1_250),
            ("12.5", "EUR", 1_250),
            ("12", "EUR", 1_200),
            ("0.01", "EUR", 1),
            ("500", "JPY", 500),
            ("1.234", "BHD", 1_234),
            ("1000000000000.00", "EUR", AMOUNT_MINOR_MAX),
        ] {
            let money = Money::parse_major(raw, parse_currency(currency).unwrap()).unwrap();
            assert_eq!(money.amount_minor(), minor, "{raw} {currency}");
        }
    }

    #[test]
    fn an_invalid_amount_is_refused_with_its_reason() {
        let eur = parse_currency("EUR").unwrap();
        for raw in ["", ".", "1.", ".5", "1e3", "+1", "1,00", " 1", "1 ", "0x1", "--1", "١", "NaN", "1.2.3"]
        {
            assert_eq!(Money::parse_major(raw, eur), Err(MoneyError::NotADecimal(raw.into())), "{raw:?}");
        }
        for raw in ["0", "0.00", "-1", "-0.01"] {
            assert_eq!(Money::parse_major(raw, eur), Err(MoneyError::NotPositive), "{raw:?}");
        }
        assert!(matches!(
            Money::parse_major("1.001", eur),
            Err(MoneyError::TooManyDecimals { given: 3, .. })
        ));
        assert_eq!(Money::parse_major("1000000000000.01", eur), Err(MoneyError::OverMaximum));
        assert_eq!(Money::parse_major(&"9".repeat(400), eur), Err(MoneyError::OverMaximum));
        for code in ["", "eur", "EURO", "XAU", "ZZZ"] {
            assert!(matches!(parse_currency(code), Err(MoneyError::UnknownCurrency(_))), "{code:?}");
        }
    }

    #[test]
    fn an_amount_is_formatted_with_all_decimals_of_its_currency() {
        for (minor, currency, text) in [
            (1_250, "EUR", "12.50"),
            (1, "EUR", "0.01"),
            (0, "EUR", "0.00"),
            (-5, "EUR", "-0.05"),
            (500, "JPY", "500"),
            (5, "BHD", "0.005"),
        ] {
            assert_eq!(format_major(minor, parse_currency(currency).unwrap()), text);
        }
    }

    #[test]
    fn deserialised_money_is_validated() {
        let money = Money::from_minor(1_250, Currency::EUR).unwrap();
        let json = r#"{"amount_minor":1250,"currency":"EUR"}"#;
        assert_eq!(serde_json::to_string(&money).unwrap(), json);
        assert_eq!(serde_json::from_str::<Money>(json).unwrap(), money);
        assert!(serde_json::from_str::<Money>(r#"{"amount_minor":-1,"currency":"EUR"}"#).is_err());
    }
}
