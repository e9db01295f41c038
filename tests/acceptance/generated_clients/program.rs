//! Starts the programs of the clients; compiles the TypeScript ones, with their types checked, once per test process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use testkit::environment::TestEnvironment;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// Time limit for the TypeScript compiler, which usually takes seconds.
const COMPILED_WITHIN: Duration = Duration::from_secs(300);

/// The compiled TypeScript client.
static TYPESCRIPT: OnceCell<PathBuf> = OnceCell::const_new();

/// The language of a client.
#[derive(Clone, Copy, Debug)]
pub(super) enum Language {
    TypeScript,
    Python,
}

/// What a program printed.
pub(super) struct Output {
    pub(super) is_success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The printed JSON object of a program that succeeded.
pub(super) struct Printed(Value);

impl Language {
    /// The command that starts a program of the client, for example `examples/retry-safe`, in a folder of its own.
    pub(super) async fn command(self, program: &str) -> anyhow::Result<Command> {
        let mut command = match self {
            Self::TypeScript => {
                let built = TYPESCRIPT.get_or_try_init(compile).await?;
                let mut command = Command::new(variable("TEST_NODE")?);
                command.arg(built.join("dist").join(program).with_extension("js"));
                command
            }
            Self::Python => {
                let client = clients().join("python");
                let mut command = Command::new(variable("TEST_PYTHON_CLIENT")?);
                command.arg(client.join(program.replace('-', "_")).with_extension("py"));
                command.env("PYTHONPATH", client).env("PYTHONDONTWRITEBYTECODE", "1");
                command
            }
        };
        command.current_dir(scratch_folder()?);
        Ok(command)
    }
}

impl Output {
    /// The printed object.
    ///
    /// # Errors
    /// If the program failed; the error has what it printed.
    pub(super) fn success(&self) -> anyhow::Result<Printed> {
        ensure!(self.is_success, "the client failed:\n{}\n{}", self.stdout, self.stderr);
        Ok(Printed(serde_json::from_str(&self.stdout).with_context(|| self.stdout.clone())?))
    }
}

impl Printed {
    /// A text field.
    pub(super) fn text(&self, field: &str) -> anyhow::Result<&str> {
        self.0[field].as_str().with_context(|| format!("the client printed no {field}: {}", self.0))
    }
}

/// The folder of the clients in the repository.
pub(super) fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients")
}

/// Node.js, the folder of the npm packages, and Python with the generator.
pub(super) fn generators() -> anyhow::Result<(OsString, OsString, OsString)> {
    Ok((variable("TEST_NODE")?, variable("TEST_NODE_MODULES")?, variable("TEST_PYTHON_CLIENT")?))
}

/// An empty folder that nothing else uses.
pub(super) fn scratch_folder() -> anyhow::Result<PathBuf> {
    let folder = TestEnvironment::load()?.scratch.join(format!("clients-{}", Uuid::new_v4().simple()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Starts a command whose output is read.
pub(super) fn spawn(command: &mut Command) -> anyhow::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().with_context(|| format!("{command:?} could not be started"))
}

/// Runs a command to its end.
pub(super) async fn output(mut command: Command, within: Duration) -> anyhow::Result<Output> {
    let output = tokio::time::timeout(within, spawn(&mut command)?.wait_with_output())
        .await
        .with_context(|| format!("{command:?} did not end within {within:?}"))??;
    Ok(Output {
        is_success: output.status.success(),
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Compiles a copy of the client beside the installed packages, so that none are installed into the repository.
async fn compile() -> anyhow::Result<PathBuf> {
    let (node, node_modules, _) = generators()?;
    let folder = scratch_folder()?;
    let client = clients().join("typescript");
    for file in ["package.json", "tsconfig.json"] {
        std::fs::copy(client.join(file), folder.join(file))?;
    }
    for part in ["src", "examples", "tests"] {
        std::fs::create_dir(folder.join(part))?;
        for entry in std::fs::read_dir(client.join(part))? {
            let entry = entry?;
            std::fs::copy(entry.path(), folder.join(part).join(entry.file_name()))?;
        }
    }
    std::os::unix::fs::symlink(&node_modules, folder.join("node_modules"))?;
    let mut compiler = Command::new(node);
    compiler.arg(Path::new(&node_modules).join("typescript/bin/tsc")).current_dir(&folder);
    let compiled = output(compiler, COMPILED_WITHIN).await?;
    ensure!(compiled.is_success, "the TypeScript client does not compile:\n{}", compiled.stdout);
    Ok(folder)
}

fn variable(name: &str) -> anyhow::Result<OsString> {
    std::env::var_os(name).with_context(|| {
        format!("{name} is not set: run the tests by `./dev test`, which installs what the clients need")
    })
}
