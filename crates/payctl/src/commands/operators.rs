//! `payctl operators`: who may log in at operator-api, and with which roles.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use payment_ledger::access::operators::{
    ChangeOperatorOutcome, NewOperatorOutcome, OperatorRole, OperatorView, Password,
};
use payment_ledger::operator::decisions::validate_operator_name;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use service_kit::published;

use crate::api_key::random_hex;
use crate::database::DatabaseArgs;
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Random bytes of a generated password.
const PASSWORD_BYTES: usize = 16;

/// Create operators, who log in at operator-api, change what they may do, and disable them
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
    SetRoles(SetRolesArgs),
    ResetPassword(ResetPasswordArgs),
    Disable(DisableArgs),
    List(ListArgs),
}

/// Create an operator; prints the password once, alone on the first line, unless a file has it
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Name of the operator: 1 to 64 ASCII letters, digits and . _ - @; it never changes
    name: String,
    /// What the operator may do; repeat the option for several roles
    #[arg(long = "role", value_name = "ROLE", required = true, value_parser = role())]
    roles: Vec<OperatorRole>,
    #[command(flatten)]
    password: PasswordArgs,
}

/// Replace an operator's roles; takes effect at once, in open sessions too
#[derive(Debug, clap::Args)]
pub(crate) struct SetRolesArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Name of the operator
    name: String,
    /// What the operator may do from now on; repeat the option for several roles
    #[arg(long = "role", value_name = "ROLE", required = true, value_parser = role())]
    roles: Vec<OperatorRole>,
}

/// Replace an operator's password; ends the operator's sessions, and a lockout
#[derive(Debug, clap::Args)]
pub(crate) struct ResetPasswordArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Name of the operator
    name: String,
    #[command(flatten)]
    password: PasswordArgs,
}

/// Disable an operator for good; ends the operator's sessions
#[derive(Debug, clap::Args)]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Name of the operator
    name: String,
}

/// List operators, by name
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Where the password is from.
#[derive(Debug, clap::Args)]
struct PasswordArgs {
    /// File whose first line is the password, 12 to 128 characters; without it, one is generated and printed
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

impl PasswordArgs {
    /// The password, and whether it was generated.
    fn read(&self) -> anyhow::Result<(SecretString, bool)> {
        match self.password_file.as_deref() {
            Some(path) => {
                let password = first_line(path)?;
                let is_published = published::is_published(password.expose_secret());
                anyhow::ensure!(
                    !is_published,
                    "everybody can read this password: it is the demo's; choose another one"
                );
                Ok((password, false))
            }
            None => Ok((random_hex::<PASSWORD_BYTES>()?.into(), true)),
        }
    }
}

/// A password that a file has in its first line.
///
/// # Errors
/// The file cannot be read.
pub(super) fn first_line(path: &Path) -> anyhow::Result<SecretString> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the password file {} cannot be read", path.display()))?;
    Ok(text.lines().next().unwrap_or_default().into())
}

fn role() -> impl clap::builder::TypedValueParser<Value = OperatorRole> {
    let words = OperatorRole::ALL.iter().map(|role| role.as_str()).collect::<Vec<_>>();
    // Of the possible values each is a role.
    PossibleValuesParser::new(words).map(|word| OperatorRole::parse(&word).unwrap_or(OperatorRole::Viewer))
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Create(args) => create(args, out).await?,
        Command::SetRoles(args) => set_roles(args, out).await?,
        Command::ResetPassword(args) => reset_password(args, out).await?,
        Command::Disable(args) => disable(args, out).await?,
        Command::List(args) => list(args, out).await?,
    }
    Ok(CommandOutcome::Success)
}

async fn create(args: CreateArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let CreateArgs { database, name, roles, password } = args;
    validate_operator_name(&name)?;
    let (password, is_generated) = password.read()?;
    let hash = Password::new(password.clone())?.to_stored()?;
    match database.ledger().await?.create_operator(&name, &roles, &hash).await? {
        NewOperatorOutcome::Created => {}
        NewOperatorOutcome::Exists(existing) => {
            anyhow::bail!(
                "operator {existing} exists already; two spellings would be two operators for one person"
            )
        }
    }
    show_password(&password, is_generated, out)?;
    out.write_line(format_args!("operator {name} created with the roles {}", words(&roles)))?;
    Ok(())
}

async fn set_roles(args: SetRolesArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let SetRolesArgs { database, name, roles } = args;
    known(&name, database.ledger().await?.set_operator_roles(&name, &roles).await?)?;
    Ok(out.write_line(format_args!("operator {name} has the roles {}", words(&roles)))?)
}

async fn reset_password(args: ResetPasswordArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let ResetPasswordArgs { database, name, password } = args;
    let (password, is_generated) = password.read()?;
    let hash = Password::new(password.clone())?.to_stored()?;
    known(&name, database.ledger().await?.set_operator_password(&name, &hash).await?)?;
    show_password(&password, is_generated, out)?;
    Ok(out
        .write_line(format_args!("operator {name} has a new password; the operator's sessions have ended"))?)
}

async fn disable(args: DisableArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let DisableArgs { database, name } = args;
    known(&name, database.ledger().await?.disable_operator(&name).await?)?;
    Ok(out.write_line(format_args!("operator {name} is disabled; the operator's sessions have ended"))?)
}

fn known(name: &str, outcome: ChangeOperatorOutcome) -> anyhow::Result<()> {
    anyhow::ensure!(
        outcome == ChangeOperatorOutcome::Changed,
        "no operator {name} exists; see: payctl operators list"
    );
    Ok(())
}

/// A generated password is printed once, alone on the first line.
fn show_password(password: &SecretString, is_generated: bool, out: &mut Output<'_>) -> anyhow::Result<()> {
    if is_generated {
        out.write_line(password.expose_secret())?;
    }
    Ok(())
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let operators = args.database.ledger().await?.operators().await?;
    if args.json {
        let operators: Vec<Value> = operators.iter().map(document).collect();
        out.write_json(&json!({ "operators": operators }))?;
    } else if operators.is_empty() {
        out.write_line("no operator; create one with: payctl operators create NAME --role operator")?;
    } else {
        out.write_line(table(&operators))?;
    }
    Ok(())
}

fn words(roles: &[OperatorRole]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

fn table(operators: &[OperatorView]) -> Table<4> {
    let left = Align::Left;
    let mut table =
        Table::new([("operator", left), ("roles", left), ("status", left), ("open sessions", Align::Right)]);
    for operator in operators {
        let status = match (operator.disabled_at, operator.locked_until) {
            (Some(at), _) => format!("disabled since {at:.0}"),
            (None, Some(until)) => format!("locked until {until:.0}"),
            (None, None) => "active".into(),
        };
        table.row([&operator.name, &words(&operator.roles), &status, &operator.open_sessions.to_string()]);
    }
    table
}

fn document(operator: &OperatorView) -> Value {
    json!({
        "name": operator.name,
        "roles": operator.roles,
        "created_at": operator.created_at,
        "disabled_at": operator.disabled_at,
        "locked_until": operator.locked_until,
        "open_sessions": operator.open_sessions,
    })
}
