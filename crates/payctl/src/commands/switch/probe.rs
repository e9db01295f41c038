//! `payctl switch probe`: a switch's measured capabilities, compared with its configured profile.

use std::io::Write as _;

use payment_protocol::SwitchProfile;
use payment_protocol::ids::{AccountId, SwitchName};
use payment_protocol::money::parse_currency;
use payment_protocol::profile::Rail;
use serde::Serialize;

use crate::config::ConfigArgs;
use crate::document::money;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::probe::{
    CapabilityMeasurement, ClockOffset, Findings, Probe, ProbeOrder, ProbeTransferView, ProfileAssessment,
    RailTraits, SwitchHttp, assess, is_loopback, matching,
};
use crate::table::{Align, Table};

/// Measure a switch's capabilities with transfers of the smallest amount, and assess its profile
///
/// Probe transfers have their own references and are cancelled afterwards where the switch allows it. At a switch
/// without a cancel they settle, pay the destination account, and are exceptions of the service, because no payment
/// belongs to them: such a probe needs --yes. The output lists every probe transfer with its status. Exit code 1: the profile relies on a capability that the switch
/// lacks, the profile is unsafe, or a probe transfer may settle. Exit code 3: a capability that the profile relies
/// on could not be measured.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// Name of the switch in the configuration
    #[arg(value_parser = super::super::id::<SwitchName>)]
    name: SwitchName,
    /// Destination account of the probe transfers; it is paid if a transfer settles
    #[arg(long, value_name = "ACCOUNT", default_value = "PAYCTL-PROBE", value_parser = super::super::id::<AccountId>)]
    creditor: AccountId,
    /// Currency of the probe transfers, an ISO 4217 code; the amount is one minor unit
    #[arg(long, default_value = "EUR", value_parser = parse_currency)]
    currency: iso_currency::Currency,
    /// Let one transfer settle, within 30 seconds, and recall it
    #[arg(long)]
    let_one_settle: bool,
    /// Send probe transfers to a switch that is not on this machine, or whose profile has no cancel
    #[arg(long)]
    yes: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct ProbeDocument<'a> {
    switch: &'a SwitchName,
    base_url: &'a str,
    /// Whether Ctrl-C interrupted the probe.
    interrupted: bool,
    clock: Option<ClockOffset>,
    findings: &'a Findings,
    assessment: &'a ProfileAssessment,
    /// What only some rails do.
    traits: &'a RailTraits,
    /// The shipped rails whose profile no measurement contradicts.
    rails: &'a [Rail],
    transfers: &'a [ProbeTransferView],
}

pub(super) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let switch = args.config.read()?.switch(&args.name)?;
    let base_url = &switch.options.base_url;
    let what_it_does = announcement(&args, &switch.profile);
    let confirmation = match (is_loopback(base_url), switch.profile.can_cancel) {
        (false, _) => Some("is not on this machine"),
        (true, false) => Some("has no cancel"),
        (true, true) => None,
    };
    if let (false, Some(reason)) = (args.yes, confirmation) {
        let name = &args.name;
        anyhow::bail!(
            "nothing was sent: switch {name} at {base_url} {reason}; {what_it_does}; to send them, add --yes"
        );
    }
    // A remark: the probe needs no stderr.
    let _ = writeln!(std::io::stderr(), "payctl: {what_it_does}");
    let order = ProbeOrder { creditor: args.creditor.to_string(), currency: args.currency.code().to_owned() };
    let run = uuid::Uuid::new_v4().simple().to_string();
    let http = SwitchHttp::new(&switch.options, order)?;
    let mut probe = Probe::new(http, switch.profile.clone(), run[..12].to_owned());
    let interrupted = tokio::select! {
        measured = probe.measure(args.let_one_settle) => measured.map(|()| false)?,
        _ = tokio::signal::ctrl_c() => true,
    };
    probe.clean_up().await;

    let assessment = assess(&switch.profile, probe.findings());
    let transfers = probe.transfers();
    let rails = matching(probe.findings(), probe.traits());
    let document = ProbeDocument {
        switch: &args.name,
        base_url,
        interrupted,
        clock: probe.clock_offset(),
        findings: probe.findings(),
        assessment: &assessment,
        traits: probe.traits(),
        rails: &rails,
        transfers: &transfers,
    };
    match args.json {
        true => out.write_json(&document)?,
        false => print(&document, switch.profile.strategy.as_str(), out)?,
    }
    anyhow::ensure!(
        !interrupted,
        "the probe of switch {} was interrupted; the output has the findings until then",
        args.name
    );
    let is_safe = assessment.is_safe() && !transfers.iter().any(|transfer| transfer.may_settle);
    Ok(match (is_safe, assessment.is_complete()) {
        (false, _) => CommandOutcome::CheckFailed,
        (true, false) => CommandOutcome::Unknown,
        (true, true) => CommandOutcome::Success,
    })
}

