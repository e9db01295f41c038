//! The exploration finds every seeded bug of the protocol, with the shortest sequence. This shows that the
//! exploration is complete: a state that is wrongly pruned would hide one of the bugs.
//!
//! A bug is a patch in `seeded/` against the protocol's own sources; its heading says which invariant must be
//! violated on which walk. A patch changes the bodies of functions, or adds functions; one that no longer applies must be written again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

mod mutants;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use mutants::{Mutants, crates};
use payment_explorer::profiles;
use payment_explorer::tiers::{self, Walk};

struct Bug {
    name: String,
    patch: PathBuf,
    description: String,
    violates: String,
    walk: Vec<String>,
}

fn bugs() -> Vec<Bug> {
    let mut bugs: Vec<Bug> = fs::read_dir(crates().join("payment-explorer/seeded"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "patch"))
        .map(|patch| {
            let text = fs::read_to_string(&patch).unwrap();
            let field = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap_or_else(|| panic!("{} has no field {name:?}", patch.display()))
                    .trim()
                    .to_owned()
            };
            Bug {
                name: patch.file_stem().unwrap().to_str().unwrap().to_owned(),
                description: text.lines().next().unwrap().to_owned(),
                violates: field("Violates:"),
                walk: field("Walk:").split_whitespace().map(str::to_owned).collect(),
                patch,
            }
        })
        .collect();
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    bugs
}

/// Runs `work` for each item, as many at once as there are cores; the results are in the order of the items. A walk uses one core.
fn on_every_core<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let run = || {
        let taken = std::iter::from_fn(|| {
            let n = next.fetch_add(1, Ordering::Relaxed);
            items.get(n).map(|item| (n, work(item)))
        });
        taken.collect::<Vec<_>>()
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let mut results: Vec<(usize, R)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(run)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    results.sort_by_key(|(n, _)| *n);
    results.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn r38_the_explorer_finds_every_seeded_bug_of_the_protocol() {
    let bugs = bugs();
    let mutants = Mutants::build(bugs.iter().map(|bug| (bug.name.as_str(), bug.patch.as_path())));
    let (mut wrong, mut sequences) = (Vec::new(), Vec::new());
    let outputs = on_every_core(&bugs, |bug| mutants.walk(&bug.name, &bug.walk));
    for (bug, walked) in bugs.iter().zip(outputs) {
        let output = String::from_utf8_lossy(&walked.stdout).into_owned();
        let found = output.contains(&format!("\n{} does not hold", bug.violates));
        let steps = steps(&output);
        println!("{:<48} {:<4} in {:>2} steps: {}", bug.name, bug.violates, steps.len(), bug.description);
        sequences.push(serde_json::json!({
            "name": bug.name,
            "description": bug.description,
            "violates": bug.violates,
            "invariant": invariant(&output, &bug.violates),
            "profile": bug.walk[1],
            "steps": steps,
        }));
        if walked.status.success() || !found {
            wrong.push(format!("{}: expected a violation of {}, got\n{output}", bug.name, bug.violates));
        }
    }
    // The same walks over the unchanged protocol must pass, so that each violation is caused by its bug. Those of the fast tier are
    // walked by `tier.rs`, in a long run if not in every one; walks of several minutes are left to `./dev explore --deep`.
    let tier: BTreeSet<_> = tiers::fast().unwrap().iter().map(options_of).collect();
    let short = |walk: &&Vec<String>| {
        let joined = walk.join(" ");
        let one_kind = joined.contains("--faults 0") || joined.contains("--decisions 0");
        let walked = tier.contains(&options(&joined));
        one_kind && !joined.contains("--faults 1 --switch-faults 1") && !walked
    };
    let walks: BTreeSet<_> = bugs.iter().map(|bug| &bug.walk).filter(short).collect();
    let walks: Vec<_> = walks.into_iter().collect();
    let outputs = on_every_core(&walks, |walk| {
        Command::new(env!("CARGO_BIN_EXE_explore")).args(*walk).output().unwrap()
    });
    for (walk, unchanged) in walks.iter().zip(outputs) {
        if !unchanged.status.success() {
            let output = String::from_utf8_lossy(&unchanged.stdout);
            wrong.push(format!("{walk:?} fails without a bug\n{output}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    compare_with_recorded(&sequences);
}

/// The options of a walk, whatever their order.
fn options(walk: &str) -> BTreeSet<String> {
    walk.split("--").map(|option| option.trim().to_owned()).collect()
}

fn options_of(walk: &Walk) -> BTreeSet<String> {
    options(&format!("--profile {} {}", profiles::name(&walk.profile), walk.bounds))
}

/// The numbered lines of a violation: the moves, and the books at the end.
fn steps(output: &str) -> Vec<&str> {
    let numbered = output.lines().filter_map(|line| line.strip_prefix("  ")?.trim_start().split_once("  "));
    numbered.filter(|(number, _)| number.parse::<u16>().is_ok()).map(|(_, step)| step).collect()
}

fn invariant<'o>(output: &'o str, number: &str) -> &'o str {
    let heading = format!("{number} does not hold: ");
    output.lines().find_map(|line| line.strip_prefix(heading.as_str())).unwrap_or_default()
}

/// The playground plays the recorded sequences.
fn compare_with_recorded(sequences: &[serde_json::Value]) {
    let path = crates().join("payment-explorer/seeded/sequences.json");
    let found = format!("{}\n", serde_json::to_string_pretty(sequences).unwrap());
    if std::env::var_os("UPDATE_SEQUENCES").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let recorded = fs::read_to_string(&path).unwrap();
    assert!(
        recorded == found,
        "the shortest sequences are not those in {}; record them again: UPDATE_SEQUENCES=1 cargo test -p payment-explorer --test seeded",
        path.display()
    );
}
