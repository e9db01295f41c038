//! `payctl events`: parked events of the outbox and of consumers, and how to retry, discard or republish them.

use jiff::Timestamp;
use outbox::consume::ParkedDelivery;
use outbox::operator::ParkedEvent;
use serde_json::{Value, json};

use crate::config::ConfigArgs;
use crate::operator_api::{ReasonArgs, SessionArgs};
use crate::outcome::CommandOutcome;
use crate::output::Output;
use crate::table::{self as tables, Align, Table};
use crate::{age, outcome};

/// List, retry, discard and republish the events that the service publishes to the broker
#[derive(Debug, clap::Subcommand)]
#[command(after_help = outcome::EXIT_CODES)]
pub(crate) enum Command {
    /// List events that the broker refused and messages that a consumer could not consume
    ///
    /// Exit code 1: an event or a message is parked.
    Parked {
        #[command(flatten)]
        config: ConfigArgs,
        /// Show at most this many events and this many messages, 1 to 10000
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(i64).range(1..=10_000))]
        limit: i64,
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Publish an event again that was parked because the broker refused it
    Retry {
        #[command(flatten)]
        session: SessionArgs,
        /// Id of the event, as `payctl events parked` lists it
        event_id: String,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Discard a parked message that its consumer can never consume; the record stays
    Discard {
        #[command(flatten)]
        session: SessionArgs,
        /// Consumer of the message, as `payctl events parked` lists it
        consumer: String,
        /// Stream of the message at the broker, as `payctl events parked` lists it
        stream: String,
        /// Number of the message in its stream, as `payctl events parked` lists it, 1 or more
        #[arg(value_parser = clap::value_parser!(i64).range(1..))]
        number: i64,
        #[command(flatten)]
        reason: ReasonArgs,
    },
    /// Publish again all events that were published recently; consumers skip events that they know
    ///
    /// Nothing republishes by itself: run it after the broker lost events, or where the alert ConsumerBehind says so.
    Republish {
        #[command(flatten)]
        session: SessionArgs,
        /// Republish events published at most this long ago, like 90s, 10m or 48h
        #[arg(long, value_name = "AGE", value_parser = age::parse)]
        since: i64,
        #[command(flatten)]
        reason: ReasonArgs,
    },
}

pub(crate) async fn run(command: Command, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
    match command {
        Command::Parked { config, limit, json } => return list_parked(&config, limit, json, out).await,
        Command::Retry { session, event_id, reason } => {
            let change = json!({"kind": "retry_event", "event_id": event_id});
            session.client()?.change(change, &reason).await?;
            out.write_line(format_args!("event {event_id} queued to be published again"))?;
        }
        Command::Discard { session, consumer, stream, number, reason } => {
            let change = json!({
                "kind": "discard_message", "consumer": consumer, "stream": stream, "stream_sequence": number,
            });
            session.client()?.change(change, &reason).await?;
            out.write_line(format_args!("message {stream} {number} discarded for consumer {consumer}"))?;
        }
        Command::Republish { session, since, reason } => {
            let now = Timestamp::now();
            let since = age::before(now, since)?;
            let change = json!({"kind": "republish_events", "since": since, "published_before": now});
            session.client()?.change_all(change, &reason, " to be published again", out).await?;
        }
    }
    Ok(CommandOutcome::Success)
}

async fn list_parked(
    config: &ConfigArgs,
    limit: i64,
    json: bool,
    out: &mut Output<'_>,
) -> anyhow::Result<CommandOutcome> {
    let ledger = config.read()?.ledger().await?;
    let events = outbox::operator::parked_events(ledger.pool(), limit).await?;
    let messages = outbox::operator::parked_deliveries(ledger.pool(), limit).await?;
    if json {
        let events: Vec<Value> = events.iter().map(event_document).collect();
        let messages: Vec<Value> =
            messages.iter().map(|(message, at)| message_document(message, *at)).collect();
        out.write_json(&json!({ "parked_events": events, "parked_messages": messages }))?;
    } else if events.is_empty() && messages.is_empty() {
        out.write_line("nothing is parked")?;
    } else {
        let now = Timestamp::now();
        if !events.is_empty() {
            let table = events_table(&events, now);
            out.write_line(format_args!(
                "events refused by the broker; next: payctl events retry EVENT\n{table}"
            ))?;
            tables::note_limit(events.len(), limit, out)?;
        }
        if !messages.is_empty() {
            let table = messages_table(&messages, now);
            out.write_line(format_args!(
                "messages not consumed; next: payctl events republish, or payctl events discard\n{table}"
            ))?;
            tables::note_limit(messages.len(), limit, out)?;
        }
    }
    let is_empty = events.is_empty() && messages.is_empty();
    Ok(if is_empty { CommandOutcome::Success } else { CommandOutcome::CheckFailed })
}

fn events_table(events: &[ParkedEvent], now: Timestamp) -> Table<4> {
    let left = Align::Left;
    let mut table = Table::new([
        ("event", left),
        ("parked for", Align::Right),
        ("refusals", Align::Right),
        ("reason", left),
    ]);
    for event in events {
        let parked_for = age::format(now.duration_since(event.parked_at).as_secs());
        table.row([&event.event_id, &parked_for, &event.rejections.to_string(), &event.rejection]);
    }
    table
}

fn messages_table(messages: &[(ParkedDelivery, Timestamp)], now: Timestamp) -> Table<5> {
    let left = Align::Left;
    let mut table = Table::new([
        ("consumer", left),
        ("message", left),
        ("event", left),
        ("parked for", Align::Right),
        ("reason", left),
    ]);
    for (message, parked_at) in messages {
        let position = format!("{} {}", message.stream, message.stream_sequence);
        let parked_for = age::format(now.duration_since(*parked_at).as_secs());
        let event_id = message.event_id.as_deref().unwrap_or("unreadable");
        table.row([&message.consumer, &position, event_id, &parked_for, &message.reason]);
    }
    table
}

fn event_document(event: &ParkedEvent) -> Value {
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

fn message_document(message: &ParkedDelivery, parked_at: Timestamp) -> Value {
    json!({
        "consumer": message.consumer,
        "stream": message.stream,
        "stream_sequence": message.stream_sequence,
        "subject": message.subject,
        "event_id": message.event_id,
        "reason": message.reason,
        "deliveries": message.deliveries,
        "parked_at": parked_at,
    })
}
