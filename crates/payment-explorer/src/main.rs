//! `explore`: walks the protocol through every order of events, and reports what it reached.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use payment_explorer::model::Model;
use payment_explorer::search::{self, Sequence};
use payment_explorer::tiers::{self, Counterexample, Summary, Walk};
use payment_explorer::{coverage, profiles};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Walks the payment protocol's own code through every order of events.
///
/// The last line of the output is: paths P states S outcomes O/O branches B/B violations V. The exit code is 1 if
/// an invariant does not hold, if a walk was cut off, or if the fast tier did not reach exactly the listed
/// outcomes and branches.
#[derive(Debug, Parser)]
struct Args {
    /// Walk further: the long list of walks, for hours, instead of the short one, for minutes
    #[arg(long)]
    deep: bool,
    /// Walk less: of the short list most of those with one kind of trouble at a time, as `./dev test` does; they do not reach every branch
    #[arg(long, conflicts_with_all = ["deep", "profile"])]
    short: bool,
    /// With --deep: only these walks of its list, like 1-40, so that a long run can be made in parts
    #[arg(long, value_name = "FIRST-LAST", requires = "deep", conflicts_with = "profile")]
    walks: Option<Part>,
    /// Walk only this profile, like `query:query+dedup+cancel+callback`; repeatable
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    /// With --profile or --replay: faults of our machines and of the network in one sequence
    #[arg(long, default_value_t = 1)]
    faults: u8,
    /// With --profile or --replay: false, misdirected and mismatching messages of the switch in one sequence
    #[arg(long, default_value_t = 0)]
    switch_faults: u8,
    /// With --profile or --replay: confirmed commits of our ledger that are lost in one sequence
    #[arg(long, default_value_t = 0)]
    lost_commits: u8,
    /// With --profile or --replay: failovers of our ledger to a standby that has fallen behind in one sequence
    #[arg(long, default_value_t = 0)]
    failovers: u8,
    /// With --profile or --replay: runs that go on beside a restored Temporal or a recovery in one sequence
    #[arg(long, default_value_t = 0)]
    second_runs: u8,
    /// With --profile or --replay: other payments to the same account, with strategy validate, in one sequence
    #[arg(long, default_value_t = 0)]
    second_payments: u8,
    /// With --profile or --replay: decisions on false evidence in one sequence
    #[arg(long, default_value_t = 0)]
    false_decisions: u8,
    /// With --profile or --replay: how many of these in one sequence: a customer's cancel, a freeze, a start after valid_until
    #[arg(long, default_value_t = 3)]
    events: u8,
    /// With --profile or --replay: operator decisions in one sequence
    #[arg(long, default_value_t = 1)]
    decisions: u8,
    /// Describe a sequence that a violation printed; needs --profile
    #[arg(long, value_name = "SEQUENCE", requires = "profile")]
    replay: Option<Sequence>,
    /// List every branch and outcome, and how often it was reached
    #[arg(long)]
    list: bool,
}

/// A part of a tier's list of walks, counted from 1.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: usize,
    last: usize,
}

