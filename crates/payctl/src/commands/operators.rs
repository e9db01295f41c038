//! `payctl operators`: who may log in at operator-api, and with which roles.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use payment_ledger::Ledger;
use payment_ledger::access::operators::{
    ChangeOperatorOutcome, NewOperatorOutcome, OperatorIdentity, OperatorLogin, OperatorRole, Password,
};
use payment_ledger::operator::decisions::validate_operator_name;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use service_kit::published;

use crate::api_key::random_hex;
use crate::database::DatabaseArgs;
use crate::operator_api::{OperatorDocument, OperatorDocuments, ReasonArgs, SessionArgs, note_waiting};
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{Align, Table};

/// Random bytes of a generated password.
const PASSWORD_BYTES: usize = 16;

/// Manage operators, who log in at operator-api: two administrators create them and change what they may do, one disables them
///
/// The first administrators, and passwords, take the rights of the database's owner: --as-owner.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Create(CreateArgs),
    SetRoles(SetRolesArgs),
    ResetPassword(ResetPasswordArgs),
    SetIdentity(SetIdentityArgs),
    Disable(DisableArgs),
    List(ListArgs),
}

/// With whose rights a command acts.
#[derive(Debug, clap::Args)]
struct ActAs {
    /// Act with the rights of the database's owner, not in the session of an administrator
    #[arg(long)]
    as_owner: bool,
    #[command(flatten)]
    database: DatabaseArgs,
    #[command(flatten)]
    session: SessionArgs,
}

/// Why an administrator changes an operator.
#[derive(Debug, clap::Args)]
struct OperatorReasonArgs {
    /// Reason; recorded permanently
    #[arg(long, value_name = "TEXT", required_unless_present = "as_owner", conflicts_with = "as_owner")]
    reason: Option<String>,
}

/// Create an operator, who logs in with a password or, with --issuer and --subject, at the OpenID provider
///
/// A password takes --as-owner; a generated one is printed once, alone on the first line.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    act_as: ActAs,
    #[command(flatten)]
    reason: OperatorReasonArgs,
    /// Name of the operator: 1 to 64 ASCII letters, digits and . _ - @; it never changes
    name: String,
    /// What the operator may do; repeat the option for several roles
    #[arg(long = "role", value_name = "ROLE", required = true, value_parser = role())]
    roles: Vec<OperatorRole>,
    /// File whose first line is the password, 12 to 128 characters; without it, one is generated and printed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["issuer", "subject"], requires = "as_owner")]
    password_file: Option<PathBuf>,
    /// URL of the OpenID provider, as operator_api.oidc.issuer has it
    #[arg(long, value_name = "URL", requires = "subject", required_unless_present = "as_owner")]
    issuer: Option<String>,
    /// The claim sub in the operator's ID tokens
    #[arg(long, value_name = "TEXT", requires = "issuer", required_unless_present = "as_owner")]
    subject: Option<String>,
}

/// Let an operator log in as an identity of the OpenID provider, and no longer with a password; ends the operator's sessions
#[derive(Debug, clap::Args)]
pub(crate) struct SetIdentityArgs {
    #[command(flatten)]
    act_as: ActAs,
    #[command(flatten)]
    reason: OperatorReasonArgs,
    /// Name of the operator
    name: String,
    /// URL of the OpenID provider, as operator_api.oidc.issuer has it
    #[arg(long, value_name = "URL")]
    issuer: String,
    /// The claim sub in the operator's ID tokens
    #[arg(long, value_name = "TEXT")]
    subject: String,
}

/// Replace an operator's roles; takes effect at once, in open sessions too
#[derive(Debug, clap::Args)]
pub(crate) struct SetRolesArgs {
    #[command(flatten)]
    act_as: ActAs,
    #[command(flatten)]
    reason: OperatorReasonArgs,
    /// Name of the operator
    name: String,
    /// What the operator may do from now on; repeat the option for several roles
    #[arg(long = "role", value_name = "ROLE", required = true, value_parser = role())]
    roles: Vec<OperatorRole>,
}

