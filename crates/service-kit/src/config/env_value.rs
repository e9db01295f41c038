//! The typed value of an environment variable.

use toml::{Table, Value};

/// Reads a boolean, a number, a quoted string, `[a, b]` or `{key = a}`; every other text is a string.
pub(super) fn parse(text: &str) -> Value {
    let mut rest = text;
    match value(&mut rest) {
        Some(value) if rest.is_empty() => value,
        _ => Value::String(text.to_owned()),
    }
}

/// Takes one value and the space around it from the front of `rest`; `None` if the text is malformed.
fn value(rest: &mut &str) -> Option<Value> {
    *rest = rest.trim_ascii_start();
    let value = match rest.as_bytes().first() {
        Some(b'[') => Value::Array(delimited(rest, ']', value)?),
        Some(b'{') => Value::Table(delimited(rest, '}', key_value)?.into_iter().collect::<Table>()),
        Some(b'"') => Value::String(quoted(rest)?),
        Some(b'\'') => Value::String(character(rest)?),
        _ => scalar(rest),
    };
    *rest = rest.trim_ascii_start();
    Some(value)
}

/// Items between brackets, separated by commas.
fn delimited<T>(rest: &mut &str, end: char, item: fn(&mut &str) -> Option<T>) -> Option<Vec<T>> {
    *rest = rest.get(1..)?.trim_ascii_start();
    let mut items = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix(end) {
            *rest = after;
            return Some(items);
        }
        items.push(item(rest)?);
        match rest.strip_prefix(',') {
            Some(after) => *rest = after.trim_ascii_start(),
            None if rest.starts_with(end) => {}
            None => return None,
        }
    }
}

fn key_value(rest: &mut &str) -> Option<(String, Value)> {
    let key = if rest.starts_with('"') {
        quoted(rest)?
    } else {
        let (key, after) = rest.split_at(rest.find(['=', ',', '}']).unwrap_or(rest.len()));
        *rest = after;
        key.trim_ascii().to_owned()
    };
    *rest = rest.trim_ascii_start().strip_prefix('=')?;
    (!key.is_empty()).then_some(())?;
    Some((key, value(rest)?))
}

/// A double-quoted string with TOML's escapes.
fn quoted(rest: &mut &str) -> Option<String> {
    let mut is_escaped = false;
    let length = rest.get(1..)?.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })? + 2;
    let (string, after) = rest.split_at(length);
    let Ok(Value::String(text)) = string.parse::<Value>() else { return None };
    *rest = after;
    Some(text)
}

/// One character between single quotes.
fn character(rest: &mut &str) -> Option<String> {
    let mut chars = rest.chars();
    let character = chars.nth(1)?;
    *rest = chars.as_str().strip_prefix('\'')?;
    Some(character.into())
}

fn scalar(rest: &mut &str) -> Value {
    let (text, after) = rest.split_at(rest.find([',', '{', '}', '[', ']']).unwrap_or(rest.len()));
    *rest = after;
    let text = text.trim_ascii();
    match text {
        "true" | "false" => return Value::Boolean(text == "true"),
        _ if text.contains('.') => {
            if let Ok(float) = text.parse() {
                return Value::Float(float);
            }
        }
        _ => {}
    }
    text.parse().map_or_else(|_| Value::String(text.to_owned()), Value::Integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variables_become_typed_configuration_values() {
        for (text, toml) in [
            ("true", "true"),
            (" false ", "false"),
            ("12", "12"),
            (" -3 ", "-3"),
            ("1.5", "1.5"),
            ("0123", "123"),
            ("\"0123\"", "\"0123\""),
            ("\"a\\tb\\\"\"", "\"a\\tb\\\"\""),
            ("'x'", "\"x\""),
            ("[DE, \"FR\", 1]", "[\"DE\", \"FR\", 1]"),
            ("[]", "[]"),
            ("[[a], [b,]]", "[[\"a\"], [\"b\"]]"),
            ("{ a = 1, b = [x] }", "{ a = 1, b = [\"x\"] }"),
            (" text ", "\"text\""),
            ("", "\"\""),
        ] {
            assert_eq!(parse(text), toml.parse::<Value>().unwrap(), "{text}");
        }
    }

    #[test]
    fn untyped_text_of_an_environment_variable_is_kept_unchanged() {
        for text in [
            "a,b",
            "[a",
            "a]",
            "{a}",
            "\"open",
            "\"a\" b",
            "postgres://u:p@h/d",
            "12 # x",
            "1_000",
            "2026-01-01",
        ] {
            assert_eq!(parse(text), Value::String(text.to_owned()));
        }
    }
}
