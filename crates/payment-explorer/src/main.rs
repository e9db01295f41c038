//! `explore`: walks the protocol through every order of events, and says what it met.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use payment_explorer::model::{Bounds, Model};
use payment_explorer::search::{self, Sequence};
use payment_explorer::tiers::{self, Broken, Found, Walk};
use payment_explorer::{profiles, tally};

/// Walks the payment protocol's own code through every order of events.
///
/// Ends with one line: paths P states S outcomes O/O branches B/B violations V. Exit code 1 where something
/// does not hold or was cut off, and where the fast tier did not meet exactly what it must.
#[derive(Debug, Parser)]
struct Args {
    /// Walk further: an hour or more instead of half a minute
    #[arg(long)]
    deep: bool,
    /// Walk this profile alone, like `query:query+dedup+cancel+callback`; repeatable
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    /// With --profile or --replay: faults in one sequence
    #[arg(long, default_value_t = 1)]
    faults: u8,
    /// With --profile or --replay: wrong words of the switch in one sequence
    #[arg(long, default_value_t = 0)]
    words: u8,
    /// With --profile or --replay: decisions of people in one sequence
    #[arg(long, default_value_t = 1)]
    decisions: u8,
    /// Tell a sequence in words, as a violation printed it: needs --profile
    #[arg(long, value_name = "SEQUENCE", requires = "profile")]
    replay: Option<Sequence>,
    /// List every branch and end, with how often it was met
    #[arg(long)]
    list: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let walks = if !args.profile.is_empty() {
        let walk =
            |name: &String| Ok(Walk::new(profiles::named(name)?, args.faults, args.words, args.decisions));
        args.profile.iter().map(walk).collect::<anyhow::Result<Vec<_>>>()?
    } else if args.deep {
        tiers::deep()?
    } else {
        tiers::fast()?
    };
    let mut out = String::new();
    if let (Some(sequence), Some(walk)) = (&args.replay, walks.first()) {
        let model = Model::new(walk.profile.clone(), walk.bounds)?;
        // The numbers of a sequence are those of a model that has walked.
        let _ = search::search(&model, &walk.beginnings(), walk.states_max);
        let told = search::tell(&model, &walk.beginnings(), sequence);
        tell(
            &mut out,
            told.as_ref().context("there is no such sequence with this profile and these bounds")?,
        )?;
        std::io::stdout().write_all(out.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let all = walks.len();
    let found = tiers::walk_all(&walks, &|done, walk, one| {
        let mut stderr = std::io::stderr().lock();
        let name = profiles::name(&walk.profile);
        let Bounds { faults, words, decisions, .. } = walk.bounds;
        let _ = writeln!(
            stderr,
            "{done}/{all} {name}, faults {faults} words {words} decisions {decisions}: {} states",
            one.states
        );
    });
    let fast = args.profile.is_empty() && !args.deep;
    let holds = report(&mut out, &found, fast, args.list)?;
    std::io::stdout().write_all(out.as_bytes())?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what was found; whether everything holds and, for the fast tier, exactly what is listed was met.
fn report(out: &mut String, found: &Found, fast: bool, list: bool) -> anyhow::Result<bool> {
    for Broken { walk, violation, sequence, told } in &found.violations {
        let (name, bounds) = (profiles::name(&walk.profile), walk.bounds);
        writeln!(out, "\n{} does not hold: {}", violation.number, violation.says)?;
        if let Some(told) = told {
            tell(out, told)?;
        }
        writeln!(
            out,
            "replay: ./dev explore --profile {name} --faults {} --words {} --decisions {} --replay {sequence}",
            bounds.faults, bounds.words, bounds.decisions
        )?;
    }
    let missing = |all: &[&str], met: &std::collections::BTreeMap<String, u64>| -> Vec<String> {
        all.iter().filter(|name| !met.contains_key(**name)).map(|name| (*name).to_owned()).collect()
    };
    let (ends, branches) = (missing(tally::ENDS, &found.ends), missing(tally::BRANCHES, &found.branches));
    let known = |name: &str| tally::BRANCHES.contains(&name) || tally::DEEPER.contains(&name);
    let unlisted: Vec<&String> = found
        .ends
        .keys()
        .filter(|name| !tally::ENDS.contains(&name.as_str()))
        .chain(found.branches.keys().filter(|name| !known(name)))
        .collect();
    if list {
        for (name, times) in found.ends.iter().chain(&found.branches) {
            writeln!(out, "{times:>12} {name}")?;
        }
    }
    if fast {
        for name in ends.iter().chain(&branches) {
            writeln!(out, "not met: {name}")?;
        }
    }
    for name in &unlisted {
        writeln!(out, "met, and not in the list: {name}")?;
    }
    for name in &found.cut_off {
        writeln!(out, "cut off: {name}")?;
    }
    writeln!(
        out,
        "paths {} states {} outcomes {}/{} branches {}/{} violations {}",
        found.paths,
        found.states,
        tally::ENDS.len() - ends.len(),
        tally::ENDS.len(),
        tally::BRANCHES.len() - branches.len(),
        tally::BRANCHES.len(),
        found.violations.len()
    )?;
    let met = !fast || (ends.is_empty() && branches.is_empty() && unlisted.is_empty());
    Ok(found.violations.is_empty() && found.cut_off.is_empty() && met)
}

/// Tells a sequence in words.
fn tell(out: &mut String, told: &[String]) -> anyhow::Result<()> {
    for (n, step) in told.iter().enumerate() {
        writeln!(out, "{n:>4}  {step}")?;
    }
    Ok(())
}
