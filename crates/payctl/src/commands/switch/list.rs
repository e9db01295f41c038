//! `payctl switch list`: the configured switches, and whether their profiles are safe.

use payment_protocol::SwitchProfile;
use serde::Serialize;

use crate::config::{ConfigArgs, SwitchConfig};
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{Align, Table};

/// List the configured switches and whether their profiles are safe
///
/// Exit code 1: a profile is unsafe; the service does not start with it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// One configured switch in the output.
#[derive(Debug, Serialize)]
struct SwitchDocument<'a> {
    name: &'a str,
    base_url: &'a str,
    routes: &'a [String],
    safe: bool,
    /// Why the profile is unsafe.
    error: Option<String>,
    /// Changes that make the profile safe; `None` if no profile is safe at this switch.
    changes: Option<Vec<String>>,
    /// When the profile needs an operator.
    warnings: Vec<String>,
    profile: &'a SwitchProfile,
}

impl<'a> SwitchDocument<'a> {
    fn of(switch: &'a SwitchConfig) -> Self {
        let profile = &switch.profile;
        let needs_participant = profile.check_participant().err();
        let checked = match &needs_participant {
            Some(error) => Err(error.to_string()),
            None => profile.check().map_err(|error| error.to_string()),
        };
        let changes = match needs_participant {
            Some(_) => Some(vec!["participant = \"...\"".to_owned()]),
            None => profile.nearest_safe().map(|(changes, _)| changes),
        };
        Self {
            name: profile.switch.as_str(),
            base_url: &switch.options.base_url,
            routes: &switch.options.routes,
            safe: checked.is_ok(),
            error: checked.as_ref().err().cloned(),
            changes,
            warnings: checked.iter().flatten().map(ToString::to_string).collect(),
            profile,
        }
    }
}

pub(super) fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let switches = args.config.read()?.switches()?;
    let documents: Vec<SwitchDocument<'_>> = switches.iter().map(SwitchDocument::of).collect();
    if args.json {
        out.write_json(&serde_json::json!({ "switches": documents }))?;
    } else if documents.is_empty() {
        out.write_line("no switch is configured; check --config")?;
    } else {
        out.write_line(table(&documents))?;
        for remark in documents.iter().flat_map(remarks) {
            out.write_line(format_args!("\n{remark}"))?;
        }
    }
    Ok(if documents.iter().all(|switch| switch.safe) {
        CommandOutcome::Success
    } else {
        CommandOutcome::CheckFailed
    })
}

fn table(switches: &[SwitchDocument<'_>]) -> Table<6> {
    let left = Align::Left;
    let names = ["switch", "strategy", "capabilities", "routes", "address", "profile"];
    let mut table = Table::new(names.map(|name| (name, left)));
    for switch in switches {
        let assessment = match (switch.safe, switch.warnings.is_empty()) {
            (false, _) => "unsafe",
            (true, false) => "safe, with a warning",
            (true, true) => "safe",
        };
        let (capabilities, routes) = (capabilities(switch.profile), switch.routes.join(" "));
        let strategy = switch.profile.strategy.as_str();
        table.row([switch.name, strategy, &capabilities, &routes, switch.base_url, assessment]);
    }
    table
}

/// The configured capabilities, in the words of `payctl switch probe`.
fn capabilities(profile: &SwitchProfile) -> String {
    let all = [
        ("query", profile.has_query),
        ("dedup", profile.deduplicates),
        ("tombstone", profile.tombstones),
        ("deadline", profile.honours_deadline),
        ("cancel", profile.can_cancel),
        ("recall", profile.can_recall),
        ("statement", profile.has_statement),
        ("callback", profile.has_callback),
    ];
    all.into_iter().filter_map(|(word, offered)| offered.then_some(word)).collect::<Vec<_>>().join(" ")
}

fn remarks(switch: &SwitchDocument<'_>) -> Vec<String> {
    let name = switch.name;
    let mut remarks: Vec<String> =
        switch.warnings.iter().map(|text| format!("switch {name}: {text}")).collect();
    if let Some(error) = &switch.error {
        let nearest = match &switch.changes {
            Some(changes) => format!("nearest safe profile: {}", changes.join(", ")),
            None => "no profile is safe at this switch".into(),
        };
        remarks.push(format!("switch {name} has an unsafe profile: {error}\n{nearest}"));
    }
    remarks
}
