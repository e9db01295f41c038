//! The canonical form of a JSON body, by which a repeated request is recognized.

use serde_json::Value;

/// The canonical form says the same as the body, is its own canonical form, and that of the body written in another way.
pub(crate) fn check(input: &[u8]) -> bool {
    let Ok(canonical) = idempotency::canonical::json(input) else { return false };
    assert_eq!(idempotency::canonical::json(&canonical).unwrap(), canonical);
    assert_eq!(idempotency::canonical::json(&spaced(&canonical)).unwrap(), canonical);
    // A number keeps its text, however large; a Value holds none beyond the range of a double.
    let (value, original) =
        (serde_json::from_slice::<Value>(&canonical), serde_json::from_slice::<Value>(input));
    assert_eq!(value.is_ok(), original.is_ok());
    let (Ok(value), Ok(original)) = (value, original) else { return true };
    assert_eq!(value, original);
    true
}

/// The same JSON with a space after each bracket, comma and colon outside of texts.
fn spaced(json: &[u8]) -> Vec<u8> {
    let (mut spaced, mut in_text, mut is_escaped) = (Vec::with_capacity(json.len() * 2), false, false);
    for byte in json {
        spaced.push(*byte);
        in_text ^= *byte == b'"' && !is_escaped;
        is_escaped = in_text && *byte == b'\\' && !is_escaped;
        if !in_text && b"{}[],:".contains(byte) {
            spaced.push(b' ');
        }
    }
    spaced
}
