//! The canonical form of a JSON body.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// Deepest accepted nesting of a JSON body.
const DEPTH_MAX: usize = 64;

/// Why a body has no canonical form.
#[derive(Debug, thiserror::Error)]
pub enum CanonicalError {
    /// The body is not JSON.
    #[error("the request body is not JSON; send a JSON document")]
    NotJson(#[from] serde_json::Error),
    /// The body is nested too deeply.
    #[error("the request body is nested more than {DEPTH_MAX} levels deep; send a flatter document")]
    TooDeep,
}

/// The body without insignificant spaces and with its fields sorted. Numbers keep their text: as floats, two amounts could
/// become equal. If a field is repeated the last value counts, as in most parsers.
///
/// # Errors
/// [`CanonicalError`].
pub fn json(body: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let mut canonical = Vec::with_capacity(body.len());
    write(serde_json::from_slice(body)?, DEPTH_MAX, &mut canonical)?;
    Ok(canonical)
}

fn write(raw: &RawValue, depth: usize, canonical: &mut Vec<u8>) -> Result<(), CanonicalError> {
    let text = raw.get();
    let Some(deeper) = depth.checked_sub(1) else { return Err(CanonicalError::TooDeep) };
    match text.as_bytes().first() {
        Some(b'{') => {
            let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            canonical.push(b'{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    canonical.push(b',');
                }
                serde_json::to_writer(&mut *canonical, &name)?;
                canonical.push(b':');
                write(value, deeper, canonical)?;
            }
            canonical.push(b'}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(text)?;
            canonical.push(b'[');
            for (index, value) in items.into_iter().enumerate() {
                if index > 0 {
                    canonical.push(b',');
                }
                write(value, deeper, canonical)?;
            }
            canonical.push(b']');
        }
        // Decoding and encoding removes the alternative escapes of a character.
        Some(b'"') => serde_json::to_writer(canonical, &serde_json::from_str::<String>(text)?)?,
        _ => canonical.extend_from_slice(text.as_bytes()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(body: &str) -> String {
        String::from_utf8(json(body.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn equivalent_json_bodies_have_one_canonical_form() {
        let one = of(r#"{"a":1,"b":["x",{"c":null,"d":true}]}"#);
        assert_eq!(one, r#"{"a":1,"b":["x",{"c":null,"d":true}]}"#);
        assert_eq!(of(" { \"b\" : [ \"\\u0078\", {\"d\":true ,\"c\":null} ] ,\n \"a\" : 1 } "), one);
    }

    #[test]
    fn different_json_bodies_have_different_canonical_forms() {
        let bodies = [
            r#"{"a":1}"#,
            r#"{"a":1.0}"#,
            r#"{"a":"1"}"#,
            r#"{"a":[1]}"#,
            r#"{"b":1}"#,
            r#"{"a":0.1e1}"#,
            "1",
        ];
        for (n, one) in bodies.iter().enumerate() {
            for other in bodies.iter().skip(n + 1) {
                assert_ne!(of(one), of(other));
            }
        }
        assert_ne!(of("[1,2]"), of("[2,1]"));
        assert_eq!(of("0.10000000000000000001"), "0.10000000000000000001");
    }

    #[test]
    fn the_canonical_form_of_invalid_or_deeply_nested_json_is_refused() {
        for body in ["", "{", "{\"a\":}", "nul", "[1,]", "{} {}"] {
            assert!(matches!(json(body.as_bytes()), Err(CanonicalError::NotJson(_))), "{body}");
        }
        let deep = |n: usize| "[".repeat(n) + &"]".repeat(n);
        assert!(json(deep(DEPTH_MAX).as_bytes()).is_ok());
        assert!(matches!(json(deep(DEPTH_MAX + 1).as_bytes()), Err(CanonicalError::TooDeep)));
    }
}
