//! Every metric of the bank's processes, each listed once. The mock switch has its own list.

use service_kit::metrics::Kind::{Counter, Gauge, Histogram};
use service_kit::metrics::{Kind, Metric};

use Process::{BackgroundWorker, Notifier, OperatorApi, PaymentWorker, PaymentsApi};

/// A process that exports metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// Payments API and switch callbacks.
    PaymentsApi,
    /// Temporal workflows and activities.
    PaymentWorker,
    /// Background tasks.
    BackgroundWorker,
    /// Customer notifications and outbound webhooks.
    Notifier,
    /// Operators' logins and decisions.
    OperatorApi,
}

impl Process {
    /// Name of its package, which is also its Prometheus job.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PaymentsApi => "payments-api",
            Self::PaymentWorker => "payment-worker",
            Self::BackgroundWorker => "background-worker",
            Self::Notifier => "notifier",
            Self::OperatorApi => "operator-api",
        }
    }
}

/// A metric and the processes that export it.
#[derive(Clone, Copy, Debug)]
pub struct MetricEntry {
    /// The processes that export the metric.
    pub exported_by: &'static [Process],
    /// The metric.
    pub metric: Metric,
}

const fn entry(
    exported_by: &'static [Process],
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
    unit: &'static str,
    meaning: &'static str,
) -> MetricEntry {
    MetricEntry { exported_by, metric: Metric { name, kind, unit, labels, meaning } }
}

