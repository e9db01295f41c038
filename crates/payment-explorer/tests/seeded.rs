//! The exploration finds every seeded bug of the protocol, with the shortest sequence. This shows that the
//! exploration is complete: a state that is wrongly pruned would hide one of the bugs.
//!
//! A bug is a patch in `seeded/` against the protocol's own sources; its heading says which invariant must be
//! violated on which walk. For each bug, the test builds a mutated copy of the protocol with the explorer, all in
//! one workspace below cargo's target folder, and makes the walk. A patch that no longer applies must be written
//! again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on fails"
)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

struct Bug {
    name: String,
    patch: PathBuf,
    description: String,
    violates: String,
    walk: Vec<String>,
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
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

/// The tables of the root manifest that members inherit from.
fn inherited(root: &str) -> &str {
    let from = root.find("[workspace.package]").unwrap();
    let to = root.find("[workspace.lints").unwrap();
    &root[from..to]
}

/// Writes one mutated protocol, with the explorer, to a folder of its own.
fn mutate(sources: &Path, bug: &Bug) {
    let home = sources.join(&bug.name);
    for (name, source) in [("protocol", "payment-protocol"), ("explorer", "payment-explorer")] {
        let to = home.join("crates").join(source);
        copy(&crates().join(source).join("src"), &to.join("src"));
        let manifest = fs::read_to_string(crates().join(source).join("Cargo.toml")).unwrap();
        let (dependencies, library) = (manifest.find("[dependencies]").unwrap(), source.replace('-', "_"));
        let end = manifest.find("[dev-dependencies]").unwrap_or(manifest.len());
        let mut mutated = format!(
            "[package]\nname = \"{}-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[lib]\nname = \"{library}\"\n\n",
            bug.name
        );
        if name == "explorer" {
            write!(mutated, "[[bin]]\nname = \"{}\"\npath = \"src/main.rs\"\n\n", bug.name).unwrap();
        }
        let protocol = format!("package = \"{}-protocol\", path = \"../payment-protocol\"", bug.name);
        mutated += &manifest[dependencies..end]
            .replace("payment-protocol.workspace = true", &format!("payment-protocol = {{ {protocol} }}"));
        fs::write(to.join("Cargo.toml"), mutated).unwrap();
    }
    let applied = Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .arg(&bug.patch)
        .current_dir(&home)
        // The patch applies to this folder, not to a repository above it.
        .env("GIT_CEILING_DIRECTORIES", sources)
        .output()
        .unwrap();
    assert!(
        applied.status.success(),
        "the patch {} no longer applies to the protocol; write the patch again: {}",
        bug.name,
        String::from_utf8_lossy(&applied.stderr)
    );
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Builds every mutant in one run, so that cargo uses every core. Returns the folder of the programs.
fn build(bugs: &[Bug]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("seeded");
    let sources = folder.join("sources");
    if sources.exists() {
        fs::remove_dir_all(&sources).unwrap();
    }
    fs::create_dir_all(&sources).unwrap();
    for bug in bugs {
        mutate(&sources, bug);
    }
    let root = crates().parent().unwrap().to_owned();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let text = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"*/crates/*\"]\n\n{}\n[profile.dev]\ndebug = false\nincremental = false\nopt-level = 1\n",
        inherited(&manifest).replace("path = \"crates", "path = \"unused")
    );
    fs::write(sources.join("Cargo.toml"), text).unwrap();
    fs::copy(root.join("Cargo.lock"), sources.join("Cargo.lock")).unwrap();
    let target = folder.join("target");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--offline", "--workspace", "--bins"])
        .current_dir(&sources)
        .env("CARGO_TARGET_DIR", &target)
        .env("RUSTFLAGS", "-Awarnings")
        .output()
        .unwrap();
    assert!(built.status.success(), "the mutants do not build: {}", String::from_utf8_lossy(&built.stderr));
    target.join("debug")
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
    let programs = build(&bugs);
    let (mut wrong, mut sequences) = (Vec::new(), Vec::new());
    let outputs =
        on_every_core(&bugs, |bug| Command::new(programs.join(&bug.name)).args(&bug.walk).output().unwrap());
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
    // The same walks over the unchanged protocol must pass, so that each violation is caused by its bug. Walks of
    // several minutes are left to `./dev explore --deep`.
    let short = |walk: &&Vec<String>| {
        walk.join(" ").contains("--faults 0") || walk.join(" ").contains("--decisions 0")
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
