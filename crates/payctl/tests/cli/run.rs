//! Runs the program.

use std::process::{Output, Stdio};

use tokio::process::Command;

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The program with these arguments and nothing of the caller's settings.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_payctl"));
    command.args(args).stdin(Stdio::null()).kill_on_drop(true);
    for (setting, _) in std::env::vars().filter(|(setting, _)| setting.starts_with("PAYMENTS_")) {
        command.env_remove(setting);
    }
    command
}

/// Runs it to its end.
pub(crate) async fn payctl(args: &[&str]) -> Ran {
    Ran::of(command(args).output().await.unwrap())
}

impl Ran {
    /// What a process left that has ended.
    pub(crate) fn of(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// The text on stdout of a run that found something not as it should be.
    pub(crate) fn not_as_it_should_be(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        self.stdout
    }

    /// The text on stdout of a run that must have succeeded.
    pub(crate) fn done(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The text on stderr of a run that must not have been carried out.
    pub(crate) fn refused(self) -> String {
        assert_eq!(self.code, Some(2), "{self:?}");
        self.stderr
    }
}
