//! Writes results line by line and flushes each, so that a reader behind a pipe sees a line at once. A
//! pipe closed by its reader ends the command silently: neither an error message nor a panic.

use std::fmt::Display;
use std::io::{self, Write};

use payment_ledger::operator::decisions::is_invisible;
use serde::Serialize;

/// The result of a command, on stdout.
pub(crate) struct Output<'a>(&'a mut dyn Write);

/// The result cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    /// The reader closed the pipe.
    #[error("the reader of payctl's stdout closed the pipe before the result was complete")]
    Closed,
    /// Another I/O error, for example a full disk.
    #[error("the result of the command cannot be written to stdout")]
    Io(#[source] io::Error),
    /// The result cannot be serialized.
    #[error("the result of the command cannot be written as JSON")]
    Json(#[source] serde_json::Error),
}

impl From<io::Error> for OutputError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl<'a> Output<'a> {
    /// Writes to `writer`.
    pub(crate) fn new(writer: &'a mut dyn Write) -> Self {
        Self(writer)
    }

    /// Writes and flushes one line, or several that belong together.
    ///
    /// # Errors
    /// [`OutputError::Closed`] or [`OutputError::Io`].
    pub(crate) fn write_line(&mut self, text: impl Display) -> Result<(), OutputError> {
        writeln!(self.0, "{text}")?;
        Ok(self.0.flush()?)
    }

    /// Writes one indented JSON document.
    ///
    /// # Errors
    /// [`OutputError`].
    pub(crate) fn write_json(&mut self, document: &impl Serialize) -> Result<(), OutputError> {
        self.write_line(serde_json::to_string_pretty(document).map_err(OutputError::Json)?)
    }
}

/// Escapes control and invisible characters, so that a foreign text stays on one line and cannot move the
/// cursor or change colours.
pub(crate) fn escape_control(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Broken(io::ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn payctl_distinguishes_a_closed_output_pipe_from_a_full_disk() {
        let write = |kind| Output::new(&mut Broken(kind)).write_line("x").unwrap_err();
        assert!(matches!(write(io::ErrorKind::BrokenPipe), OutputError::Closed));
        assert!(matches!(write(io::ErrorKind::StorageFull), OutputError::Io(_)));
    }

    #[test]
    fn payctl_escapes_control_characters_in_text_of_the_switch() {
        assert_eq!(escape_control("no such\taccount\n\u{1b}[31mé"), "no such\\taccount\\n\\u{1b}[31mé");
    }
}
