//! Faults below a process, without root rights: a small C library, loaded by LD_PRELOAD, replaces some functions of the C
//! library. Linux only; on other systems the tests that need it are not built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

/// A fault of a process, from its start.
#[derive(Clone, Copy, Debug)]
pub enum Preload {
    /// The wall clock is offset; the monotonic clock is not.
    Clock {
        /// Offset in seconds; negative is in the past.
        offset_s: i64,
    },
    /// The disk is full while the file [`Preload::FULL_DISK`] exists in the process's folder.
    FullDisk,
}

impl Preload {
    /// Name of the flag file: the disk is full while it exists.
    pub const FULL_DISK: &str = "disk-is-full";

    /// Environment variables for the process. The library is compiled into `folder`.
    ///
    /// # Errors
    /// If there is no C compiler, or it fails.
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

/// Compiles a shared library with the C compiler that Rust's linker needs anyway.
fn compile(name: &str, source: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let (text, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&text, source)?;
    let output = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&library, &text])
        .output()
        .context("the C compiler `cc` was not found: `./dev install` installs one")?;
    if !output.status.success() {
        bail!("{name}.c does not compile:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(library)
}