/// Replace how an operator logs in by a password; ends the operator's sessions, and a lockout
#[derive(Debug, clap::Args)]
pub(crate) struct ResetPasswordArgs {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Name of the operator
    name: String,
    /// File whose first line is the password, 12 to 128 characters; without it, one is generated and printed
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

/// Disable an operator for good; ends the operator's sessions
#[derive(Debug, clap::Args)]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    act_as: ActAs,
    #[command(flatten)]
    reason: OperatorReasonArgs,
    /// Name of the operator
    name: String,
}

/// List operators, by name
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    act_as: ActAs,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl ActAs {
    /// The ledger with the owner's rights; `None` to act in the session.
    async fn owner(&self) -> anyhow::Result<Option<Ledger>> {
        Ok(if self.as_owner { Some(self.database.ledger().await?) } else { None })
    }

    /// Proposes a change in the session, or makes it if one administrator suffices. Returns whether it waits for another one.
    async fn change(
        &self,
        reason: OperatorReasonArgs,
        change: Value,
        out: &mut Output<'_>,
    ) -> anyhow::Result<bool> {
        let reason = ReasonArgs { reason: reason.reason.unwrap_or_default() };
        let change = self.session.client()?.change(change, &reason).await?;
        note_waiting(&change, out)
    }
}

/// The password, and whether it was generated.
fn read_password(file: Option<&Path>) -> anyhow::Result<(SecretString, bool)> {
    let Some(path) = file else { return Ok((random_hex::<PASSWORD_BYTES>()?.into(), true)) };
    let password = first_line(path)?;
    let is_published = published::is_published(password.expose_secret());
    anyhow::ensure!(!is_published, "everybody can read this password: it is the demo's; choose another one");
    Ok((password, false))
}

/// A password or a token that a file has in its first line.
///
/// # Errors
/// The file cannot be read.
pub(super) fn first_line(path: &Path) -> anyhow::Result<SecretString> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the file {} cannot be read", path.display()))?;
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
        Command::SetIdentity(args) => set_identity(args, out).await?,
        Command::Disable(args) => disable(args, out).await?,
        Command::List(args) => list(args, out).await?,
    }
    Ok(CommandOutcome::Success)
}

async fn create(args: CreateArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let CreateArgs { act_as, reason, name, roles, password_file, issuer, subject } = args;
    validate_operator_name(&name)?;
    let Some(owner) = act_as.owner().await? else {
        let change = json!({"kind": "create_operator", "name": name, "roles": roles, "issuer": issuer, "subject": subject});
        return act_as.change(reason, change, out).await.map(drop);
    };
    let mut generated = None;
    let login: OperatorLogin = if let (Some(issuer), Some(subject)) = (issuer, subject) {
        OperatorIdentity::new(&issuer, &subject)?.into()
    } else {
        let (password, is_generated) = read_password(password_file.as_deref())?;
        generated = is_generated.then(|| password.clone());
        Password::new(password)?.to_stored()?.into()
    };
    match owner.create_operator(&name, &roles, &login).await? {
        NewOperatorOutcome::Created => {}
        NewOperatorOutcome::Exists(existing) => {
            anyhow::bail!(
                "operator {existing} exists already; two names or two logins would be two operators for one person"
            )
        }
    }
    show_password(generated.as_ref(), out)?;
    out.write_line(format_args!("operator {name} created with the roles {}", words(&roles)))?;
    Ok(())
}

async fn set_roles(args: SetRolesArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let SetRolesArgs { act_as, reason, name, roles } = args;
    let Some(owner) = act_as.owner().await? else {
        let change = json!({"kind": "set_operator_roles", "name": name, "roles": roles});
        return act_as.change(reason, change, out).await.map(drop);
    };
    known(&name, owner.set_operator_roles(&name, &roles).await?)?;
    Ok(out.write_line(format_args!("operator {name} has the roles {}", words(&roles)))?)
}

