//! Operators who are logged in: operator-api runs, and each of them acts with `payctl` in a session of their own.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use super::System;
use crate::process::Process;

/// Exit code of `payctl` for a decision that is not applied yet.
const OUTCOME_UNKNOWN: i32 = 3;

/// operator-api, and the sessions of operators who may propose and confirm.
#[derive(Debug)]
pub struct Operators {
    /// operator-api.
    pub api: Process,
    folder: PathBuf,
}

impl System {
    /// Starts operator-api, creates the operators and logs them in.
    ///
    /// # Errors
    /// If a process does not start, or a command fails.
    pub async fn operators(&self, names: &[&str]) -> anyhow::Result<Operators> {
        let api = self.start_process("operator-api", "PAYMENTS_OPERATOR_API__LISTEN").await?;
        let operators = Operators { api, folder: self.folder.join("sessions") };
        std::fs::create_dir_all(&operators.folder)?;
        for name in names {
            let mut create = self.command("payctl");
            create.args([
                "operators",
                "create",
                name,
                "--role",
                "operator",
                "--role",
                "approver",
                "--as-owner",
            ]);
            let created = succeed(create).await?;
            let password = operators.folder.join(format!("{name}.password"));
            std::fs::write(&password, created.lines().next().context("payctl printed no password")?)?;
            let mut login = operators.payctl(self, name);
            login
                .args(["login", name, "--operator-api", &operators.api.url(), "--password-file"])
                .arg(password);
            succeed(login).await?;
        }
        Ok(operators)
    }
}

impl Operators {
    /// `payctl`, acting in an operator's session.
    #[must_use]
    pub fn payctl(&self, system: &System, name: &str) -> Command {
        let mut command = system.command("payctl");
        command.env("PAYCTL_SESSION", self.folder.join(format!("{name}.session")));
        command
    }

    /// The token of an operator's session.
    ///
    /// # Errors
    /// If the operator has not logged in.
    pub fn token(&self, name: &str) -> anyhow::Result<String> {
        let session = std::fs::read_to_string(self.folder.join(format!("{name}.session")))?;
        let session: serde_json::Value = serde_json::from_str(&session)?;
        session["token"].as_str().map(str::to_owned).context("the session has no token")
    }

    /// Runs `payctl` in an operator's session and returns its output.
    ///
    /// # Errors
    /// If the command fails.
    pub async fn run(&self, system: &System, name: &str, args: &[&str]) -> anyhow::Result<String> {
        let mut command = self.payctl(system, name);
        command.args(args);
        succeed(command).await
    }

    /// One operator proposes that a payment is debited; returns the id of the decision.
    ///
    /// # Errors
    /// If the command fails.
    pub async fn propose_debit(
        &self,
        system: &System,
        operator: &str,
        payment_id: &str,
    ) -> anyhow::Result<String> {
        let propose =
            ["decide", payment_id, "debit", "--reason", "the switch settled it", "--evidence", "statement"];
        let proposed = self.run(system, operator, &[&propose[..], &["--json"]].concat()).await?;
        let proposed: serde_json::Value = serde_json::from_str(&proposed)?;
        Ok(proposed["decision_id"].as_str().context("payctl names no decision")?.to_owned())
    }

    /// Has the payment debited by decision: one operator proposes it, the other one confirms it. Does not wait for its workflow.
    ///
    /// # Errors
    /// If a command fails.
    pub async fn decide_debit(
        &self,
        system: &System,
        [proposes, confirms]: [&str; 2],
        payment_id: &str,
    ) -> anyhow::Result<()> {
        let decision = self.propose_debit(system, proposes, payment_id).await?;
        let mut confirm = self.payctl(system, confirms);
        confirm.args(["decide", "confirm", &decision, "--reason", "seen", "--wait", "0"]);
        let output = confirm.output().await?;
        ensure!(
            matches!(output.status.code(), Some(0 | OUTCOME_UNKNOWN)),
            "the confirmation failed: {output:?}"
        );
        Ok(())
    }
}

async fn succeed(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().await?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} failed: {error}", command.as_std());
    Ok(String::from_utf8(output.stdout)?)
}
