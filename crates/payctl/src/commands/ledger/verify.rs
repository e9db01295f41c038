//! `payctl ledger verify`: was history changed, and do the books agree with each other?

use anyhow::Context as _;
use payment_ledger::audit::seal::SealHash;
use payment_ledger::audit::seal::verify::VerificationReport;
use serde_json::{Value, json};

use crate::database::DatabaseArgs;
use crate::out::Out;
use crate::outcome::{EXIT_CODES, Outcome};
use crate::table::{Align, Table};

/// Compute the chain of seals again and compare the books with each other
///
/// Note the head it prints where nobody who may write the database can change it, and give it to the next verification:
/// whoever can write all tables can make the chain anew, but not so that it contains a head noted before.
#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(flatten)]
    database: DatabaseArgs,
    /// A head that was noted earlier: the chain must contain it
    #[arg(long, value_name = "HASH")]
    expect_head: Option<SealHash>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = args.database.ledger().await?;
    let verified =
        ledger.verify(args.expect_head).await.context("the ledger could not be read to its end")?;
    if args.json {
        out.json(&document(&verified))?;
    } else {
        print(&verified, out)?;
    }
    Ok(if verified.found == 0 { Outcome::Done } else { Outcome::NotAsItShouldBe })
}

fn print(verified: &VerificationReport, out: &mut Out<'_>) -> anyhow::Result<()> {
    if !verified.findings.is_empty() {
        let mut table = Table::new([("finding", Align::Left), ("of", Align::Left), ("what", Align::Left)]);
        for finding in &verified.findings {
            table.row([finding.kind, &finding.subject, &finding.detail]);
        }
        out.line(table)?;
    }
    let VerificationReport { entries, batches, unsealed, found, .. } = verified;
    out.line(format_args!("{entries} entries in {batches} batches, {unsealed} unsealed, {found} findings"))?;
    match verified.head {
        Some(head) => out.line(format_args!("head {head}"))?,
        None => out.line("nothing is sealed yet")?,
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
        "found": verified.found,
        "findings": findings,
    })
}