/// The bank's metrics, by process and subject.
#[rustfmt::skip]
pub const METRICS: &[MetricEntry] = &[
    // Open payments, holds, exceptions, kill switches and limits: exported by the process that does not depend on Temporal.
    entry(&[BackgroundWorker], Gauge, "payments_open", &["state"], "payments", "Payments that have not ended, by state; every open state is present"),
    entry(&[BackgroundWorker], Gauge, "payments_open_oldest_seconds", &["state"], "seconds", "Time since the acceptance of the oldest open payment in the state; 0 if none exists"),
    entry(&[BackgroundWorker], Gauge, "payments_open_idle_seconds", &["state"], "seconds", "Longest time that an open payment of the state has not moved: since its last step, its first cancel attempt, or the time it first needed an operator; of a cancel, less the time by which `alert_after_ms` of the payment's switch exceeds 15 minutes; 0 without such a payment"),
    entry(&[BackgroundWorker], Gauge, "payments_needing_operator", &["reason"], "payments", "Payments in the state needs_operator, by operator reason; every reason is present"),
    entry(&[BackgroundWorker], Gauge, "payments_needing_operator_oldest_seconds", &["reason"], "seconds", "Longest time that a payment has needed an operator for the reason; 0 without such a payment"),
    entry(&[BackgroundWorker], Gauge, "payments_alerted", &["kind"], "payments", "Open payments with a recorded alert, by kind of alert; every kind is present"),
    entry(&[BackgroundWorker], Gauge, "exceptions_open", &["kind"], "exceptions", "Exceptions that no operator decision has closed, by kind; every kind is present"),
    entry(&[BackgroundWorker], Gauge, "exceptions_open_oldest_seconds", &["kind"], "seconds", "Age of the oldest open exception of the kind; 0 if none exists"),
    entry(&[BackgroundWorker], Gauge, "holds_open", &["state", "currency", "decided_by"], "holds", "Open holds by state of their payment; every state is present; the label decided_by is bank before the first submit attempt and switch afterwards"),
    entry(&[BackgroundWorker], Gauge, "holds_open_minor", &["state", "currency", "decided_by"], "minor units", "Total amount of the open holds, by state of their payment"),
    entry(&[BackgroundWorker], Gauge, "holds_open_oldest_seconds", &["state", "currency", "decided_by"], "seconds", "Age of the oldest open hold, by state of its payment; 0 if none exists"),
    entry(&[BackgroundWorker], Gauge, "internal_account_balance_minor", &["account", "currency"], "minor units", "Balance of each internal account of the bank, such as holding (reserved amounts) and escrow (debited and not returned)"),
    entry(&[BackgroundWorker], Gauge, "restores_overdue", &[], "payments", "Payments whose customer's account was due to be restored and is not"),
    entry(&[BackgroundWorker], Gauge, "restores_overdue_seconds", &[], "seconds", "Longest time that the restore of a customer's account has been overdue; 0 without one"),
    entry(&[BackgroundWorker], Gauge, "restores_late", &[], "payments", "Accounts restored within the last hour, more than a second after they were due"),
    entry(&[BackgroundWorker, PaymentWorker], Counter, "accounts_restored_total", &[], "payments", "Customers' accounts that the process restored without a confirmation in time"),
    entry(&[BackgroundWorker], Gauge, "claims_open", &["switch", "currency"], "claims", "Open claims of the bank by the switch of their payments: advances to customers, and money that left and was debited from no customer"),
    entry(&[BackgroundWorker], Gauge, "claims_open_minor", &["switch", "currency"], "minor units", "Total amount of the open claims"),
    entry(&[BackgroundWorker], Gauge, "claims_open_oldest_seconds", &["switch", "currency"], "seconds", "Age of the oldest open claim; 0 if none exists"),
    entry(&[BackgroundWorker], Gauge, "recalls_unfinished", &["switch"], "recalls", "Recalls of ended payments whose answer or promised money is awaited"),
    entry(&[BackgroundWorker], Gauge, "recalls_overdue", &["switch"], "recalls", "Unfinished recalls whose time has ended: for the switch to acknowledge them, for the receiving bank to answer, or for the promised money to come back"),
    entry(&[BackgroundWorker], Gauge, "recalls_overdue_seconds", &["switch"], "seconds", "How long the oldest of them has been overdue; 0 if none is"),
    entry(&[PaymentsApi], Gauge, "claims_limit_minor", &["switch"], "minor units", "Open claims of a switch in one currency from which on its new payments are refused, as configured; absent without a limit"),
    entry(&[BackgroundWorker], Gauge, "kill_switches_active", &["target"], "kill switches", "Active kill switches, by target: switch or corridor"),
    entry(&[BackgroundWorker], Gauge, "kill_switches_active_oldest_seconds", &[], "seconds", "Time since the oldest active kill switch was set; 0 if none exists"),
    entry(&[BackgroundWorker], Gauge, "limits_configured", &["scope"], "limits", "Limits in force, by scope: account or tenant"),
    entry(&[BackgroundWorker], Gauge, "limits_exhausted", &["scope"], "limits", "Limits in force whose allowance of the current day (UTC) is used up, by scope: account or tenant"),
    entry(&[BackgroundWorker], Gauge, "ledger_commits_may_be_lost", &["reason"], "0 or 1", "1 while the settings of the ledger's PostgreSQL allow a confirmed commit to be lost for the reason, 0 otherwise; every reason is present"),

    // The background tasks and their backlogs.
    entry(&[BackgroundWorker], Gauge, "background_task_last_success_timestamp_seconds", &["task"], "seconds since 1970", "Time of the last successful round of each background task; the start of the process before the first one"),
    entry(&[BackgroundWorker], Gauge, "inbox_undelivered", &[], "messages", "Inbox messages (callbacks, cancel requests, final statuses, operator decisions) that no workflow has received"),
    entry(&[BackgroundWorker], Gauge, "inbox_undelivered_oldest_seconds", &[], "seconds", "Age of the oldest undelivered inbox message; 0 if none exists"),
    entry(&[BackgroundWorker], Counter, "inbox_delivered_total", &[], "messages", "Inbox messages that the background-worker delivered to a workflow"),
    entry(&[BackgroundWorker], Counter, "inbox_delivery_failures_total", &[], "attempts", "Failed attempts of the background-worker to deliver an inbox message"),
    entry(&[BackgroundWorker], Gauge, "journal_unsealed", &[], "entries", "Journal entries that are not sealed yet"),
    entry(&[BackgroundWorker], Gauge, "journal_unsealed_oldest_seconds", &[], "seconds", "Age of the oldest unsealed journal entry; 0 if none exists"),
    entry(&[BackgroundWorker], Counter, "journal_sealed_total", &[], "entries", "Journal entries that the background-worker sealed"),
    entry(&[BackgroundWorker], Gauge, "reconciliation_last_run_age_seconds", &[], "seconds", "Time since the last reconciliation run finished; before the first run, time since the first payment"),
    entry(&[BackgroundWorker], Gauge, "reconciliation_last_full_run_age_seconds", &[], "seconds", "The same of a reconciliation run over everything, without a window"),
    entry(&[BackgroundWorker], Gauge, "reconciliation_unread_sources", &[], "sources", "Sources (switch statements, the list of workflows) that the last reconciliation run could not read"),
    entry(&[BackgroundWorker], Gauge, "outbox_unpublished", &[], "events", "Outbox events that wait to be published, without parked ones"),
    entry(&[BackgroundWorker], Gauge, "outbox_unpublished_oldest_seconds", &[], "seconds", "Age of the oldest unpublished outbox event; 0 if none exists"),
    entry(&[BackgroundWorker], Gauge, "outbox_parked", &[], "events", "Outbox events parked because the broker refused them repeatedly"),
    entry(&[BackgroundWorker], Gauge, "consumer_parked_messages", &[], "messages", "Messages parked because a consumer failed to process them repeatedly, without discarded ones"),
    entry(&[BackgroundWorker], Gauge, "events_unprocessed", &["consumer"], "events", "Published events that the consumer has not processed, counted up to 10,000"),
    entry(&[BackgroundWorker], Gauge, "events_unprocessed_oldest_seconds", &["consumer"], "seconds", "Time since the publication of the oldest event that the consumer has not processed; 0 if none exists"),
    entry(&[BackgroundWorker], Counter, "outbox_published_total", &[], "events", "Outbox events confirmed by the broker"),
    entry(&[BackgroundWorker], Counter, "outbox_rejected_total", &[], "attempts", "Attempts of the outbox relay to publish an event that the broker refused"),
    entry(&[BackgroundWorker], Counter, "outbox_unconfirmed_rounds_total", &[], "rounds", "Publishing rounds in which a confirmation of the broker was missing; their unconfirmed events are published again"),
    entry(&[BackgroundWorker], Gauge, "erasures_failing", &[], "accounts", "Accounts whose erasure of personal fields the database refused for a payment"),
    entry(&[BackgroundWorker], Gauge, "erasures_overdue_seconds", &[], "seconds", "How much longer the oldest erasure has been open than a payment must have ended for; 0 if none is open, or for less"),
    entry(&[BackgroundWorker], Counter, "idempotency_partitions_dropped_total", &[], "partitions", "Day partitions of idempotency keys dropped after their retention"),
    entry(&[BackgroundWorker], Counter, "idempotency_reaped_total", &[], "claims", "Claims of idempotency keys released because their process was gone"),

    entry(&[PaymentWorker], Counter, "payments_started_total", &[], "payments", "Payment workflows started"),
    entry(&[PaymentWorker], Counter, "payments_resumed_total", &[], "payments", "Payments whose workflow was lost and for which a recovery workflow was started"),
    entry(&[PaymentWorker], Counter, "payments_ended_total", &["state"], "payments", "Payments that ended by a debit or a release, by final state"),
    entry(&[PaymentWorker], Counter, "payments_needs_operator_total", &["reason"], "transitions", "Transitions of payments into the state needs_operator, by operator reason"),
    entry(&[PaymentWorker], Counter, "payments_alerts_total", &["kind"], "alerts", "Alerts raised for single payments, by kind, repetitions included"),
    entry(&[PaymentWorker], Counter, "payments_decisions_total", &["action", "outcome"], "decisions", "Operator decisions that a workflow applied or refused, by action and outcome"),
    entry(&[PaymentWorker], Gauge, "switch_circuit_open", &["switch"], "0 or 1", "1 while the circuit of the switch is open and submits are held back, 0 otherwise"),

    entry(&[PaymentsApi], Histogram, "http_request_duration_seconds", &["method", "route", "status"], "seconds", "Duration of HTTP requests, by method, route and response status"),
    entry(&[PaymentsApi], Counter, "api_payment_requests_total", &["outcome"], "requests", "Requests to create a payment, by outcome"),
    entry(&[PaymentsApi], Counter, "switch_callbacks_total", &["switch", "outcome"], "callbacks", "Switch callbacks that the payments-api received, by switch and outcome"),
    entry(&[PaymentsApi], Counter, "inbox_direct_deliveries_total", &["outcome"], "messages", "Inbox messages that the payments-api tried to deliver to a workflow right after storing them, by outcome"),
    entry(&[PaymentsApi], Counter, "api_rate_limited_total", &["policy"], "requests", "Requests that the payments-api refused because the client exceeded its rate limit, by rate limit policy"),
    entry(&[PaymentsApi], Gauge, "api_event_streams_open", &[], "streams", "Open event streams (server-sent events)"),
    entry(&[PaymentsApi], Counter, "api_event_streams_refused_total", &["code"], "streams", "Event streams that the payments-api refused because the client or the process had reached its limit, by error code"),
    entry(&[PaymentsApi], Counter, "api_overloaded_total", &["from", "limit"], "requests", "Requests that the payments-api refused because too many requests were in flight, of all or of one address"),
    entry(&[PaymentsApi], Counter, "http_connections_refused_total", &["limit"], "connections", "Connections that the HTTP server closed at once because too many were open, of all or of one address"),
    entry(&[PaymentsApi], Gauge, "idempotency_circuit_open", &[], "0 or 1", "1 while the circuit of the idempotency store is open and payments are refused with 503, 0 otherwise"),
    entry(&[PaymentsApi], Histogram, "idempotency_batch_requests", &[], "requests", "Requests that shared one transaction of the idempotency store"),
    entry(&[PaymentsApi], Counter, "idempotency_batches_redone_total", &[], "batches", "Batches of the idempotency store whose transaction failed and whose requests were repeated one at a time"),

    entry(&[PaymentWorker, PaymentsApi], Histogram, "ledger_group_steps", &[], "steps", "Steps of the ledger that shared one transaction"),
    entry(&[PaymentWorker, PaymentsApi], Counter, "ledger_groups_failed_total", &[], "groups", "Groups of ledger steps whose transaction failed and whose steps were made alone"),

    entry(&[Notifier], Counter, "events_consumed_total", &["consumer", "outcome"], "events", "Events that the consumer consumed, by outcome: processed, or a duplicate of a processed event"),
    entry(&[Notifier], Counter, "events_out_of_order_total", &["consumer"], "deliveries", "Deliveries of an event to the consumer ahead of an earlier event of its key; the consumer defers the event"),
    entry(&[Notifier], Counter, "events_deferred_total", &["consumer"], "deliveries", "Deliveries of an event that the consumer deferred because its database was unavailable"),
    entry(&[Notifier], Counter, "events_parked_total", &["consumer"], "events", "Events that the consumer parked because it failed to process them repeatedly"),

    entry(&[Notifier], Gauge, "outbound_webhook_deliveries_pending", &[], "deliveries", "Pending outbound webhook deliveries to active endpoints, counted up to 10,000"),
    entry(&[Notifier], Gauge, "outbound_webhook_deliveries_due", &[], "deliveries", "Pending outbound webhook deliveries to active endpoints whose next attempt is due, counted up to 10,000"),
    entry(&[Notifier], Gauge, "outbound_webhook_oldest_due_seconds", &[], "seconds", "Longest time that the next attempt of a pending outbound webhook delivery has been due; 0 if none is due"),
    entry(&[Notifier], Gauge, "outbound_webhook_endpoints_active", &[], "endpoints", "Active webhook endpoints"),
    entry(&[Notifier], Gauge, "outbound_webhook_endpoints_disabled", &[], "endpoints", "Disabled webhook endpoints, whether by the tenant, an operator or the service"),
    entry(&[Notifier], Counter, "outbound_webhook_attempts_total", &["outcome"], "attempts", "Delivery attempts of outbound webhooks, by outcome"),
    entry(&[Notifier], Counter, "outbound_webhook_endpoints_disabled_total", &["reason"], "endpoints", "Webhook endpoints disabled by the service because of their responses, by reason"),

    entry(&[OperatorApi], Histogram, "operator_request_duration_seconds", &["method", "route", "status"], "seconds", "Duration of operators' requests, by method, route and response status"),
    entry(&[OperatorApi], Counter, "operator_logins_total", &["outcome"], "logins", "Logins of operators, by outcome: opened or refused; the log has the reason"),

    entry(&[PaymentsApi, PaymentWorker, BackgroundWorker, Notifier, OperatorApi], Gauge, "database_connections", &[], "connections", "Open database connections of the process"),
    entry(&[PaymentsApi, PaymentWorker, BackgroundWorker, Notifier, OperatorApi], Gauge, "database_connections_idle", &[], "connections", "Open database connections of the process that are not in use"),
    entry(&[PaymentsApi, PaymentWorker, BackgroundWorker, Notifier, OperatorApi], Gauge, "database_connections_max", &[], "connections", "Most database connections that the process may open"),
];

