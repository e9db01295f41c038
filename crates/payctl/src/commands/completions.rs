//! `payctl completions`: what a shell needs to complete our commands.

use clap_complete::{Shell, generate};

use crate::out::Out;
use crate::outcome::Outcome;

/// Print a completion script for a shell, for example: source <(payctl completions bash)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Supported,
}

/// Shells that are spoken here.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Supported {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &Args, mut command: clap::Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let shell = match args.shell {
        Supported::Bash => Shell::Bash,
        Supported::Zsh => Shell::Zsh,
        Supported::Fish => Shell::Fish,
    };
    // Into memory first: a reader that goes away must not make it panic.
    let mut script = Vec::new();
    generate(shell, &mut command, "payctl", &mut script);
    out.line(String::from_utf8(script)?.trim_end())?;
    Ok(Outcome::Done)
}