impl std::str::FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (first, last) = text.split_once('-').context("use the form 1-40")?;
        let part = Self { first: first.parse()?, last: last.parse()? };
        anyhow::ensure!(
            part.first >= 1 && part.last >= part.first,
            "the first walk is 1, and none is after the last"
        );
        Ok(part)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let walks = if !args.profile.is_empty() {
        let walk = |name: &String| {
            Ok(Walk::new(profiles::named(name)?, args.faults, args.switch_faults, args.decisions)
                .with_lost_commits(args.lost_commits)
                .with_failovers(args.failovers)
                .with_second_runs(args.second_runs)
                .with_false_decisions(args.false_decisions)
                .with_second_payments(args.second_payments)
                .with_events(args.events))
        };
        args.profile.iter().map(walk).collect::<anyhow::Result<Vec<_>>>()?
    } else if args.deep {
        let mut walks = tiers::deep()?;
        if let Some(Part { first, last }) = args.walks {
            anyhow::ensure!(last <= walks.len(), "--walks: the deep tier has {} walks", walks.len());
            walks = walks.drain(first - 1..last).collect();
        }
        walks
    } else if args.short {
        tiers::short()?
    } else {
        tiers::fast()?
    };
    let mut out = String::new();
    if let (Some(sequence), Some(walk)) = (&args.replay, walks.first()) {
        replay(&mut out, sequence, walk)?;
        std::io::stdout().write_all(out.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = walks.len();
    let summary = tiers::walk_all(&walks, &|done, walk, result| {
        let mut stderr = std::io::stderr().lock();
        let name = profiles::name(&walk.profile);
        // At once: the report comes after the last walk, which may be hours away or never.
        let end = match (&result.violation, result.cut_off) {
            (Some(_), _) => "an invariant does not hold",
            (None, true) => "cut off",
            (None, false) => "no violation",
        };
        let _ = writeln!(
            stderr,
            "{done}/{all} --profile {name} {}: {} states, {end}",
            walk.bounds, result.states
        );
    });
    let fast = args.profile.is_empty() && !args.deep && !args.short;
    let passed = report(&mut out, &summary, fast, args.list, &bounds(fast, args.deep))?;
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Describes a sequence.
fn replay(out: &mut String, sequence: &Sequence, walk: &Walk) -> anyhow::Result<()> {
    let model = Model::new(walk.profile.clone(), walk.bounds)?;
    // The numbers of a sequence are valid for a model whose search has completed.
    let _ = search::search(&model, &walk.first_states(), walk.states_max);
    let description = search::describe(&model, &walk.first_states(), sequence)
        .context("the profile and bounds have no sequence of moves with these numbers; replay with the arguments that were printed with it")?;
    write_lines(out, &description)
}

/// What the walks of a tier leave out, in words.
fn bounds(fast: bool, deep: bool) -> Vec<String> {
    let left = tiers::LEFT_TO_DEEP.iter().filter(|_| fast).map(|name| format!("left to --deep: {name}"));
    let not_walked = tiers::NOT_WALKED.iter().filter(|_| fast || deep);
    left.chain(not_walked.map(|name| format!("not walked: {name}"))).collect()
}

/// Reports the results, and what `left_out` says. Returns whether everything holds and, for the fast tier, exactly the listed names were
/// reached.
fn report(
    out: &mut String,
    summary: &Summary,
    fast: bool,
    list: bool,
    left_out: &[String],
) -> anyhow::Result<bool> {
    for violation in &summary.violations {
        report_violation(out, violation)?;
    }
    let missing = |all: &[&str], reached: &BTreeMap<String, u64>| -> Vec<String> {
        all.iter().filter(|name| !reached.contains_key(**name)).map(|name| (*name).to_owned()).collect()
    };
    let outcomes = missing(coverage::OUTCOMES, &summary.outcomes);
    let branches = missing(coverage::BRANCHES, &summary.branches);
    let listed = |name: &str| coverage::BRANCHES.contains(&name) || coverage::DEEP_BRANCHES.contains(&name);
    let unlisted: Vec<&String> = summary
        .outcomes
        .keys()
        .filter(|name| !coverage::OUTCOMES.contains(&name.as_str()))
        .chain(summary.branches.keys().filter(|name| !listed(name)))
        .collect();
    if list {
        for (name, times) in summary.outcomes.iter().chain(&summary.branches) {
            writeln!(out, "{times:>12} {name}")?;
        }
    }
    if fast {
        for name in outcomes.iter().chain(&branches) {
            writeln!(out, "not reached: {name}")?;
        }
    }
    for name in &unlisted {
        writeln!(out, "reached, but not listed: {name}")?;
    }
    for name in &summary.cut_off {
        writeln!(out, "cut off: {name}")?;
    }
    for line in left_out {
        writeln!(out, "{line}")?;
    }
    writeln!(
        out,
        "paths {} states {} outcomes {}/{} branches {}/{} violations {}",
        summary.paths,
        summary.states,
        coverage::OUTCOMES.len() - outcomes.len(),
        coverage::OUTCOMES.len(),
        coverage::BRANCHES.len() - branches.len(),
        coverage::BRANCHES.len(),
        summary.violations.len()
    )?;
    let complete = unlisted.is_empty() && (!fast || outcomes.is_empty() && branches.is_empty());
    Ok(summary.violations.is_empty() && summary.cut_off.is_empty() && complete)
}

fn report_violation(out: &mut String, counterexample: &Counterexample) -> anyhow::Result<()> {
    let Counterexample { walk, violation, sequence, description } = counterexample;
    let (name, bounds) = (profiles::name(&walk.profile), walk.bounds);
    writeln!(out, "\n{} does not hold: {}", violation.number, violation.invariant)?;
    if let Some(description) = description {
        write_lines(out, description)?;
    }
    writeln!(out, "replay: ./dev explore --profile {name} {bounds} --replay {sequence}")?;
    Ok(())
}

/// Writes numbered lines.
fn write_lines(out: &mut String, lines: &[String]) -> anyhow::Result<()> {
    for (n, line) in lines.iter().enumerate() {
        writeln!(out, "{n:>4}  {line}")?;
    }
    Ok(())
}
