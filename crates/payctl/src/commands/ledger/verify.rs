//! `payctl ledger verify`: detects changes of the journal and disagreement between the books.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use payment_ledger::audit::seal::SealHash;
use payment_ledger::audit::seal::heads::HeadsPublicKey;
use payment_ledger::audit::seal::verify::{VerificationFinding, VerificationReport};
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::document::counted;
use crate::outcome::{CommandOutcome, EXIT_CODES};
use crate::output::Output;
use crate::table::{Align, Table};

/// Recompute the hash chains of the journal and the audit log, and compare the books with each other
///
/// Keep the printed heads outside the database and pass one to the next verification with --expect-head: somebody with
/// write access to all tables can rebuild a hash chain, but not so that it contains an earlier head. Exit code 1:
/// the journal or the audit log was changed, or the books disagree.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// Head of an earlier verification, of the journal or of the audit log, 64 hexadecimal digits; its hash chain must contain it
    #[arg(long, value_name = "HASH")]
    expect_head: Option<SealHash>,
    /// File of signed heads that background-worker exports; the hash chains must contain each of them
    #[arg(long, value_name = "FILE", requires = "heads_public_key")]
    heads: Option<PathBuf>,
    /// Public key of the signed heads, as the log of background-worker names it at its start
    #[arg(long, value_name = "KEY", requires = "heads")]
    heads_public_key: Option<HeadsPublicKey>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    let ledger = args.database.ledger().await?;
    let (mut expected, mut invalid) = (Vec::from_iter(args.expect_head), Vec::new());
    if let (Some(path), Some(key)) = (&args.heads, &args.heads_public_key) {
        (expected, invalid) = read_heads(path, key, expected)?;
    }
    let mut verified = ledger.verify(expected).await.context(
        "the verification is incomplete: the ledger could not be read; run payctl ledger verify again",
    )?;
    verified.found += invalid.len();
    verified.findings.extend(invalid);
    if args.json {
        out.write_json(&document(&verified))?;
    } else {
        print(&verified, out)?;
    }
    Ok(if verified.found == 0 { CommandOutcome::Success } else { CommandOutcome::CheckFailed })
}

/// The heads of a file's lines beside those `expected` already, and a finding for each line that the key has not signed.
fn read_heads(
    path: &Path,
    key: &HeadsPublicKey,
    mut expected: Vec<SealHash>,
) -> anyhow::Result<(Vec<SealHash>, Vec<VerificationFinding>)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the heads in {} cannot be read", path.display()))?;
    let mut invalid = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match key.read(line) {
            Ok(heads) => expected.extend(heads.hashes()),
            Err(error) => invalid.push(VerificationFinding {
                kind: "heads_line_invalid",
                subject: format!("line {}", number + 1),
                detail: error.to_string(),
            }),
        }
    }
    Ok((expected, invalid))
}

fn print(verified: &VerificationReport, out: &mut Output<'_>) -> anyhow::Result<()> {
    if !verified.findings.is_empty() {
        let mut table =
            Table::new([("finding", Align::Left), ("subject", Align::Left), ("detail", Align::Left)]);
        for finding in &verified.findings {
            table.row([finding.kind, &finding.subject, &finding.detail]);
        }
        out.write_line(table)?;
    }
    let VerificationReport { entries, batches, unsealed, found, .. } = verified;
    out.write_line(format_args!(
        "verified {} in {}; not sealed yet: {unsealed}; findings: {found}",
        counted(*entries, "entry"),
        counted(*batches, "sealed batch")
    ))?;
    match verified.head {
        Some(head) => out.write_line(format_args!("head {head}"))?,
        None => out.write_line("no entry is sealed yet")?,
    }
    out.write_line(format_args!(
        "verified {} of the audit log; not sealed yet: {}",
        counted(verified.audit_log_entries, "sealed entry"),
        verified.audit_log_unsealed
    ))?;
    if let Some(head) = verified.audit_log_head {
        out.write_line(format_args!("head of the audit log {head}"))?;
    }
    Ok(())
}

fn document(verified: &VerificationReport) -> Value {
    let findings: Vec<Value> = verified
        .findings
        .iter()
        .map(|finding| json!({"finding": finding.kind, "subject": finding.subject, "detail": finding.detail}))
        .collect();
    json!({
        "entries": verified.entries,
        "batches": verified.batches,
        "unsealed": verified.unsealed,
        "head": verified.head.map(|head| head.to_string()),
        "audit_log_entries": verified.audit_log_entries,
        "audit_log_unsealed": verified.audit_log_unsealed,
        "audit_log_head": verified.audit_log_head.map(|head| head.to_string()),
        "found": verified.found,
        "findings": findings,
    })
}
