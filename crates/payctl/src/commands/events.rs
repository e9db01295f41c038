//! `payctl events`: what could not be published or taken in, and how it is tried again.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use outbox::intake::{Discard, ParkedDelivery};
use outbox::keep::Parked;
use payment_ledger::operator::decisions::validate_operator_and_reason;
use serde_json::{Value, json};

use crate::bank::BankArgs;
use crate::out::Out;
use crate::outcome::Outcome;
use crate::table::{self as tables, Align, Table};
use crate::{age, outcome};

/// Show and mend what is told of payments
#[derive(Debug, clap::Subcommand)]
#[command(after_help = outcome::EXIT_CODES)]
pub(crate) enum Command {
    /// List what the broker refused and what a consumer could not take in
    Parked {
        #[command(flatten)]
        bank: BankArgs,
        /// At most so many of each
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Have an event that the broker refused published again
    Retry {
        #[command(flatten)]
        bank: BankArgs,
        /// As `parked` lists it
        event_id: String,
    },
    /// Let go of a message that a consumer will never take in; what it held stays as a record
    Discard {
        #[command(flatten)]
        bank: BankArgs,
        /// Who could not take it in, as `parked` lists it
        consumer: String,
        /// Its stream
        stream: String,
        /// Its number there
        #[arg(value_parser = clap::value_parser!(i64).range(1..))]
        number: i64,
        /// Who says so
        #[arg(long, value_name = "NAME")]
        by: String,
        /// Why, in a sentence
        #[arg(long)]
        reason: String,
    },
    /// Have everything published again that was published lately, for who has missed events: what was taken in is known
    Republish {
        #[command(flatten)]
        bank: BankArgs,
        /// How far back
        #[arg(long, value_name = "AGE", value_parser = age::parse)]
        since: i64,
    },
}

pub(crate) async fn run(command: Command, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    match command {
        Command::Parked { bank, limit, json } => parked(&bank, limit, json, out).await,
        Command::Retry { bank, event_id } => {
            let ledger = bank.read()?.ledger().await?;
            let was_parked = outbox::keep::retry(ledger.pool(), &event_id).await?;
            anyhow::ensure!(was_parked, "{event_id} is not parked");
            out.line(format_args!("{event_id} is published again"))?;
            Ok(Outcome::Done)
        }
        Command::Discard { bank, consumer, stream, number, by, reason } => {
            let (by, reason) = validate_operator_and_reason(&by, &reason)?;
            let ledger = bank.read()?.ledger().await?;
            let discard = Discard {
                consumer: &consumer,
                stream: &stream,
                stream_sequence: number,
                by: &by,
                reason: &reason,
            };
            let was_parked = outbox::intake::discard(ledger.pool(), discard).await?;
            anyhow::ensure!(was_parked, "{stream} {number} is not parked for {consumer}");
            out.line(format_args!("{stream} {number} is discarded for {consumer}"))?;
            Ok(Outcome::Done)
        }
        Command::Republish { bank, since } => {
            let ledger = bank.read()?.ledger().await?;
            let since = Duration::from_secs(u64::try_from(since).context("--since must not be negative")?);
            let events = outbox::keep::republish(ledger.pool(), since).await?;
            out.line(format_args!("{events} events are published again"))?;
            Ok(Outcome::Done)
        }
    }
}

async fn parked(bank: &BankArgs, limit: i64, json: bool, out: &mut Out<'_>) -> anyhow::Result<Outcome> {
    let ledger = bank.read()?.ledger().await?;
    let refused = outbox::keep::parked(ledger.pool(), limit).await?;
    let untaken = outbox::intake::parked(ledger.pool(), limit).await?;
    if json {
        let refused: Vec<Value> = refused.iter().map(refused_document).collect();
        let untaken: Vec<Value> = untaken.iter().map(|(one, at)| untaken_document(one, *at)).collect();
        out.json(&json!({ "refused": refused, "not_taken_in": untaken }))?;
    } else if refused.is_empty() && untaken.is_empty() {
        out.line("nothing is parked")?;
    } else {
        let now = Timestamp::now();
        if !refused.is_empty() {
            out.line(format_args!("refused by the broker\n{}", refused_table(&refused, now)))?;
            tables::remark_cut(refused.len(), limit, out)?;
        }
        if !untaken.is_empty() {
            out.line(format_args!("not taken in\n{}", untaken_table(&untaken, now)))?;
            tables::remark_cut(untaken.len(), limit, out)?;
        }
    }
    let is_well = refused.is_empty() && untaken.is_empty();
    Ok(if is_well { Outcome::Done } else { Outcome::NotAsItShouldBe })
}

fn refused_table(events: &[Parked], now: Timestamp) -> Table<4> {
    let left = Align::Left;
    let mut table =
        Table::new([("event", left), ("parked for", Align::Right), ("tries", Align::Right), ("why", left)]);
    for event in events {
        let parked_for = age::show(now.duration_since(event.parked_at).as_secs());
        table.row([&event.event_id, &parked_for, &event.rejections.to_string(), &event.rejection]);
    }
    table
}

fn untaken_table(deliveries: &[(ParkedDelivery, Timestamp)], now: Timestamp) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("consumer", left),
        ("message", left),
        ("event", left),
        ("parked for", Align::Right),
        ("why", left),
    ]);
    for (delivery, parked_at) in deliveries {
        let message = format!("{} {}", delivery.stream, delivery.stream_sequence);
        let parked_for = age::show(now.duration_since(*parked_at).as_secs());
        let event_id = delivery.event_id.as_deref().unwrap_or("unreadable");
        table.row([&delivery.consumer, &message, event_id, &parked_for, &delivery.reason]);
    }
    table
}

fn refused_document(event: &Parked) -> Value {
    json!({
        "event_id": event.event_id,
        "kind": event.kind,
        "key": event.key,
        "sequence": event.sequence,
        "rejection": event.rejection,
        "rejections": event.rejections,
        "parked_at": event.parked_at,
    })
}

fn untaken_document(delivery: &ParkedDelivery, parked_at: Timestamp) -> Value {
    json!({
        "consumer": delivery.consumer,
        "stream": delivery.stream,
        "stream_sequence": delivery.stream_sequence,
        "subject": delivery.subject,
        "event_id": delivery.event_id,
        "reason": delivery.reason,
        "deliveries": delivery.deliveries,
        "parked_at": parked_at,
    })
}