/// The metrics of the Temporal SDK that the payment-worker exports, with `_total` behind counters and `_seconds` behind durations.
/// The SDK has more, and more labels; the payment-worker leaves those out.
#[rustfmt::skip]
pub const SDK_METRICS: &[MetricEntry] = &[
    entry(&[PaymentWorker], Gauge, "temporal_worker_task_slots_available", &["task_queue", "worker_type"], "slots", "Tasks that a worker of the process could still begin, by task queue and type of worker; at 0 tasks wait at the Temporal server"),
    entry(&[PaymentWorker], Gauge, "temporal_worker_task_slots_used", &["task_queue", "worker_type"], "slots", "Tasks that a worker of the process is working on, by task queue and type of worker"),
    entry(&[PaymentWorker], Gauge, "temporal_num_pollers", &["task_queue", "poller_type"], "pollers", "Open polls of the process at the Temporal server, by task queue and type of task"),
    entry(&[PaymentWorker], Histogram, "temporal_workflow_task_schedule_to_start_latency_seconds", &[], "seconds", "Time that a workflow task waited at the Temporal server for a worker"),
    entry(&[PaymentWorker], Histogram, "temporal_workflow_task_execution_latency_seconds", &[], "seconds", "Duration of a workflow task in the worker"),
    entry(&[PaymentWorker], Histogram, "temporal_workflow_task_replay_latency_seconds", &[], "seconds", "Duration of the replay of a workflow that was not in the sticky cache"),
    entry(&[PaymentWorker], Counter, "temporal_workflow_task_execution_failed_total", &["failure_reason"], "workflow tasks", "Workflow tasks that failed and are repeated, by reason; a NonDeterminismError means that the code does not match the histories"),
    entry(&[PaymentWorker], Counter, "temporal_workflow_task_queue_poll_succeed_total", &[], "polls", "Polls for workflow tasks that returned a task"),
    entry(&[PaymentWorker], Counter, "temporal_workflow_task_queue_poll_empty_total", &[], "polls", "Polls for workflow tasks that ended without a task"),
    entry(&[PaymentWorker], Histogram, "temporal_activity_schedule_to_start_latency_seconds", &[], "seconds", "Time that an activity waited at the Temporal server for a worker"),
    entry(&[PaymentWorker], Histogram, "temporal_activity_execution_latency_seconds", &["activity_type"], "seconds", "Duration of an activity attempt, by activity"),
    entry(&[PaymentWorker], Counter, "temporal_activity_execution_failed_total", &["activity_type"], "attempts", "Activity attempts that failed, by activity; most are repeated"),
    entry(&[PaymentWorker], Histogram, "temporal_local_activity_execution_latency_seconds", &["activity_type"], "seconds", "Duration of a local activity attempt, by activity"),
    entry(&[PaymentWorker], Gauge, "temporal_sticky_cache_size", &["task_queue"], "workflows", "Workflows in the sticky cache of the process"),
    entry(&[PaymentWorker], Counter, "temporal_sticky_cache_hit_total", &[], "workflow tasks", "Workflow tasks whose workflow was in the sticky cache"),
    entry(&[PaymentWorker], Counter, "temporal_sticky_cache_miss_total", &[], "workflow tasks", "Workflow tasks whose workflow had to be replayed, because it was no longer in the sticky cache"),
    entry(&[PaymentWorker], Counter, "temporal_sticky_cache_total_forced_eviction_total", &[], "workflows", "Workflows that the SDK removed from the sticky cache"),
    entry(&[PaymentWorker], Histogram, "temporal_request_latency_seconds", &["operation"], "seconds", "Duration of a request to the Temporal server, by operation"),
    entry(&[PaymentWorker], Counter, "temporal_request_failure_total", &["operation"], "requests", "Failed requests to the Temporal server, by operation; the client repeats most of them"),
    entry(&[PaymentWorker], Histogram, "temporal_long_request_latency_seconds", &["operation"], "seconds", "Duration of a long poll at the Temporal server, by operation; a poll without a task takes about a minute"),
];

/// Every metric of the bank's processes.
pub fn all() -> impl Iterator<Item = &'static MetricEntry> {
    METRICS.iter().chain(SDK_METRICS)
}
