//! `payctl switch list`: what is configured, and whether it is safe.

use payment_protocol::SwitchProfile;
use serde::Serialize;

use crate::bank::{BankArgs, Switch};
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};
use crate::table::{Align, Table};

/// List the configured switches and whether their profiles are safe
///
/// Exit code 1: a profile is refused; the bank's processes do not start with it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    bank: BankArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// One switch, for programs.
#[derive(Debug, Serialize)]
struct Listed<'a> {
    name: &'a str,
    base_url: &'a str,
    routes: &'a [String],
    safe: bool,
    /// Why it is refused.
    refused: Option<String>,
    /// What to change; none when only another switch would help.
    changes: Option<Vec<String>>,
    /// What a person may be needed for.
    warnings: Vec<String>,
    profile: &'a SwitchProfile,
}

impl<'a> Listed<'a> {
    fn of(switch: &'a Switch) -> Self {
        let (profile, checked) = (&switch.profile, switch.profile.check());
        Self {
            name: profile.switch.as_str(),
            base_url: &switch.options.base_url,
            routes: &switch.options.routes,
            safe: checked.is_ok(),
            refused: checked.as_ref().err().map(ToString::to_string),
            changes: profile.nearest_safe().map(|(changes, _)| changes),
            warnings: checked.iter().flatten().map(ToString::to_string).collect(),
            profile,
        }
    }
}

pub(super) fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let switches = args.bank.read()?.switches()?;
    let listed: Vec<Listed<'_>> = switches.iter().map(Listed::of).collect();
    if args.json {
        out.json(&serde_json::json!({ "switches": listed }))?;
    } else if listed.is_empty() {
        out.line("no switch is configured; see --config")?;
    } else {
        out.line(table(&listed))?;
        for remark in listed.iter().flat_map(remarks) {
            out.line(format_args!("\n{remark}"))?;
        }
    }
    Ok(if listed.iter().all(|listed| listed.safe) { Outcome::Done } else { Outcome::NotAsItShouldBe })
}

fn table(listed: &[Listed<'_>]) -> Table<6> {
    let left = Align::Left;
    let names = ["switch", "strategy", "can", "routes", "address", "profile"];
    let mut table = Table::new(names.map(|name| (name, left)));
    for switch in listed {
        let final_status = match (switch.safe, switch.warnings.is_empty()) {
            (false, _) => "refused",
            (true, false) => "safe, with a warning",
            (true, true) => "safe",
        };
        let (can, routes) = (abilities(switch.profile), switch.routes.join(" "));
        let strategy = switch.profile.strategy.as_str();
        table.row([switch.name, strategy, &can, &routes, switch.base_url, final_status]);
    }
    table
}

/// What the profile says it can, in the words of a probe.
fn abilities(profile: &SwitchProfile) -> String {
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
    all.into_iter().filter_map(|(word, can)| can.then_some(word)).collect::<Vec<_>>().join(" ")
}

fn remarks(switch: &Listed<'_>) -> Vec<String> {
    let name = switch.name;
    let mut remarks: Vec<String> = switch.warnings.iter().map(|text| format!("{name}: {text}")).collect();
    if let Some(refused) = &switch.refused {
        let nearest = match &switch.changes {
            Some(changes) => format!("nearest safe profile: {}", changes.join(", ")),
            None => "no profile makes it safe".into(),
        };
        remarks.push(format!("{name} is refused: {refused}\n{nearest}"));
    }
    remarks
}
