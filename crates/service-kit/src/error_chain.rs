//! An error with its causes, in one line.

use std::error::Error;

/// The error and its sources, outermost first, joined by colons.
#[must_use]
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the process did not start")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn an_error_chain_has_each_cause_once() {
        let inner = std::io::Error::other("the port is in use");
        assert_eq!(error_chain(&inner), "the port is in use");
        assert_eq!(error_chain(&Outer(inner)), "the process did not start: the port is in use");
    }
}
