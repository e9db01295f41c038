//! Where results are written: line by line, so that a reader behind a pipe sees each as it comes.
//! A pipe that its reader has closed ends the command quietly; it is no failure and no panic.

use std::fmt::Display;
use std::io::{self, Write};

use payment_ledger::operator::decisions::is_invisible;
use serde::Serialize;

/// The result of a command, as it is written.
pub(crate) struct Out<'a>(&'a mut dyn Write);

/// A result that cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutError {
    /// Nobody reads any longer.
    #[error("the output was closed")]
    Closed,
    /// A full disk, for example.
    #[error("the output cannot be written")]
    Failed(#[source] io::Error),
    /// A document that is not JSON.
    #[error("the result cannot be written as JSON")]
    NotJson(#[source] serde_json::Error),
}

impl From<io::Error> for OutError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Failed(error),
        }
    }
}

impl<'a> Out<'a> {
    /// Writes to `to`.
    pub(crate) fn new(to: &'a mut dyn Write) -> Self {
        Self(to)
    }

    /// One line, or several that belong together.
    ///
    /// # Errors
    /// [`OutError::Closed`] or [`OutError::Failed`].
    pub(crate) fn line(&mut self, text: impl Display) -> Result<(), OutError> {
        writeln!(self.0, "{text}")?;
        Ok(self.0.flush()?)
    }

    /// One JSON document, indented.
    ///
    /// # Errors
    /// [`OutError`].
    pub(crate) fn json(&mut self, document: &impl Serialize) -> Result<(), OutError> {
        self.line(serde_json::to_string_pretty(document).map_err(OutError::NotJson)?)
    }
}

/// A text of others on one line of a terminal: what would move the cursor or change colours is
/// written out.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible(character) {
            plain.extend(character.escape_default());
        } else {
            plain.push(character);
        }
    }
    plain
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
    fn a_closed_pipe_is_told_from_a_full_disk() {
        let write = |kind| Out::new(&mut Broken(kind)).line("x").unwrap_err();
        assert!(matches!(write(io::ErrorKind::BrokenPipe), OutError::Closed));
        assert!(matches!(write(io::ErrorKind::StorageFull), OutError::Failed(_)));
    }

    #[test]
    fn a_foreign_text_cannot_steer_the_terminal() {
        assert_eq!(plain("no such\taccount\n\u{1b}[31mé"), "no such\\taccount\\n\\u{1b}[31mé");
    }
}
