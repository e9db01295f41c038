//! Every metric of the bank's processes, once. The switch has its own list.

use service_kit::metrics::Kind::{Counter, Gauge, Histogram};
use service_kit::metrics::{Kind, Metric};

use Process::{Api, BackgroundWorker, Notifier, Worker};

/// Who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The payments API and the callbacks.
    Api,
    /// The Temporal side.
    Worker,
    /// What must go on when others stop.
    BackgroundWorker,
    /// What tells customers.
    Notifier,
}

impl Process {
    /// Its name, as its package has it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Api => "payments-api",
            Self::Worker => "payment-worker",
            Self::BackgroundWorker => "background-worker",
            Self::Notifier => "notifier",
        }
    }
}

/// A metric, and who measures it.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Who.
    pub by: &'static [Process],
    /// What.
    pub metric: Metric,
}

const fn of(
    by: &'static [Process],
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
    unit: &'static str,
    meaning: &'static str,
) -> Listed {
    Listed { by, metric: Metric { name, kind, unit, labels, meaning } }
}

/// The bank's metrics, by process and subject.
#[rustfmt::skip]
pub const METRICS: &[Listed] = &[
    // What is open, held and waits for people. Measured by the relay: it must not stop when Temporal does.
    of(&[BackgroundWorker], Gauge, "payments_open", &["state"], "payments", "Payments that have not ended, by state; every open state is there"),
    of(&[BackgroundWorker], Gauge, "payments_open_oldest_seconds", &["state"], "seconds", "Age of the oldest of them, since it was accepted"),
    of(&[BackgroundWorker], Gauge, "payments_open_idle_seconds", &["state"], "seconds", "For how long the one that moved longest ago has been cancelling, has stood or has not moved"),
    of(&[BackgroundWorker], Gauge, "payments_needing_operator", &["reason"], "payments", "Payments that stand before a person, by reason; every reason is there"),
    of(&[BackgroundWorker], Gauge, "payments_needing_operator_oldest_seconds", &["reason"], "seconds", "For how long the oldest of them has stood"),
    of(&[BackgroundWorker], Gauge, "payments_alerted", &["kind"], "payments", "Open payments that a person was alerted to, by kind of alert; every kind is there"),
    of(&[BackgroundWorker], Gauge, "exceptions_open", &["kind"], "exceptions", "What contradicts the books and no decision has closed, by kind; every kind is there"),
    of(&[BackgroundWorker], Gauge, "exceptions_open_oldest_seconds", &["kind"], "seconds", "Age of the oldest of them"),
    of(&[BackgroundWorker], Gauge, "holds_open", &["state", "currency", "decided_by"], "holds", "Open holds by the state of their payment, every state is there; decided by the bank while nothing was sent, by the switch afterwards"),
    of(&[BackgroundWorker], Gauge, "holds_open_minor", &["state", "currency", "decided_by"], "minor units", "Their sum"),
    of(&[BackgroundWorker], Gauge, "holds_open_oldest_seconds", &["state", "currency", "decided_by"], "seconds", "Age of the oldest of them"),
    of(&[BackgroundWorker], Gauge, "internal_accounts_minor", &["account", "currency"], "minor units", "What the bank's own accounts hold: holding is set aside, escrow is committed (debited and not given back)"),
    of(&[BackgroundWorker], Gauge, "kill_switches_active", &["target"], "stops", "Switches and corridors that people have stopped"),
    of(&[BackgroundWorker], Gauge, "kill_switches_active_oldest_seconds", &[], "seconds", "How long the oldest stop has stood"),
    of(&[BackgroundWorker], Gauge, "limits_set", &["scope"], "limits", "Limits that count, of accounts and of tenants"),
    of(&[BackgroundWorker], Gauge, "limits_used_up", &["scope"], "limits", "Of those, limits of which today (UTC) has nothing left"),

    // The relay's own work.
    of(&[BackgroundWorker], Gauge, "background_task_last_success_timestamp_seconds", &["task"], "seconds since 1970", "When each task of the relay last succeeded"),
    of(&[BackgroundWorker], Gauge, "inbox_undelivered", &[], "messages", "Callbacks, cancels, verdicts and decisions that no workflow was told"),
    of(&[BackgroundWorker], Gauge, "inbox_undelivered_oldest_seconds", &[], "seconds", "Age of the oldest of them"),
    of(&[BackgroundWorker], Counter, "inbox_delivered_total", &[], "messages", "Notices that the relay told a workflow"),
    of(&[BackgroundWorker], Counter, "inbox_delivery_failures_total", &[], "messages", "Tries to tell one that did not succeed"),
    of(&[BackgroundWorker], Gauge, "journal_unsealed", &[], "entries", "Entries of the journal that are not sealed yet"),
    of(&[BackgroundWorker], Gauge, "journal_unsealed_oldest_seconds", &[], "seconds", "Age of the oldest of them"),
    of(&[BackgroundWorker], Counter, "journal_sealed_total", &[], "entries", "Entries that were sealed"),
    of(&[BackgroundWorker], Gauge, "reconciliation_last_run_age_seconds", &[], "seconds", "How long ago the three books were last compared; before the first time, how long there have been payments"),
    of(&[BackgroundWorker], Gauge, "reconciliation_unread_books", &[], "books", "Books that the last comparison could not read"),
    of(&[BackgroundWorker], Gauge, "outbox_unpublished", &[], "events", "Events that wait to be published, the parked ones not counted"),
    of(&[BackgroundWorker], Gauge, "outbox_oldest_unpublished_seconds", &[], "seconds", "Age of the oldest of them"),
    of(&[BackgroundWorker], Gauge, "outbox_parked", &[], "events", "Events that the broker refused until they were parked"),
    of(&[BackgroundWorker], Gauge, "outbox_parked_deliveries", &[], "events", "Events that a consumer could not take in, that were parked, and that nobody has discarded"),
    of(&[BackgroundWorker], Gauge, "events_unprocessed", &["consumer"], "events", "Published events that a consumer has not taken in, among 10,000 from the oldest of them on"),
    of(&[BackgroundWorker], Gauge, "events_unprocessed_oldest_seconds", &["consumer"], "seconds", "How long ago the oldest of them was published"),
    of(&[BackgroundWorker], Counter, "outbox_published_total", &[], "events", "Events that the broker confirmed"),
    of(&[BackgroundWorker], Counter, "outbox_rejected_total", &[], "refusals", "Times the broker refused an event"),
    of(&[BackgroundWorker], Counter, "outbox_unconfirmed_rounds_total", &[], "rounds", "Rounds of publishing in which a confirmation was missing, so that events are published again"),
    of(&[BackgroundWorker], Counter, "outbox_lost_total", &[], "events", "Events that the broker had lost and that were published again"),
    of(&[BackgroundWorker], Counter, "idempotency_partitions_dropped_total", &[], "days", "Day partitions of idempotency keys that were dropped"),
    of(&[BackgroundWorker], Counter, "idempotency_reaped_total", &[], "keys", "Keys that were taken from holders who are gone"),

    of(&[Worker], Counter, "payments_started_total", &[], "payments", "Workflows that were started"),
    of(&[Worker], Counter, "payments_resumed_total", &[], "payments", "Payments whose workflow was lost and that were taken up again"),
    of(&[Worker], Counter, "payments_ended_total", &["state"], "payments", "Payments that were settled or released, by their end"),
    of(&[Worker], Counter, "payments_needs_operator_total", &["reason"], "times", "Times a payment came to stand before a person"),
    of(&[Worker], Counter, "payments_alerts_total", &["kind"], "times", "Times a person was to be alerted to a payment, repeats counted"),
    of(&[Worker], Counter, "payments_decisions_total", &["action", "outcome"], "decisions", "Decisions that workflows carried out or refused"),
    of(&[Worker], Gauge, "switch_circuit_open", &["switch"], "0 or 1", "Whether submits are held back, because as many in a row as the profile says had no answer"),

    of(&[Api], Histogram, "http_request_seconds", &["method", "route", "status"], "seconds", "Requests, by what was answered"),
    of(&[Api], Counter, "api_payment_requests_total", &["outcome"], "requests", "Requests for a payment, by what came of them"),
    of(&[Api], Counter, "switch_callbacks_total", &["switch", "outcome"], "callbacks", "Callbacks, by switch and by what came of them"),
    of(&[Api], Counter, "inbox_direct_deliveries_total", &["outcome"], "messages", "Notices that the webhook tried to tell a workflow itself"),
    of(&[Api], Counter, "api_rate_limited_total", &["policy"], "requests", "Requests beyond what a client may ask for in a second"),
    of(&[Api], Gauge, "api_event_streams_open", &[], "streams", "Streams of payments' events that are open"),
    of(&[Api], Counter, "api_event_streams_refused_total", &["code"], "streams", "Streams for which there was no room, of the client or of the process"),
    of(&[Api], Counter, "api_overloaded_total", &[], "requests", "Requests beyond those that are worked on at once"),
    of(&[Api], Gauge, "idempotency_circuit_open", &[], "0 or 1", "Whether the idempotency store is left in peace because it does not answer"),
    of(&[Api], Histogram, "idempotency_batch_requests", &[], "requests", "Requests that shared one transaction"),
    of(&[Api], Counter, "idempotency_batches_redone_total", &[], "batches", "Batches that were done again one request at a time"),

    of(&[Notifier], Counter, "events_consumed_total", &["consumer", "as"], "events", "Events that were taken in: now, or known from before"),
    of(&[Notifier], Counter, "events_out_of_order_total", &["consumer"], "times", "Times an event came before an earlier one of its key was taken in, and was put off"),
    of(&[Notifier], Counter, "events_deferred_total", &["consumer"], "times", "Times an event was put off because the database did not answer"),
    of(&[Notifier], Counter, "events_parked_total", &["consumer"], "events", "Events that could not be taken in and were parked"),

    of(&[Notifier], Gauge, "outbound_webhook_deliveries_pending", &[], "deliveries", "Deliveries to active webhook endpoints that are not made yet, counted up to 10,000"),
    of(&[Notifier], Gauge, "outbound_webhook_deliveries_due", &[], "deliveries", "Of those, deliveries whose next attempt is due, counted up to 10,000"),
    of(&[Notifier], Gauge, "outbound_webhook_oldest_due_seconds", &[], "seconds", "For how long the oldest of them has been due"),
    of(&[Notifier], Gauge, "outbound_webhook_endpoints_active", &[], "endpoints", "Webhook endpoints that are told of events"),
    of(&[Notifier], Gauge, "outbound_webhook_endpoints_disabled", &[], "endpoints", "Webhook endpoints that are told nothing, whoever disabled them"),
    of(&[Notifier], Counter, "outbound_webhook_attempts_total", &["outcome"], "attempts", "Attempts to deliver, by what came of them"),
    of(&[Notifier], Counter, "outbound_webhook_endpoints_disabled_total", &["reason"], "endpoints", "Endpoints that were disabled because of what they answered"),

    of(&[Api, Worker, BackgroundWorker, Notifier], Gauge, "database_connections", &[], "connections", "Open connections of the process to the database"),
    of(&[Api, Worker, BackgroundWorker, Notifier], Gauge, "database_connections_idle", &[], "connections", "Of those, connections that nobody uses now"),
    of(&[Api, Worker, BackgroundWorker, Notifier], Gauge, "database_connections_max", &[], "connections", "How many the process may open"),
];