async fn reset_password(args: ResetPasswordArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let ResetPasswordArgs { database, name, password_file } = args;
    let (password, is_generated) = read_password(password_file.as_deref())?;
    let login = Password::new(password.clone())?.to_stored()?.into();
    known(&name, database.ledger().await?.set_operator_login(&name, &login).await?)?;
    show_password(is_generated.then_some(&password), out)?;
    Ok(out
        .write_line(format_args!("operator {name} has a new password; the operator's sessions have ended"))?)
}

async fn set_identity(args: SetIdentityArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let SetIdentityArgs { act_as, reason, name, issuer, subject } = args;
    let Some(owner) = act_as.owner().await? else {
        let change =
            json!({"kind": "set_operator_identity", "name": name, "issuer": issuer, "subject": subject});
        return act_as.change(reason, change, out).await.map(drop);
    };
    let login = OperatorIdentity::new(&issuer, &subject)?.into();
    known(&name, owner.set_operator_login(&name, &login).await?)?;
    Ok(out.write_line(format_args!(
        "operator {name} logs in as {subject} of {issuer}; the operator's sessions have ended"
    ))?)
}

async fn disable(args: DisableArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let DisableArgs { act_as, reason, name } = args;
    if let Some(owner) = act_as.owner().await? {
        known(&name, owner.disable_operator(&name).await?)?;
    } else if act_as.change(reason, json!({"kind": "disable_operator", "name": name}), out).await? {
        return Ok(());
    }
    Ok(out.write_line(format_args!("operator {name} is disabled; the operator's sessions have ended"))?)
}

fn known(name: &str, outcome: ChangeOperatorOutcome) -> anyhow::Result<()> {
    match outcome {
        ChangeOperatorOutcome::Changed => Ok(()),
        ChangeOperatorOutcome::Unknown => {
            anyhow::bail!("no operator {name} exists; see: payctl operators list")
        }
        ChangeOperatorOutcome::IdentityOf(other) => {
            anyhow::bail!("operator {other} has this identity; it would be two operators for one person")
        }
    }
}

/// A generated password is printed once, alone on the first line.
fn show_password(generated: Option<&SecretString>, out: &mut Output<'_>) -> anyhow::Result<()> {
    if let Some(password) = generated {
        out.write_line(password.expose_secret())?;
    }
    Ok(())
}

async fn list(args: ListArgs, out: &mut Output<'_>) -> anyhow::Result<()> {
    let operators: Vec<OperatorDocument> = match args.act_as.owner().await? {
        Some(owner) => owner.operators().await?.into_iter().map(OperatorDocument::from).collect(),
        None => {
            let listed = args.act_as.session.client()?.get::<OperatorDocuments>("operators").await?;
            listed.document.operators
        }
    };
    if args.json {
        out.write_json(&json!({ "operators": operators }))?;
    } else if operators.is_empty() {
        out.write_line(
            "no operator; create one with: payctl operators create NAME --role operator --as-owner",
        )?;
    } else {
        out.write_line(table(&operators))?;
    }
    Ok(())
}

fn words(roles: &[OperatorRole]) -> String {
    roles.iter().map(|role| role.as_str()).collect::<Vec<_>>().join(", ")
}

fn table(operators: &[OperatorDocument]) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("operator", left),
        ("roles", left),
        ("login", left),
        ("status", left),
        ("open sessions", Align::Right),
    ]);
    for operator in operators {
        let status = match (operator.disabled_at, operator.locked_until) {
            (Some(at), _) => format!("disabled since {at:.0}"),
            (None, Some(until)) => format!("locked until {until:.0}"),
            (None, None) => "active".into(),
        };
        let login = match (&operator.subject, &operator.issuer) {
            (Some(subject), Some(issuer)) => format!("{subject} of {issuer}"),
            _ => "password".to_owned(),
        };
        let sessions = operator.open_sessions.to_string();
        table.row([&operator.name, &operator.roles.join(", "), &login, &status, &sessions]);
    }
    table
}
