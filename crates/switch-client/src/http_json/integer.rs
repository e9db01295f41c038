//! Integers in JSON: `1250`, `1250.0` and `1.25e3` are the same number, and a schema of type `integer` allows all three. They
//! are parsed from the text, because a float cannot represent every amount.

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer};
use serde_json::value::RawValue;

/// Deserializes an integer in any JSON notation.
///
/// # Errors
/// If the value is not a number, not an integer, or does not fit 64 bits.
pub(crate) fn deserialize_integer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    parse(raw.get()).ok_or_else(|| D::Error::custom("expected an integer of at most 64 bits"))
}

fn parse(text: &str) -> Option<i64> {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (before, after) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{before}{after}");
    let mut shift = exponent.checked_sub(i32::try_from(after.len()).ok()?)?;
    let mut significant = digits.as_str();
    while shift < 0
        && let Some(shorter) = significant.strip_suffix('0')
    {
        (significant, shift) = (shorter, shift + 1);
    }
    if matches!(significant, "" | "-") {
        return Some(0);
    }
    let value: i64 = significant.parse().ok()?;
    match u32::try_from(shift) {
        _ if value == 0 => Some(0),
        Ok(shift) => value.checked_mul(10_i64.checked_pow(shift)?),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r24_an_integer_is_read_from_its_field_or_refused() {
        #[derive(serde::Deserialize)]
        struct Body {
            #[serde(deserialize_with = "deserialize_integer")]
            amount: i64,
        }
        let read = |text: &str| serde_json::from_str::<Body>(&format!("{{\"amount\": {text}}}"));
        assert_eq!(read("1.25e3").unwrap().amount, 1_250);
        assert_eq!(read("-7").unwrap().amount, -7);
        let error = read("1.5").err().unwrap().to_string();
        assert!(error.contains("expected an integer of at most 64 bits"), "{error}");
    }

    #[test]
    fn r24_integers_are_parsed_in_every_json_notation() {
        for (text, value) in [
            ("1250", Some(1_250)),
            ("1250.0", Some(1_250)),
            ("-1250.000", Some(-1_250)),
            ("1.25e3", Some(1_250)),
            ("12500E-1", Some(1_250)),
            ("0", Some(0)),
            ("-0.0", Some(0)),
            ("0e99", Some(0)),
            ("0.00e-7", Some(0)),
            ("9223372036854775807.0", Some(i64::MAX)),
            ("-9223372036854775808", Some(i64::MIN)),
            ("9223372036854775808", None),
            ("1e19", None),
            ("1e99999999999", None),
            ("1.5", None),
            ("125e-1", None),
            ("\"1250\"", None),
            ("null", None),
            ("[1]", None),
        ] {
            assert_eq!(parse(text), value, "{text}");
        }
    }
}
