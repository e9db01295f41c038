//! `payctl switch probe`: what a configured switch can do, beside what its profile says.

use payment_protocol::ids::{AccountId, SwitchName};
use payment_protocol::money::parse_currency;
use serde::Serialize;

use crate::bank::BankArgs;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};
use crate::probe::{Clock, Findings, Judged, Left, Measured, Order, Probe, Wire, is_loopback, judge};
use crate::table::{Align, Table};

/// Find out what a switch can do, with transfers of the smallest amount
///
/// Probe transfers have references of their own and are cancelled again where the switch can; what stays in its
/// book is named. Exit code 1: the profile counts on something that the switch was seen not to do, or is not
/// safe, or a transfer could not be taken back. 3: what it counts on could not be seen.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    bank: BankArgs,
    /// Its name in the configuration
    #[arg(value_parser = super::super::id::<SwitchName>)]
    name: SwitchName,
    /// The account that is paid, should a transfer not be stopped
    #[arg(long, value_name = "ACCOUNT", default_value = "PAYCTL-PROBE", value_parser = super::super::id::<AccountId>)]
    creditor: AccountId,
    /// ISO 4217 code; the amount is its smallest unit
    #[arg(long, default_value = "EUR", value_parser = parse_currency)]
    currency: iso_currency::Currency,
    /// Let one transfer settle, to see whether it can be recalled
    #[arg(long)]
    let_one_settle: bool,
    /// Really send transfers to a switch that is not on this machine
    #[arg(long)]
    yes: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What is printed for programs.
#[derive(Debug, Serialize)]
struct Document<'a> {
    switch: &'a SwitchName,
    base_url: &'a str,
    /// Whether the probe was interrupted.
    interrupted: bool,
    clock: Option<Clock>,
    findings: &'a Findings,
    judged: &'a Judged,
    left: &'a [Left],
}

pub(super) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let switch = args.bank.read()?.switch(&args.name)?;
    let base_url = &switch.options.base_url;
    anyhow::ensure!(
        args.yes || is_loopback(base_url),
        "{base_url} is not on this machine: up to five transfers of the smallest amount in {} to {} would be sent; \
         say --yes",
        args.currency.code(),
        args.creditor
    );
    let order = Order { creditor: args.creditor.to_string(), currency: args.currency.code().to_owned() };
    let run = uuid::Uuid::new_v4().simple().to_string();
    let mut probe = Probe::new(Wire::new(&switch.options, order)?, run[..12].to_owned());
    let interrupted = tokio::select! {
        measured = probe.measure(args.let_one_settle) => measured.map(|()| false)?,
        _ = tokio::signal::ctrl_c() => true,
    };
    probe.tidy().await;

    let judged = judge(&switch.profile, probe.findings());
    let (clock, left) = (probe.clock(), probe.left());
    let document = Document {
        switch: &args.name,
        base_url,
        interrupted,
        clock,
        findings: probe.findings(),
        judged: &judged,
        left: &left,
    };
    match args.json {
        true => out.json(&document)?,
        false => print(&document, switch.profile.strategy.as_str(), out)?,
    }
    anyhow::ensure!(!interrupted, "interrupted; what is shown is what was found until then");
    Ok(match (judged.is_safe() && !left.iter().any(|left| left.may_leave), judged.is_seen()) {
        (false, _) => Outcome::NotAsItShouldBe,
        (true, false) => Outcome::StillOpen,
        (true, true) => Outcome::Done,
    })
}

fn print(document: &Document<'_>, strategy: &str, out: &mut Out<'_>) -> anyhow::Result<()> {
    out.line(abilities(document))?;
    out.line(format_args!("\n{}", clock(document.clock)))?;
    out.line("for how long it remembers references cannot be seen from here")?;
    out.line(format_args!("\n{}", strategies(document.judged, strategy)))?;
    out.line(format_args!("\n{}", nearest(document.judged)))?;
    out.line(format_args!("\n{}", left(document.left)))?;
    Ok(())
}

fn abilities(document: &Document<'_>) -> Table<4> {
    let left = Align::Left;
    let mut table = Table::new(["it can", "measured", "configured", "seen by"].map(|name| (name, left)));
    for finding in document.findings.iter() {
        let configured = document.judged.setting_of(finding.ability);
        let configured = configured.map(|(setting, says)| match (says, finding.measured) {
            (true, Measured::No) => format!("{setting} = true: DIFFERS"),
            (false, Measured::Yes) => format!("{setting} = false: not used"),
            (says, _) => format!("{setting} = {says}"),
        });
        let (can, measured) = (finding.ability.as_str(), finding.measured.as_str());
        table.row([can, measured, configured.as_deref().unwrap_or_default(), &finding.detail]);
    }
    table
}

fn clock(clock: Option<Clock>) -> String {
    match clock {
        Some(Clock { ahead_ms: Some(ahead), give_or_take_ms: Some(about), .. }) => {
            let side = if ahead < 0 { "behind" } else { "ahead of" };
            let apart = ahead.unsigned_abs();
            format!(
                "its clock (Date) is {apart} ms {side} ours, give or take {about} ms; deadlines follow its clock"
            )
        }
        Some(_) => "it sends no Date header: deadlines cannot be set on its clock".into(),
        None => "its clock was not heard".into(),
    }
}

fn strategies(judged: &Judged, configured: &str) -> Table<4> {
    let left = Align::Left;
    let mut table = Table::new(["strategy", "", "", "remark"].map(|name| (name, left)));
    for judgement in &judged.strategies {
        let mark = if judgement.strategy.as_str() == configured { "configured" } else { "" };
        let safe = if judgement.safe { "safe" } else { "not safe" };
        table.row([judgement.strategy.as_str(), safe, mark, &judgement.remarks.join("; ")]);
    }
    table
}

fn nearest(judged: &Judged) -> String {
    let nearest = match &judged.changes {
        Some(changes) if changes.is_empty() => {
            "nothing was seen to be missing that the configured profile counts on".into()
        }
        Some(changes) => format!("nearest safe profile: {}", changes.join(", ")),
        None => "no profile makes this switch safe".into(),
    };
    match judged.unseen.as_slice() {
        [] => nearest,
        unseen => format!("{nearest}\nit counts on these too, which were not seen: {}", unseen.join(", ")),
    }
}

fn left(left: &[Left]) -> String {
    let named = left.iter().map(|left| {
        let id = left.transfer_id.as_ref().map(|id| format!(" (its id {id})")).unwrap_or_default();
        format!("{}{id}: {}", left.reference, left.stands)
    });
    let named: Vec<String> = named.collect();
    match named.is_empty() {
        true => "left behind in its book: nothing".into(),
        false => format!("left behind in its book:\n  {}", named.join("\n  ")),
    }
}
