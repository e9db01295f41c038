//! Runs the payctl binary.

use std::process::{Output, Stdio};

use tokio::process::Command;

/// Exit code and output of one run.
#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary with these arguments, without the caller's `PAYMENTS_` variables.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payctl"));
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    for (setting, _) in std::env::vars().filter(|(setting, _)| setting.starts_with("PAYMENTS_")) {
        command.env_remove(setting);
    }
    command
}

/// Runs the binary to its end.
pub(crate) async fn payctl(args: &[&str]) -> CommandResult {
    CommandResult::of(command(args).output().await.unwrap())
}

impl CommandResult {
    /// The result of an ended process.
    pub(crate) fn of(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Expects that the command succeeded (exit code 0); returns its stdout.
    pub(crate) fn success(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// Expects that a check failed (exit code 1); returns the command's stdout.
    pub(crate) fn check_failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.stdout
    }

    /// Expects that the command refused (exit code 2); returns its stderr.
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, Some(2), "{self:?}");
        self.stderr
    }
}
