//! Builds the explorer once with every seeded bug, and runs it with one of them.
//!
//! A build for each bug would compile the protocol and the explorer some seventy times. Here, a function that patches change has every
//! body, and the program picks one by the name of the bug: `match crate::seeded_bug() { "a" => { .. } "b" => { .. } _ => { .. } }`.

use std::collections::BTreeMap;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use quote::ToTokens as _;
use syn::visit_mut::{self, VisitMut};
use syn::{Block, File, Item, Signature, parse_quote};

/// Names the bug that the program runs with; without it, the protocol is unchanged.
const SEEDED_BUG: &str = "SEEDED_BUG";

/// The crates that patches change.
const CRATES: [&str; 2] = ["payment-protocol", "payment-explorer"];

/// The explorer, built with every seeded bug.
pub(crate) struct Mutants {
    program: PathBuf,
}

impl Mutants {
    /// Makes a walk with one bug.
    pub(crate) fn walk(&self, bug: &str, walk: &[String]) -> Output {
        Command::new(&self.program).args(walk).env(SEEDED_BUG, bug).output().unwrap()
    }

    /// Builds the program from the sources of both crates and from the patches, each with the name of its bug.
    pub(crate) fn build<'b>(patches: impl Iterator<Item = (&'b str, &'b Path)>) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("seeded");
        let (sources, built_sources) = (folder.join("sources"), folder.join("built-sources"));
        if sources.exists() {
            fs::remove_dir_all(&sources).unwrap();
        }
        for name in CRATES {
            let (from, to) = (crates().join(name), sources.join("crates").join(name));
            copy(&from.join("src"), &to.join("src"));
            fs::copy(from.join("Cargo.toml"), to.join("Cargo.toml")).unwrap();
        }
        write_every_body(&sources, patches);
        for name in CRATES {
            let library = sources.join("crates").join(name).join("src/lib.rs");
            let mut file = parse(&library);
            file.items.push(parse_quote! {
                pub fn seeded_bug() -> &'static str {
                    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
                    NAME.get_or_init(|| std::env::var(#SEEDED_BUG).unwrap_or_default())
                }
            });
            fs::write(library, file.into_token_stream().to_string()).unwrap();
        }
        let root = crates().parent().unwrap().to_owned();
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let inherited = &manifest[manifest.find("[workspace.package]").unwrap()..];
        let workspace = format!("[workspace]\nresolver = \"3\"\nmembers = [\"crates/*\"]\n\n{inherited}");
        fs::write(sources.join("Cargo.toml"), workspace).unwrap();
        fs::copy(root.join("Cargo.lock"), sources.join("Cargo.lock")).unwrap();
        // Files that are as they were keep their time, so that cargo builds again what has changed.
        copy_differences(&sources, &built_sources);
        let target = folder.join("target");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--offline", "--bins"])
            .current_dir(&built_sources)
            .env("CARGO_TARGET_DIR", &target)
            .env("RUSTFLAGS", "-Awarnings")
            .output()
            .unwrap();
        assert!(
            built.status.success(),
            "the mutants do not build: {}",
            String::from_utf8_lossy(&built.stderr)
        );
        Self { program: target.join("debug/explore") }
    }
}

pub(crate) fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
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

