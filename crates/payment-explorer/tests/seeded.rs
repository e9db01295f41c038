//! Every seeded bug of the protocol turns the exploration red, with the shortest sequence. That is what proves
//! that the exploration looks everywhere: a state pruned too early would hide one of them.
//!
//! A bug is a patch in `planted/`, against the protocol's own sources; its heading says which invariant must
//! break on which walk. For each, a mutated copy of the protocol is built with the explorer, all in one
//! workspace of their own below cargo's target folder, and the walk is made. Where a patch no longer fits the
//! sources, it must be written anew.

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

struct Bug {
    name: String,
    patch: PathBuf,
    what: String,
    breaks: String,
    walk: Vec<String>,
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn bugs() -> Vec<Bug> {
    let mut bugs: Vec<Bug> = fs::read_dir(crates().join("payment-explorer/seeded"))
        .unwrap()
        .map(|entry| {
            let patch = entry.unwrap().path();
            let text = fs::read_to_string(&patch).unwrap();
            let field = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name))
                    .unwrap_or_else(|| panic!("{} has no {name:?}", patch.display()))
                    .trim()
                    .to_owned()
            };
            Bug {
                name: patch.file_stem().unwrap().to_str().unwrap().to_owned(),
                what: text.lines().next().unwrap().to_owned(),
                breaks: field("Broken:"),
                walk: field("Walk:").split_whitespace().map(str::to_owned).collect(),
                patch,
            }
        })
        .collect();
    bugs.sort_by(|a, b| a.name.cmp(&b.name));
    bugs
}

/// The root manifest's tables that members inherit from.
fn inherited(root: &str) -> &str {
    let from = root.find("[workspace.package]").unwrap();
    let to = root.find("[workspace.lints").unwrap();
    &root[from..to]
}

/// One mutated protocol, and the explorer over it.
fn plant(house: &Path, bug: &Bug) {
    let home = house.join(&bug.name);
    for (name, source) in [("protocol", "payment-protocol"), ("explorer", "payment-explorer")] {
        let to = home.join("crates").join(source);
        copy(&crates().join(source).join("src"), &to.join("src"));
        let manifest = fs::read_to_string(crates().join(source).join("Cargo.toml")).unwrap();
        let (dependencies, library) = (manifest.find("[dependencies]").unwrap(), source.replace('-', "_"));
        let end = manifest.find("[dev-dependencies]").unwrap_or(manifest.len());
        let mut own = format!(
            "[package]\nname = \"{}-{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[lib]\nname = \"{library}\"\n\n",
            bug.name
        );
        if name == "explorer" {
            write!(own, "[[bin]]\nname = \"{}\"\npath = \"src/main.rs\"\n\n", bug.name).unwrap();
        }
        let mutated = format!("package = \"{}-protocol\", path = \"../payment-protocol\"", bug.name);
        own += &manifest[dependencies..end]
            .replace("payment-protocol.workspace = true", &format!("payment-protocol = {{ {mutated} }}"));
        fs::write(to.join("Cargo.toml"), own).unwrap();
    }
    let applied = Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .arg(&bug.patch)
        .current_dir(&home)
        // Not inside any repository: the patch is for this folder.
        .env("GIT_CEILING_DIRECTORIES", house)
        .output()
        .unwrap();
    assert!(
        applied.status.success(),
        "{} no longer fits the protocol; write it anew: {}",
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

/// Builds every mutant at once, so that cargo fills the machine; gives the folder of the programs.
fn build(bugs: &[Bug]) -> PathBuf {
    let house = Path::new(env!("CARGO_TARGET_TMPDIR")).join("seeded");
    let sources = house.join("sources");
    if sources.exists() {
        fs::remove_dir_all(&sources).unwrap();
    }
    fs::create_dir_all(&sources).unwrap();
    for bug in bugs {
        plant(&sources, bug);
    }
    let root = crates().parent().unwrap().to_owned();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let text = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"*/crates/*\"]\n\n{}\n[profile.dev]\ndebug = false\nopt-level = 1\n",
        inherited(&manifest).replace("path = \"crates", "path = \"unused")
    );
    fs::write(sources.join("Cargo.toml"), text).unwrap();
    fs::copy(root.join("Cargo.lock"), sources.join("Cargo.lock")).unwrap();
    let target = house.join("target");
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

#[test]
fn r38_every_planted_bug_of_the_protocol_is_found() {
    let bugs = bugs();
    let programs = build(&bugs);
    let mut wrong = Vec::new();
    for bug in &bugs {
        let walked = Command::new(programs.join(&bug.name)).args(&bug.walk).output().unwrap();
        let said = String::from_utf8_lossy(&walked.stdout).into_owned();
        let found = said.contains(&format!("\n{} does not hold", bug.breaks));
        let steps = said
            .lines()
            .filter(|line| line.starts_with("  ") && line.trim_start().starts_with(char::is_numeric));
        println!("{:<44} {:<4} in {:>2} steps: {}", bug.name, bug.breaks, steps.count(), bug.what);
        if walked.status.success() || !found {
            wrong.push(format!("{}: {} was to break\n{said}", bug.name, bug.breaks));
        }
    }
    // The same walks over the protocol as it is: what was found is the bug's. Those that take minutes are made by
    // `./dev explore --deep` alone.
    let short = |walk: &&Vec<String>| {
        walk.join(" ").contains("--faults 0") || walk.join(" ").contains("--decisions 0")
    };
    for walk in bugs.iter().map(|bug| &bug.walk).filter(short).collect::<BTreeSet<_>>() {
        let sound = Command::new(env!("CARGO_BIN_EXE_explore")).args(walk).output().unwrap();
        if !sound.status.success() {
            wrong.push(format!("{walk:?} is red without a bug\n{}", String::from_utf8_lossy(&sound.stdout)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
