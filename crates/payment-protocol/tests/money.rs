//! Amounts in currencies with no, two and three decimals, up to the maximum.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use payment_protocol::money::{AMOUNT_MINOR_MAX, Money, format_major, parse_currency};

#[test]
fn r10_a_formatted_amount_parses_to_the_same_minor_units() {
    for (code, decimals) in [("JPY", 0), ("EUR", 2), ("BHD", 3)] {
        let currency = parse_currency(code).unwrap();
        let powers = (0..15).map(|power| 10_i64.pow(power));
        for minor in powers.flat_map(|power| [power - 1, power, power + 1]).filter(|minor| *minor > 0) {
            let text = format_major(minor, currency);
            assert_eq!(
                text.split_once('.').map_or(0, |(_, fraction)| fraction.len()),
                decimals,
                "{text} {code}"
            );
            match Money::parse_major(&text, currency) {
                Ok(money) => {
                    assert_eq!((money.amount_minor(), money.currency()), (minor, currency), "{text}")
                }
                Err(error) => assert!(minor > AMOUNT_MINOR_MAX, "{text} {code}: {error}"),
            }
            assert!(
                Money::parse_major(&format!("{text}{}", if decimals == 0 { ".0" } else { "0" }), currency)
                    .is_err()
            );
        }
        for over in [AMOUNT_MINOR_MAX + 1, i64::MAX] {
            assert!(Money::from_minor(over, currency).is_err(), "{over}");
            assert!(Money::parse_major(&format_major(over, currency), currency).is_err(), "{over} {code}");
        }
        for far_over in
            ["9223372036854775808", "99999999999999999999999999", &format!("1{}", "0".repeat(400))]
        {
            assert!(Money::parse_major(far_over, currency).is_err(), "{far_over}");
        }
    }
}

#[test]
fn an_amount_is_written_with_its_currency() {
    for (minor, code, text) in [(1_250, "EUR", "12.50 EUR"), (5, "JPY", "5 JPY"), (1_250, "BHD", "1.250 BHD")]
    {
        assert_eq!(Money::from_minor(minor, parse_currency(code).unwrap()).unwrap().to_string(), text);
    }
}
