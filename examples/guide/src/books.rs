//! The books of a bank and of a switch, as a folder: one file per operation, named by its idempotency key.
//!
//! A file can be created once, by any worker and at any attempt: that is what a key in a database's unique index does, and
//! it survives `kill -9`. The service itself keeps these records in PostgreSQL, in the transaction that moves the money.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// Records of operations, shared by all workers.
#[derive(Clone, Debug)]
pub struct Books {
    folder: PathBuf,
}

impl Books {
    /// Opens the books in this folder, which is created if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Records an operation under its key; `false` if it is recorded already. Every attempt is noted.
    ///
    /// # Errors
    /// The folder cannot be written: whether the operation is recorded is unknown.
    pub fn record(&self, key: &str) -> io::Result<bool> {
        let attempts = self.folder.join("attempts.log");
        writeln!(File::options().create(true).append(true).open(attempts)?, "{key}")?;
        match File::create_new(self.folder.join(key)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the operation is recorded.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.folder.join(key).exists()
    }

    /// Number of attempts to record the operation.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn attempts(&self, key: &str) -> io::Result<usize> {
        let attempts = fs::read_to_string(self.folder.join("attempts.log"))?;
        Ok(attempts.lines().filter(|line| *line == key).count())
    }
}
