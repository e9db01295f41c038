//! A switch's callback: headers, which are read before the body, and the body.

use http::{HeaderMap, HeaderName, HeaderValue};
use payment_protocol::ids::SwitchName;
use payment_protocol::report::Incoming;
use serde_json::Value;
use switch_client::client::SwitchKind;
use webhook_signature::{ID_HEADER, SIGNATURE_HEADER, Secret, TIMESTAMP_HEADER, sign};

/// The time of the receiver, in seconds since 1970, and its tolerance.
const NOW_S: i64 = 1_800_000_000;
const TOLERANCE_S: i64 = 300;

const HEADERS: [&str; 3] = [ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER];

/// Lines are headers: an id, a timestamp, a signature; the rest is the body. Nobody's signature is accepted; ours is, and for this id, this
/// time and this body alone.
pub(crate) fn check_headers(input: &[u8]) -> bool {
    let mut parts = input.splitn(4, |byte| *byte == b'\n');
    let (lines, body): (Vec<&[u8]>, &[u8]) =
        (parts.by_ref().take(3).collect(), parts.next().unwrap_or_default());
    let mut headers = HeaderMap::new();
    for (name, line) in HEADERS.iter().zip(&lines) {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let secret = Secret::from_bytes([7; 32]);
    let verify = |headers: &HeaderMap, body: &[u8]| {
        webhook_signature::verify(std::slice::from_ref(&secret), headers, body, NOW_S, TOLERANCE_S)
    };
    assert!(verify(&headers, body).is_err(), "a signature without the secret was accepted");

    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (Some(id), Some(timestamp)) = (text(HEADERS[0]), text(HEADERS[1])) else { return false };
    let Ok(timestamp_s) = timestamp.parse::<i64>() else { return false };
    let signature = sign(&secret, &id, timestamp_s, body);
    headers.insert(HeaderName::from_static(HEADERS[2]), HeaderValue::from_str(&signature).unwrap());
    let Ok(verified) = verify(&headers, body) else { return false };
    assert_eq!(verified, id);
    assert!((NOW_S - TOLERANCE_S..=NOW_S + TOLERANCE_S).contains(&timestamp_s), "{timestamp_s}");
    let mut longer = body.to_vec();
    longer.push(b' ');
    assert!(verify(&headers, &longer).is_err(), "another body was accepted");
    if let Some(first) = longer.first_mut().filter(|_| !body.is_empty()) {
        *first ^= 1;
        assert!(verify(&headers, &longer[..body.len()]).is_err(), "an altered body was accepted");
    }
    let nearer = timestamp_s + if timestamp_s > NOW_S { -1 } else { 1 };
    for (name, other) in [(ID_HEADER, format!("{id}x")), (TIMESTAMP_HEADER, nearer.to_string())] {
        let mut headers = headers.clone();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(&other).unwrap());
        assert!(verify(&headers, body).is_err(), "another {name} was accepted");
    }
    true
}

/// A report says what its JSON says: the reference, the amount and the currency are fields of it, and neither spaces nor the order of
/// fields change it.
pub(crate) fn check_body(input: &[u8]) -> bool {
    let switch = SwitchName::new("northern").unwrap();
    let reports = SwitchKind::HttpJson.reports();
    let Ok(report) = reports.read(&switch, input) else { return false };
    // A field that nobody reads may have text that is no Unicode, such as half of a surrogate pair.
    let Ok(value) = serde_json::from_slice::<Value>(input) else { return true };
    let (reference, amount_minor, currency) = match &report {
        Incoming::End(end) => (&end.reference, Some(end.amount_minor), Some(&end.currency)),
        Incoming::Return(report) => (&report.reference, Some(report.amount_minor), Some(&report.currency)),
        Incoming::Posting(report) => (&report.reference, Some(report.amount_minor), Some(&report.currency)),
        Incoming::Recall(report) => (&report.reference, None, None),
    };
    assert_eq!(value["reference"], **reference);
    if let Some(amount_minor) = amount_minor {
        // The text of a number, since a double has other neighbours.
        let text = value["amount_minor"].to_string();
        assert!(is_integer(&text, amount_minor), "{text} was read as {amount_minor}");
    }
    if let Some(currency) = currency {
        assert_eq!(value["currency"], **currency);
    }
    let canonical = idempotency::canonical::json(input).ok();
    if let Some(canonical) = canonical {
        assert_eq!(reports.read(&switch, &canonical), Ok(report), "the same report in another order");
    }
    true
}

/// Whether serde_json's text of a number has this value: `5`, `5.0`, `5e2`, or a double beyond 2^53, which is compared as one.
#[allow(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "serde_json holds such a number as a double itself"
)]
fn is_integer(text: &str, value: i64) -> bool {
    text.parse::<i64>() == Ok(value) || text.parse::<f64>() == Ok(value as f64)
}
