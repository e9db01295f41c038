//! `payctl completions`: shell completion scripts.

use clap_complete::{Shell, generate};

use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Print a shell's completion script, for example: source <(payctl completions bash)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell whose completion script is printed
    shell: SupportedShell,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum SupportedShell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(
    args: &Args,
    mut command: clap::Command,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let shell = match args.shell {
        SupportedShell::Bash => Shell::Bash,
        SupportedShell::Zsh => Shell::Zsh,
        SupportedShell::Fish => Shell::Fish,
    };
    // Into memory: `generate` panics if the reader closes the pipe.
    let mut script = Vec::new();
    generate(shell, &mut command, "payctl", &mut script);
    out.write_line(String::from_utf8(script)?.trim_end())?;
    Ok(CommandOutcome::Success)
}
