//! `payctl login` and `payctl logout`: an operator's session at operator-api.

use std::io::{BufRead as _, IsTerminal as _, stdin};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use reqwest::Url;
use secrecy::{ExposeSecret as _, SecretString};

use super::operators::first_line;
use crate::api::is_local;
use crate::operator_api::{Credential, Login, OperatorClient, Session, SessionArgs};
use crate::outcome::CommandOutcome;
use crate::output::Output;

/// Log in at operator-api: later commands act in this session, which lasts 12 hours, or 30 minutes without use
///
/// Without NAME the login is at the OpenID provider that operator-api names, in a browser on this machine. With NAME it is by a
/// password, which is typed, or read from the first line of standard input.
#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// Name of an operator with a password
    name: Option<String>,
    /// Log in at the OpenID provider with a browser on any machine
    #[arg(long, conflicts_with_all = ["name", "password_file", "id_token_file"])]
    device: bool,
    /// File whose first line is an ID token of the OpenID provider for payctl's client
    #[arg(long, value_name = "FILE", conflicts_with_all = ["name", "password_file"])]
    id_token_file: Option<PathBuf>,
    /// URL of operator-api
    #[arg(long, value_name = "URL", env = "PAYCTL_OPERATOR_API", default_value = "http://127.0.0.1:8081")]
    operator_api: Url,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE", requires = "name")]
    password_file: Option<PathBuf>,
    /// Send the password or the ID token to another machine over a link that is not encrypted, because other means protect it
    #[arg(long, env = "PAYCTL_ALLOW_PLAINTEXT")]
    allow_plaintext: bool,
    #[command(flatten)]
    session: SessionArgs,
}

/// Log out: ends the session at operator-api and removes its file
#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    #[command(flatten)]
    session: SessionArgs,
}

pub(crate) async fn log_in(args: LoginArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let url = args.operator_api;
    anyhow::ensure!(
        url.scheme() == "https" || is_local(&url) || args.allow_plaintext,
        "--operator-api (PAYCTL_OPERATOR_API) leads to another machine and is not encrypted; use https, or --allow-plaintext if other \
         means protect the link"
    );
    let file = args.session.file()?;
    let as_whom = match (args.name, args.id_token_file) {
        (Some(name), _) => {
            let password = password(args.password_file.as_deref(), &name)?;
            Credential::Password { name, password }
        }
        (None, Some(file)) => Credential::IdToken(first_line(&file)?),
        (None, None) if args.device => Credential::Device,
        (None, None) => Credential::Browser,
    };
    let session = OperatorClient::log_in(Login { url, as_whom }, out).await?;
    // The session that it replaces would stay open.
    let replaced = Session::read(&file).is_ok().then(|| args.session.client()).transpose()?;
    session.write(&file)?;
    if let Some(replaced) = replaced {
        let _ = replaced.log_out().await;
    }
    out.write_line(format_args!("logged in as {} until {:.0}", session.operator, session.expires_at))?;
    Ok(CommandOutcome::Success)
}

pub(crate) async fn log_out(args: LogoutArgs, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let file = args.session.file()?;
    let (session, client) = (Session::read(&file)?, args.session.client()?);
    let ended = client.log_out().await;
    // A session that has ended already is refused; the file is of no use then.
    Session::forget(&file)?;
    ended.context("the session file is removed; the session ends by itself after 30 minutes without use")?;
    out.write_line(format_args!("{} is logged out", session.operator))?;
    Ok(CommandOutcome::Success)
}

fn password(file: Option<&Path>, name: &str) -> anyhow::Result<SecretString> {
    let password: SecretString = match file {
        Some(file) => first_line(file)?,
        None if stdin().is_terminal() => rpassword::prompt_password(format!("password of {name}: "))
            .context("the password cannot be read from the terminal")?
            .into(),
        None => {
            let mut line = String::new();
            stdin().lock().read_line(&mut line).context("the password cannot be read from standard input")?;
            line.trim_end_matches(['\r', '\n']).into()
        }
    };
    anyhow::ensure!(
        !password.expose_secret().is_empty(),
        "no password was given; type it, or give its first line with --password-file"
    );
    Ok(password)
}