/// Makes `to` the same as `from`, and writes only the files that differ.
fn copy_differences(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(to).unwrap().map(Result::unwrap) {
        if from.join(entry.file_name()).exists() {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_differences(&entry.path(), &to);
        } else if fs::read(&to).ok() != fs::read(entry.path()).ok() {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Rewrites each patched file, so that its functions have the bodies of all bugs.
fn write_every_body<'b>(sources: &Path, patches: impl Iterator<Item = (&'b str, &'b Path)>) {
    let mut files: BTreeMap<PathBuf, Bodies> = BTreeMap::new();
    for (bug, patch) in patches {
        let patched = patched_files(sources, patch);
        for file in &patched {
            files.entry(file.clone()).or_insert_with(|| Bodies::of(parse(file)));
        }
        git_apply(sources, patch, &[]);
        for file in &patched {
            let bodies = files.get_mut(file).unwrap();
            bodies.add(bug, parse(file));
        }
        git_apply(sources, patch, &["--reverse"]);
    }
    for (path, bodies) in files {
        fs::write(path, bodies.merged().into_token_stream().to_string()).unwrap();
    }
}

fn patched_files(sources: &Path, patch: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(patch).unwrap();
    text.lines().filter_map(|line| line.strip_prefix("+++ b/")).map(|file| sources.join(file)).collect()
}

fn git_apply(sources: &Path, patch: &Path, options: &[&str]) {
    let applied = Command::new("git")
        .args(["apply", "--whitespace=nowarn"])
        .args(options)
        .arg(patch)
        .current_dir(sources)
        // The patch applies to this folder, not to a repository above it.
        .env("GIT_CEILING_DIRECTORIES", sources)
        .output()
        .unwrap();
    assert!(
        applied.status.success(),
        "{} no longer applies to the protocol; write the patch again: {}",
        patch.display(),
        String::from_utf8_lossy(&applied.stderr)
    );
}

fn parse(path: &Path) -> File {
    syn::parse_file(&fs::read_to_string(path).unwrap()).unwrap()
}

/// One source file with the bodies that bugs give to its functions.
struct Bodies {
    original: File,
    unchanged: BTreeMap<String, Block>,
    /// The file without its bodies: what no patch may change.
    frame: File,
    /// By function.
    mutated: BTreeMap<String, Vec<(String, Block)>>,
    /// Functions that exist only with a bug.
    added: Vec<Item>,
}

impl Bodies {
    fn of(original: File) -> Self {
        let mut frame = original.clone();
        let unchanged = take_bodies(&mut frame);
        Self { original, unchanged, frame, mutated: BTreeMap::new(), added: Vec::new() }
    }

    fn add(&mut self, bug: &str, mut file: File) {
        let is_original = |item: &Item| match item {
            Item::Fn(function) => self.unchanged.contains_key(&function.sig.ident.to_string()),
            _ => true,
        };
        let (items, added) = mem::take(&mut file.items).into_iter().partition(is_original);
        file.items = items;
        self.added.extend::<Vec<_>>(added);
        let bodies = take_bodies(&mut file);
        assert!(
            file == self.frame,
            "{bug}: a patch may change the bodies of functions and add functions, nothing else"
        );
        for (function, body) in bodies {
            if self.unchanged[&function] != body {
                self.mutated.entry(function).or_default().push((bug.to_owned(), body));
            }
        }
    }

    fn merged(mut self) -> File {
        let mut merged = self.original;
        each_function(&mut merged, &mut |function, signature, unchanged| {
            let Some(bodies) = self.mutated.remove(&function) else { return };
            let (bugs, bodies): (Vec<_>, Vec<_>) = bodies.into_iter().unzip();
            // The choice reads the environment.
            signature.constness = None;
            *unchanged = parse_quote!({
                match crate::seeded_bug() {
                    #(#bugs => #bodies)*
                    _ => #unchanged
                }
            });
        });
        merged.items.append(&mut self.added);
        merged
    }
}

/// Leaves empty bodies.
fn take_bodies(file: &mut File) -> BTreeMap<String, Block> {
    let mut bodies = BTreeMap::new();
    each_function(file, &mut |function, _, body| {
        let taken = mem::replace(body, parse_quote!({}));
        assert!(bodies.insert(function.clone(), taken).is_none(), "{function} stands twice in one file");
    });
    bodies
}

/// Calls `each` with the name of every function and method, as in `impl State : is_final`, and with its parts.
fn each_function(file: &mut File, each: &mut dyn FnMut(String, &mut Signature, &mut Block)) {
    Functions { scope: String::new(), each }.visit_file_mut(file);
}

struct Functions<'f> {
    scope: String,
    each: &'f mut dyn FnMut(String, &mut Signature, &mut Block),
}

impl Functions<'_> {
    fn call(&mut self, signature: &mut Signature, body: &mut Block) {
        (self.each)(format!("{}{}", self.scope, signature.ident), signature, body);
    }

    fn within(&mut self, scope: &str, visit: impl FnOnce(&mut Self)) {
        let outer = self.scope.clone();
        self.scope += scope;
        self.scope += " : ";
        visit(self);
        self.scope = outer;
    }
}

impl VisitMut for Functions<'_> {
    fn visit_item_fn_mut(&mut self, function: &mut syn::ItemFn) {
        self.call(&mut function.sig, &mut function.block);
    }

    fn visit_impl_item_fn_mut(&mut self, method: &mut syn::ImplItemFn) {
        self.call(&mut method.sig, &mut method.block);
    }

    fn visit_trait_item_fn_mut(&mut self, method: &mut syn::TraitItemFn) {
        if let Some(body) = &mut method.default {
            self.call(&mut method.sig, body);
        }
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        let name = module.ident.to_string();
        self.within(&name, |functions| visit_mut::visit_item_mod_mut(functions, module));
    }

    fn visit_item_trait_mut(&mut self, declared: &mut syn::ItemTrait) {
        let name = declared.ident.to_string();
        self.within(&name, |functions| visit_mut::visit_item_trait_mut(functions, declared));
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        let implemented =
            block.trait_.as_ref().map(|(_, path, _)| format!("{} for ", path.to_token_stream()));
        let name = format!("impl {}{}", implemented.unwrap_or_default(), block.self_ty.to_token_stream());
        self.within(&name, |functions| visit_mut::visit_item_impl_mut(functions, block));
    }
}
