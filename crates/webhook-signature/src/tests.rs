//! Known vectors, and every kind of tampering.

use http::HeaderValue;

use super::*;

// Made with the standard's published Python library (PyPI standardwebhooks 1.1.0,
// Webhook(secret).sign(id, timestamp, body)).
const SECRET: &str = "whsec_ZGVtby1vbmx5LXNlY3JldC1kby1ub3QtdXNlLWl0ISE=";
const ID: &str = "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W";
const AT_S: i64 = 1_760_000_000;
const BODY: &[u8] =
    br#"{"type":"transfer.completed","reference":"tx-1:submit","status":"SUCCESS","amount_minor":1250}"#;
const SIGNATURE: &str = "v1,cwwKrwWfDt9+r4u3j0edi4OysJ6K0XezzfNq3gQtqOI=";

const OTHER_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn secret(text: &str) -> Secret {
    text.parse().unwrap()
}

fn headers(id: &str, timestamp: &str, signature: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ID_HEADER, id.parse().unwrap());
    headers.insert(TIMESTAMP_HEADER, timestamp.parse().unwrap());
    headers.insert(SIGNATURE_HEADER, signature.parse().unwrap());
    headers
}

fn check(headers: &HeaderMap, body: &[u8]) -> Result<String, SignatureError> {
    verify(&[secret(SECRET)], headers, body, AT_S, 300)
}

#[test]
fn webhook_signatures_match_the_known_vectors() {
    assert_eq!(sign(&secret(SECRET), ID, AT_S, BODY), SIGNATURE);
    let from_bytes = Secret::from_bytes(*b"demo-only-secret-do-not-use-it!!");
    assert_eq!(sign(&from_bytes, ID, AT_S, BODY), SIGNATURE);
    let other = sign(
        &secret(OTHER_SECRET),
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1_614_265_330,
        br#"{"test": 2432232314}"#,
    );
    assert_eq!(other, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

#[test]
fn several_webhook_secrets_give_one_signature_each() {
    let secrets = [secret(OTHER_SECRET), secret(SECRET)];
    let both = sign_with_each(&secrets, ID, AT_S, BODY);
    assert_eq!(both, format!("{} {SIGNATURE}", sign(&secrets[0], ID, AT_S, BODY)));
    assert_eq!(check(&headers(ID, &AT_S.to_string(), &both), BODY), Ok(ID.to_owned()));
    assert_eq!(encode_secret(*b"demo-only-secret-do-not-use-it!!"), SECRET);
}

#[test]
fn verifying_a_valid_webhook_returns_its_id() {
    assert_eq!(check(&headers(ID, &AT_S.to_string(), SIGNATURE), BODY), Ok(ID.to_owned()));
}

#[test]
fn a_webhook_signature_covers_id_timestamp_body_and_secret() {
    let at = AT_S.to_string();
    // Our own: a known vector matches nothing of a signature that leaves a part out, whatever is altered.
    let signature = sign(&secret(SECRET), ID, AT_S, BODY);
    let signature = signature.as_str();
    let mut altered = BODY.to_vec();
    altered[9] ^= 1;
    let mut longer = BODY.to_vec();
    longer.push(b' ');
    let cases = [
        (headers("msg_other", &at, signature), BODY),
        (headers(ID, &(AT_S + 1).to_string(), signature), BODY),
        (headers(ID, &format!("+{at}"), signature), BODY),
        (headers(ID, &at, signature), &altered),
        (headers(ID, &at, signature), &longer),
        (headers(ID, &at, signature), b""),
        (headers(ID, &at, &signature.replace("v1,", "v1a,")), BODY),
        (headers(ID, &at, "v1,AAAA"), BODY),
        (headers(ID, &at, "v1,not base64!"), BODY),
    ];
    for (headers, body) in cases {
        assert_eq!(check(&headers, body), Err(SignatureError::NoMatch), "{headers:?}");
    }
    let good = headers(ID, &at, signature);
    let wrong_key = verify(&[secret(OTHER_SECRET)], &good, BODY, AT_S, 300);
    assert_eq!(wrong_key, Err(SignatureError::NoMatch));
    assert_eq!(verify(&[], &good, BODY, AT_S, 300), Err(SignatureError::NoMatch));
}

#[test]
fn during_a_rotation_any_webhook_secret_and_signature_match() {
    let several = format!("v1a,xyz v1,AAAA {SIGNATURE}");
    let headers = headers(ID, &AT_S.to_string(), &several);
    let secrets = [secret(OTHER_SECRET), secret(SECRET)];
    assert_eq!(verify(&secrets, &headers, BODY, AT_S, 300), Ok(ID.to_owned()));
}

#[test]
fn too_old_and_too_new_webhook_timestamps_are_refused() {
    let headers = headers(ID, &AT_S.to_string(), SIGNATURE);
    let at = |now_s| verify(&[secret(SECRET)], &headers, BODY, now_s, 300);
    assert!(at(AT_S + 300).is_ok());
    assert!(at(AT_S - 300).is_ok());
    assert_eq!(at(AT_S + 301), Err(SignatureError::TooOld(301)));
    assert_eq!(at(AT_S - 301), Err(SignatureError::TooNew(301)));
    assert_eq!(at(i64::MAX), Err(SignatureError::TooOld(i64::MAX - AT_S)));
    assert!(matches!(at(i64::MIN), Err(SignatureError::TooNew(_))));
}

#[test]
fn missing_repeated_or_malformed_webhook_headers_are_refused() {
    let at = AT_S.to_string();
    for name in [ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER] {
        let mut missing = headers(ID, &at, SIGNATURE);
        missing.remove(name);
        assert_eq!(check(&missing, BODY), Err(SignatureError::Missing(name)));
        let mut twice = headers(ID, &at, SIGNATURE);
        twice.append(name, HeaderValue::from_static("x"));
        assert_eq!(check(&twice, BODY), Err(SignatureError::Malformed(name)));
    }
    let malformed = [
        (headers("", &at, SIGNATURE), ID_HEADER),
        (headers("a.b", &at, SIGNATURE), ID_HEADER),
        (headers(ID, "soon", SIGNATURE), TIMESTAMP_HEADER),
        (headers(ID, &at, "nonsense"), SIGNATURE_HEADER),
    ];
    for (headers, name) in malformed {
        assert_eq!(check(&headers, BODY), Err(SignatureError::Malformed(name)));
    }
}

#[test]
fn a_signed_webhook_body_may_be_any_bytes() {
    let body = [0xff, 0x00, 0xfe];
    let signature = sign(&secret(SECRET), ID, AT_S, &body);
    assert!(check(&headers(ID, &AT_S.to_string(), &signature), &body).is_ok());
}

#[test]
fn webhook_secrets_are_validated_and_redacted_in_debug_output() {
    for text in ["", "whsec_", "ZGVtby1vbmx5LXNlY3JldC1kby1ub3QtdXNlLWl0ISE=", "whsec_AAAA", "whsec_***"] {
        assert_eq!(text.parse::<Secret>().map(|_| ()), Err(SecretError), "{text}");
    }
    assert_eq!(format!("{:?}", secret(SECRET)), "Secret([redacted])");
}
