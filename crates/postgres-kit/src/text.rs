//! Text of another party that PostgreSQL can store.

use std::borrow::Cow;

/// Replaces NUL by U+FFFD. JSON may carry NUL and PostgreSQL's type text may not: every repeat of such a message would be
/// rejected.
#[must_use]
pub fn replace_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { text.into() }
}
