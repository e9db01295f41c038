//! The canonical form of a JSON body, by which a repeated request is recognized.

use serde_json::Value;

/// The canonical form says the same as the body, is its own canonical form, and that of the body written in another way.
pub(crate) fn check(input: &[u8]) -> bool {
    let Ok(canonical) = idempotency::canonical::json(input) else { return false };
    assert_eq!(idempotency::canonical::json(&canonical).unwrap(), canonical);
    // A number keeps its text, however large; a Value holds none beyond the range of a double.
    let (value, original) =
        (serde_json::from_slice::<Value>(&canonical), serde_json::from_slice::<Value>(input));
    assert_eq!(value.is_ok(), original.is_ok());
    let (Ok(value), Ok(original)) = (value, original) else { return true };
    assert_eq!(value, original);
    // With spaces. A number keeps its text only if nothing rewrites it.
    if !has_rewritten_number(&value, &canonical) {
        let spaced = serde_json::to_vec_pretty(&value).unwrap();
        assert_eq!(idempotency::canonical::json(&spaced).unwrap(), canonical);
    }
    true
}

/// Whether serde_json writes the value's numbers otherwise than the canonical form has them.
fn has_rewritten_number(value: &Value, canonical: &[u8]) -> bool {
    serde_json::to_vec(value).unwrap() != canonical
}