/// What the probe sends, and what becomes of it.
fn announcement(args: &Args, profile: &SwitchProfile) -> String {
    let transfers = format!(
        "the probe sends up to five transfers of {} to {}",
        money(1, args.currency.code()),
        args.creditor
    );
    let exceptions = "exceptions for operators to close, because no payment belongs to it: callback_for_unknown_payment \
                      and transfer_without_payment";
    match (profile.can_cancel, args.let_one_settle) {
        (false, _) => format!("{transfers}; without a cancel each settles and leaves {exceptions}"),
        (true, true) => {
            format!("{transfers} and cancels them, but one settles, is recalled, and leaves {exceptions}")
        }
        (true, false) => format!("{transfers} and cancels them"),
    }
}

fn print(document: &ProbeDocument<'_>, strategy: &str, out: &mut Output<'_>) -> anyhow::Result<()> {
    out.write_line(capabilities(document))?;
    out.write_line(format_args!("\n{}", clock(document.clock)))?;
    out.write_line(
        "how long the switch remembers references was not measured: retention_s stays as configured",
    )?;
    out.write_line(format_args!("\n{}", strategies(document.assessment, strategy)))?;
    out.write_line(format_args!("\n{}", changes(document.assessment)))?;
    out.write_line(format_args!("\n{}", rails(document.rails, document.traits)))?;
    out.write_line(format_args!("\n{}", transfers(document.transfers)))?;
    Ok(())
}

fn capabilities(document: &ProbeDocument<'_>) -> Table<4> {
    let left = Align::Left;
    let mut table = Table::new(["capability", "measured", "configured", "evidence"].map(|name| (name, left)));
    for finding in document.findings.iter() {
        let setting = document.assessment.setting_of(finding.capability);
        let configured = setting.map(|(setting, value)| match (value, finding.measured) {
            (true, CapabilityMeasurement::No) => format!("{setting} = true: DIFFERS"),
            (false, CapabilityMeasurement::Yes) => format!("{setting} = false: unused"),
            (value, _) => format!("{setting} = {value}"),
        });
        let (capability, measured) = (finding.capability.as_str(), finding.measured.as_str());
        table.row([capability, measured, configured.as_deref().unwrap_or_default(), &finding.evidence]);
    }
    table
}

fn clock(clock: Option<ClockOffset>) -> String {
    match clock {
        Some(ClockOffset { ahead_ms: Some(ahead), uncertainty_ms: Some(uncertainty), .. }) => {
            let side = if ahead < 0 { "behind" } else { "ahead of" };
            let offset = ahead.unsigned_abs();
            format!(
                "the switch's clock (Date header) is {offset} ms {side} ours, +/- {uncertainty} ms; deadlines follow the \
                 switch's clock"
            )
        }
        Some(_) => "the switch sends no Date header: deadlines cannot follow the switch's clock".into(),
        None => "the switch's clock was not measured".into(),
    }
}

fn strategies(assessment: &ProfileAssessment, configured: &str) -> Table<4> {
    let left = Align::Left;
    let mut table = Table::new(["strategy", "assessment", "", "remark"].map(|name| (name, left)));
    for assessed in &assessment.strategies {
        let mark = if assessed.strategy.as_str() == configured { "configured" } else { "" };
        let safe = if assessed.safe { "safe" } else { "unsafe" };
        table.row([assessed.strategy.as_str(), safe, mark, &assessed.remarks.join("; ")]);
    }
    table
}

fn changes(assessment: &ProfileAssessment) -> String {
    let changes = match &assessment.changes {
        Some(changes) if changes.is_empty() => {
            "the configured profile is safe by these measurements; no change is needed".into()
        }
        Some(changes) => format!("nearest safe profile: {}", changes.join(", ")),
        None => "no profile is safe at this switch".into(),
    };
    match assessment.not_measured.as_slice() {
        [] => changes,
        settings => {
            format!(
                "{changes}\nthe profile relies on settings that were not measured: {}",
                settings.join(", ")
            )
        }
    }
}

fn rails(rails: &[Rail], traits: &RailTraits) -> String {
    let time = match (traits.refuses_early_query, traits.first_query_after_ms) {
        (Some(true), Some(ms)) => format!("; it answered the first query {ms} ms after the submit"),
        (Some(true), None) => "; it answered no query within the time of the probe".into(),
        (Some(false) | None, _) => String::new(),
    };
    let names: Vec<&str> = rails.iter().map(|rail| rail.as_str()).collect();
    match names.is_empty() {
        true => format!("the switch behaves like no shipped rail{time}"),
        false => format!("the switch behaves like the shipped rail {}{time}", names.join(" or ")),
    }
}

fn transfers(transfers: &[ProbeTransferView]) -> String {
    let lines = transfers.iter().map(|transfer| {
        let id = transfer.transfer_id.as_ref().map(|id| format!(" (transfer id {id})")).unwrap_or_default();
        format!("{}{id}: {}", transfer.reference, transfer.status)
    });
    let lines: Vec<String> = lines.collect();
    match lines.is_empty() {
        true => "probe transfers at the switch: none".into(),
        false => format!("probe transfers at the switch:\n  {}", lines.join("\n  ")),
    }
}
