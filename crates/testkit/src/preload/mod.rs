//! Faults below a process, without root: a small C library that is loaded before the C library and answers some of its
//! calls itself. Linux only; elsewhere the tests that need one are not built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// A fault that a process is started with.
#[derive(Clone, Copy, Debug)]
pub enum Preload {
    /// Its wall clock is so many seconds off; its monotonic clock is not.
    Clock {
        /// Seconds, negative for the past.
        offset_s: i64,
    },
    /// Its disk is full while the file [`Preload::FULL_DISK`] lies in the folder given to it.
    FullDisk,
}

impl Preload {
    /// Name of the file that fills a disk by being there.
    pub const FULL_DISK: &str = "disk-is-full";

    /// What the process's environment must hold. The library is compiled into `folder`.
    ///
    /// # Errors
    /// No C compiler, or what it said.
    pub fn environment(self, folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
        let (library, setting) = match self {
            Self::Clock { offset_s } => (
                compile("clock", include_str!("clock.c"), folder)?,
                ("CLOCK_OFFSET_S".to_owned(), offset_s.to_string()),
            ),
            Self::FullDisk => (
                compile("full_disk", include_str!("full_disk.c"), folder)?,
                ("FULL_DISK".to_owned(), folder.join(Self::FULL_DISK).display().to_string()),
            ),
        };
        Ok(vec![("LD_PRELOAD".to_owned(), library.display().to_string()), setting])
    }
}

/// The C compiler is there: `./dev` installs it, and Rust links by it.
fn compile(name: &str, source: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let (text, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&text, source)?;
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&library, &text])
        .output()
        .context("there is no C compiler `cc`: `./dev install` installs one")?;
    if !output.status.success() {
        bail!("{name}.c does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(library)
}
