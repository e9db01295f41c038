//! The order of a payment, validated without stored data: a refusal here never changes, so it uses up no idempotency key and
//! stores nothing.

use std::borrow::Cow;

use payment_protocol::ids::AccountId;
use payment_protocol::money::{Money, MoneyError, parse_currency};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use service_kit::problem::Problem;
use utoipa::openapi::{ObjectBuilder, OneOfBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// Longest end-to-end id (ISO 20022 Max35Text).
const END_TO_END_ID_MAX: usize = 35;

/// Body of `POST /api/v1/payments`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"amount": "12.50", "currency": "EUR", "source_account": "acc-1",
    "destination_account": "DE02120300000000202051", "end_to_end_id": "invoice-4711"}))]
pub(crate) struct PaymentRequest {
    amount: AmountText,
    /// ISO 4217 code.
    #[schema(example = "EUR", pattern = "^[A-Z]{3}$")]
    currency: String,
    /// Account to be charged, in this bank.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._:-]+$")]
    source_account: String,
    /// Account to be credited, at the destination bank; its prefix selects the switch.
    #[schema(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9._:-]+$")]
    destination_account: String,
    /// End-to-end id of the payer, passed on to the payee.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 35, pattern = "^[!-~]([ -~]*[!-~])?$")]
    end_to_end_id: Option<String>,
}

/// The text of the amount. A JSON number is read from its text, because a float is not exact.
#[derive(Debug)]
pub(crate) struct AmountText(String);

impl<'de> Deserialize<'de> for AmountText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        match raw.get().as_bytes() {
            [b'"', ..] => serde_json::from_str(raw.get()).map(Self).map_err(D::Error::custom),
            [b'-' | b'0'..=b'9', ..] => Ok(Self(raw.get().to_owned())),
            _ => Err(D::Error::custom("amount must be a decimal, as a string or a number")),
        }
    }
}

impl PartialSchema for AmountText {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String).pattern(Some("^[0-9]+(\\.[0-9]+)?$"));
        let number = ObjectBuilder::new().schema_type(Type::Number).exclusive_minimum(Some(0));
        let description = "Decimal in major units, greater than zero, with no more decimals than the currency has; \
                           as a string, or as a number without exponent.";
        OneOfBuilder::new().item(text).item(number).description(Some(description)).into()
    }
}

impl ToSchema for AmountText {
    fn name() -> Cow<'static, str> {
        "Amount".into()
    }
}

/// A validated order.
#[derive(Debug)]
pub(crate) struct Order {
    pub(super) money: Money,
    pub(super) source_account: AccountId,
    pub(super) destination_account: AccountId,
    pub(super) end_to_end_id: Option<String>,
}

impl Order {
    /// Validates a request.
    ///
    /// # Errors
    /// 422 `invalid_currency`, `invalid_amount`, `invalid_account`, `same_account` or `invalid_end_to_end_id`, the first that
    /// applies.
    pub(super) fn parse(request: PaymentRequest) -> Result<Self, Problem> {
        let money = parse_currency(&request.currency)
            .and_then(|currency| Money::parse_major(&request.amount.0, currency))
            .map_err(|error| match &error {
                MoneyError::UnknownCurrency(_) => {
                    Problem::unprocessable("invalid_currency", error.to_string())
                }
                _ => Problem::unprocessable("invalid_amount", error.to_string()),
            })?;
        let source_account = account("source", request.source_account)?;
        let destination_account = account("destination", request.destination_account)?;
        if source_account == destination_account {
            let detail = "source_account and destination_account must be different accounts";
            return Err(Problem::unprocessable("same_account", detail));
        }
        if request.end_to_end_id.as_deref().is_some_and(|id| !is_end_to_end_id(id)) {
            let detail = format!(
                "end_to_end_id must be 1 to {END_TO_END_ID_MAX} printable ASCII characters with no space at its ends"
            );
            return Err(Problem::unprocessable("invalid_end_to_end_id", detail));
        }
        Ok(Self { money, source_account, destination_account, end_to_end_id: request.end_to_end_id })
    }

    /// The canonical form, independent of the spelling: `"12.5"` and `12.50` are the same order. One line for each part, since
    /// no part can contain a line break.
    pub(super) fn canonical(&self) -> Vec<u8> {
        format!(
            "{}\n{}\n{}\n{}\n{}",
            self.money.amount_minor(),
            self.money.currency().code(),
            self.source_account,
            self.destination_account,
            self.end_to_end_id.as_deref().unwrap_or_default(),
        )
        .into_bytes()
    }
}

/// Whether the text is a valid end-to-end id.
pub(super) fn is_end_to_end_id(text: &str) -> bool {
    (1..=END_TO_END_ID_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
        && !text.starts_with(' ')
        && !text.ends_with(' ')
}

fn account(side: &str, text: String) -> Result<AccountId, Problem> {
    AccountId::new(text).map_err(|error| {
        Problem::unprocessable("invalid_account", format!("{side}_account is malformed: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(body: &str) -> Order {
        Order::parse(serde_json::from_str(body).unwrap()).unwrap()
    }

    #[test]
    fn the_amount_of_a_payment_request_is_parsed_from_its_text() {
        for (amount, minor) in [
            ("\"12.5\"", 1_250),
            ("12.50", 1_250),
            ("0.07", 7),
            ("\"1\\u0032\"", 1_200),
            ("999999999999.99", 99_999_999_999_999),
        ] {
            let body = format!(
                r#"{{"amount":{amount},"currency":"EUR","source_account":"a","destination_account":"b"}}"#
            );
            assert_eq!(order(&body).money.amount_minor(), minor, "{amount}");
        }
    }

    #[test]
    fn spellings_of_one_payment_request_have_one_canonical_form() {
        let one =
            order(r#"{"amount":"12.5","currency":"EUR","source_account":"a","destination_account":"b"}"#);
        let two = order(
            r#"{ "destination_account":"b", "source_account":"a", "currency":"EUR", "amount":12.50, "end_to_end_id":null}"#,
        );
        assert_eq!(one.canonical(), two.canonical());
        let other = order(
            r#"{"amount":"12.5","currency":"EUR","source_account":"a","destination_account":"b","end_to_end_id":"i"}"#,
        );
        assert_ne!(one.canonical(), other.canonical());
    }
}
