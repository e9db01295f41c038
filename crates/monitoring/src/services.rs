//! Alerts about the processes and their dependencies.

use std::time::Duration;

use crate::alert::Severity::{Critical, Info, Warning};
use crate::alert::{Alert, Page, Severity, pascal_case};
use crate::background_task::BackgroundTask;
use crate::metrics::Process;

/// Runbook file of these alerts.
pub const SERVICE_ALERTS: &str = "service-alerts.md";

/// Every alert about processes and dependencies.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    let processes =
        [Process::PaymentsApi, Process::PaymentWorker, Process::BackgroundWorker, Process::Notifier];
    let mut all: Vec<Alert> = processes.map(process_alert).into();
    all.extend(BackgroundTask::ALL.iter().map(|task| task_alert(*task)));
    let rules = [BACKLOG_RULES, EVENT_RULES, WEBHOOK_RULES, CIRCUIT_RULES, ADMISSION_RULES, API_RULES];
    all.extend(rules.into_iter().flatten().map(Rule::alert));
    all
}

/// An alert whose runbook section has its name.
struct Rule {
    name: &'static str,
    expr: &'static str,
    /// Seconds that the condition must hold.
    pending_s: u64,
    severity: Severity,
    summary: &'static str,
    description: &'static str,
}

impl Rule {
    fn alert(&self) -> Alert {
        Alert {
            name: self.name.to_owned(),
            expr: self.expr.to_owned(),
            pending_for: Duration::from_secs(self.pending_s),
            severity: self.severity,
            summary: self.summary.to_owned(),
            description: self.description.to_owned(),
            page: Page::new(SERVICE_ALERTS, self.name),
        }
    }
}

/// The alert that fires unless one instance of the process answers scrapes. The Prometheus job has the name of the
/// process.
fn process_alert(process: Process) -> Alert {
    let job = process.as_str();
    let (severity, description) = match process {
        Process::PaymentsApi => (
            Critical,
            "Customers cannot create or read payments, and switches cannot send callbacks. Start the process and read the end of its log.",
        ),
        Process::PaymentWorker => (
            Critical,
            "Accepted payments do not start and open payments do not advance. Start the process and read the end of its log.",
        ),
        Process::BackgroundWorker => (
            Critical,
            "Most other alerts are silent because their metrics are missing; no event is published and no journal entry is sealed. Start the process and read the end of its log.",
        ),
        Process::Notifier => (
            Warning,
            "Customers and webhook endpoints are not notified; payments continue. Start the process and read the end of its log.",
        ),
    };
    let name = format!("{}Down", pascal_case(job));
    Alert {
        expr: format!("absent(up{{job=\"{job}\"}} == 1)"),
        pending_for: Duration::from_secs(60),
        severity,
        summary: format!("No {job} answers scrapes"),
        description: description.to_owned(),
        page: Page::new(SERVICE_ALERTS, &name),
        name,
    }
}

/// The alert on a stalled background task; of several background-workers, one that succeeds is enough.
fn task_alert(task: BackgroundTask) -> Alert {
    let (word, limit_s) = (task.as_str(), task.stalled_after().as_secs());
    let (severity, affected) = match task {
        BackgroundTask::InboxDelivery => {
            (Critical, "Callbacks, cancel requests and operator decisions may not reach their payments.")
        }
        BackgroundTask::MetricsCollection => (Critical, "Gauges are stale, so other alerts may not fire."),
        BackgroundTask::HoldAudit => (Critical, "Wrong holds are not detected."),
        BackgroundTask::JournalSealing => (Critical, "A change of unsealed journal entries is not detected."),
        BackgroundTask::PartitionMaintenance => {
            (Warning, "Idempotency keys and published events use more and more disk space.")
        }
    };
    let name = format!("{}Stalled", pascal_case(word));
    Alert {
        expr: format!(
            "time() - max(background_task_last_success_timestamp_seconds{{task=\"{word}\"}}) > {limit_s}"
        ),
        pending_for: Duration::ZERO,
        severity,
        summary: format!("The background task {word} has had no success for {limit_s} s"),
        description: format!(
            "{affected} Read the cause in the background-worker's log, in the warnings of the task."
        ),
        page: Page::new(SERVICE_ALERTS, &name),
        name,
    }
}

/// Alerts on backlogs of the background tasks.
const BACKLOG_RULES: &[Rule] = &[
    // Delivery is retried at least every 5 minutes: it has failed twice.
    Rule {
        name: "InboxDeliveryOverdue",
        expr: "max(inbox_undelivered_oldest_seconds) > 600",
        pending_s: 60,
        severity: Critical,
        summary: "A callback, cancel request, final status or decision has not reached its workflow for 10 minutes",
        description: "The payment does not advance. Check first that Temporal answers and that a payment-worker is running.",
    },
    // Entries are sealed every second.
    Rule {
        name: "JournalSealingBacklog",
        expr: "max(journal_unsealed_oldest_seconds) > 60",
        pending_s: 30,
        severity: Critical,
        summary: "Journal entries have not been sealed for 1 minute",
        description: "A change of these entries is not detected; no customer is affected. Check first whether JournalSealingStalled or BackgroundWorkerDown fires.",
    },
    // A run starts every hour, and may take until the next one is due.
    Rule {
        name: "ReconciliationOverdue",
        expr: "max(reconciliation_last_run_age_seconds) > 10800",
        pending_s: 60,
        severity: Warning,
        summary: "No reconciliation run has finished for 3 hours",
        description: "Differences between the ledger and the switches are not detected. Check first the reconciliation schedule in the Temporal UI.",
    },
    // Two runs have missed the source. A switch without a statement counts as unread.
    Rule {
        name: "ReconciliationIncomplete",
        expr: "max(reconciliation_unread_sources) > 0",
        pending_s: 7_200,
        severity: Warning,
        summary: "Reconciliation runs could not read a source for 2 hours",
        description: "Differences with this source are not detected. Find the source and the cause with `payctl reconcile`.",
    },
];

/// Alerts on events between outbox, broker and consumers.
const EVENT_RULES: &[Rule] = &[
    // Events are published within half a second.
    Rule {
        name: "OutboxPublishingStalled",
        expr: "max(outbox_unpublished_oldest_seconds) > 60",
        pending_s: 30,
        severity: Warning,
        summary: "Events have been waiting for 1 minute to be published",
        description: "Customers and webhook endpoints are notified late; no event is lost. Check first that the broker answers.",
    },
    Rule {
        name: "OutboxEventParked",
        expr: "max(outbox_parked) > 0",
        pending_s: 15,
        severity: Warning,
        summary: "The broker refused an event repeatedly and the event was parked",
        description: "This event and later events of its payment are not published until an operator retries it. Start with `payctl events parked`.",
    },
    Rule {
        name: "ConsumerMessageParked",
        expr: "max(consumer_parked_messages) > 0",
        pending_s: 15,
        severity: Warning,
        summary: "A consumer failed to process a message repeatedly and the message was parked",
        description: "A customer or a webhook endpoint was not notified, and no retry follows. Start with `payctl events parked`.",
    },
    // Events are processed within a second; the backlog is counted up to 10,000.
    Rule {
        name: "ConsumerLagging",
        expr: "max by (consumer) (events_unprocessed_oldest_seconds) > 60 or max by (consumer) (events_unprocessed) >= 10000",
        pending_s: 30,
        severity: Warning,
        summary: "The consumer {{ $labels.consumer }} lags behind the published events",
        description: "Customers or webhook endpoints are notified late. Check first that a notifier is running.",
    },
];

/// Alerts on outbound webhooks.
const WEBHOOK_RULES: &[Rule] = &[
    // A due delivery is attempted at once, an attempt takes 10 s at most, and a slow endpoint delays only itself.
    Rule {
        name: "WebhookDeliveryOverdue",
        expr: "max(outbound_webhook_oldest_due_seconds) > 300",
        pending_s: 60,
        severity: Warning,
        summary: "A webhook delivery has been due for 5 minutes without an attempt",
        description: "Tenants receive their events late; payments continue. Check first that a notifier is running and has a master key.",
    },
    // An endpoint that is down is attempted less and less often: half of all attempts is an error of ours or of a large tenant.
    Rule {
        name: "WebhookFailureRateHigh",
        expr: "sum(rate(outbound_webhook_attempts_total{outcome!~\"delivered|taken_over\"}[15m])) / sum(rate(outbound_webhook_attempts_total{outcome!=\"taken_over\"}[15m])) > 0.5",
        pending_s: 900,
        severity: Warning,
        summary: "More than half of the webhook delivery attempts have failed for 15 minutes",
        description: "Tenants receive their events late. Check first with `payctl webhooks list` whether one tenant or all are affected.",
    },
    Rule {
        name: "WebhookSendingBlocked",
        expr: "sum(increase(outbound_webhook_attempts_total{outcome=\"not_sent\"}[15m])) > 0",
        pending_s: 0,
        severity: Warning,
        summary: "Webhook deliveries are deferred because this service cannot send them",
        description: "Tenants receive no events until our configuration is corrected: master key, certificates or allowed networks. Start with `payctl webhooks deliveries`.",
    },
    Rule {
        name: "WebhookEndpointDisabled",
        expr: "sum by (reason) (increase(outbound_webhook_endpoints_disabled_total[1h])) > 0",
        pending_s: 15,
        severity: Info,
        summary: "The service disabled a webhook endpoint because of its responses (reason: {{ $labels.reason }})",
        description: "The tenant receives no events at this endpoint until the tenant enables it. Inform the tenant.",
    },
];

/// Alerts on circuits and connection pools.
const CIRCUIT_RULES: &[Rule] = &[
    // The circuit opens after 3 failures and probes every second: 10 probes have failed.
    Rule {
        name: "IdempotencyCircuitOpen",
        expr: "max(idempotency_circuit_open) > 0",
        pending_s: 10,
        severity: Critical,
        summary: "The circuit of the idempotency store is open",
        description: "All new payments are refused with 503; repeating them is safe. Check first that the database answers and accepts writes.",
    },
    // The circuit opens after the profile's `breaker_failures`, 20 by default, and probes every 2 s.
    Rule {
        name: "SwitchCircuitOpen",
        expr: "max by (switch) (switch_circuit_open) > 0",
        pending_s: 60,
        severity: Critical,
        summary: "The circuit of switch {{ $labels.switch }} is open: its submits are held back",
        description: "Payments to this switch are cancelled when their submit budget ends. Contact the switch's operators first.",
    },
    // A connection is awaited for 3 s at most.
    Rule {
        name: "DatabasePoolExhausted",
        expr: "database_connections_idle == 0 and database_connections >= database_connections_max",
        pending_s: 60,
        severity: Warning,
        summary: "{{ $labels.job }} has used all of its database connections for 1 minute",
        description: "Requests and steps fail after 3 s of waiting for a connection and are repeated. Check first `pg_stat_activity` for locks and slow statements.",
    },
];

/// Alerts on kill switches and limits.
const ADMISSION_RULES: &[Rule] = &[
    Rule {
        name: "KillSwitchActiveForSwitch",
        expr: "max(kill_switches_active{target=\"switch\"}) > 0",
        pending_s: 900,
        severity: Info,
        summary: "A kill switch has stopped new payments to a switch for 15 minutes",
        description: "New payments to the switch are refused with 503; accepted payments continue. `payctl kill-switch list` shows who set it and why.",
    },
    Rule {
        name: "KillSwitchActiveForCorridor",
        expr: "max(kill_switches_active{target=\"corridor\"}) > 0",
        pending_s: 900,
        severity: Info,
        summary: "A kill switch has stopped new payments of a corridor for 15 minutes",
        description: "New payments of the corridor are refused with 503; accepted payments continue. `payctl kill-switch list` shows who set it and why.",
    },
    // A kill switch is meant for an emergency.
    Rule {
        name: "KillSwitchActiveTooLong",
        expr: "max(kill_switches_active_oldest_seconds) > 86400",
        pending_s: 60,
        severity: Warning,
        summary: "A kill switch has been active for more than 1 day",
        description: "New payments of its switch or corridor are still refused. Ask the operator who set it whether it can be lifted.",
    },
    Rule {
        name: "AccountLimitExhausted",
        expr: "max(limits_exhausted{scope=\"account\"}) > 0",
        pending_s: 15,
        severity: Info,
        summary: "Accounts have exhausted a limit of the current day (limits: {{ $value }})",
        description: "Further payments from these accounts are rejected until midnight UTC, as configured. `payctl limits list` shows limits and use.",
    },
    Rule {
        name: "TenantLimitExhausted",
        expr: "max(limits_exhausted{scope=\"tenant\"}) > 0",
        pending_s: 15,
        severity: Warning,
        summary: "Tenants have exhausted a limit of the current day (limits: {{ $value }})",
        description: "Payments of all their customers are rejected until midnight UTC. Check first with `payctl limits list` whether the volume is legitimate.",
    },
];

/// Alerts on the API, the callbacks and workflow recovery.
const API_RULES: &[Rule] = &[
    Rule {
        name: "PaymentWorkflowLost",
        expr: "sum(increase(payments_resumed_total[15m])) > 0",
        pending_s: 0,
        severity: Warning,
        summary: "Payments lost their workflow and were recovered (payments: {{ $value }})",
        description: "The recovered payments are cancelled unless they had settled. Find out first who or what terminated the workflows in Temporal.",
    },
    // Clients repeat failed requests, and a restart stays below 1 % over 5 minutes.
    Rule {
        name: "ApiErrorRateHigh",
        expr: "sum(rate(http_request_duration_seconds_count{status=~\"5..\"}[5m])) / sum(rate(http_request_duration_seconds_count[5m])) > 0.01",
        pending_s: 120,
        severity: Critical,
        summary: "More than 1 % of the API requests are answered with a 5xx status",
        description: "Clients must repeat their requests, which is safe. Check first which route and status fail.",
    },
    // A burst ends within a minute.
    Rule {
        name: "ApiOverloaded",
        expr: "sum(increase(api_overloaded_total[5m])) > 0",
        pending_s: 60,
        severity: Warning,
        summary: "Requests are refused because too many requests are in flight",
        description: "Clients receive 503 `overloaded` and repeat. Check first whether requests are slow or more numerous than usual.",
    },
    // A single one may be a late repetition; more than ten in ten minutes is a wrong secret, a wrong clock or an attack.
    Rule {
        name: "CallbackSignaturesInvalid",
        expr: "sum by (switch) (increase(switch_callbacks_total{outcome=\"invalid_signature\"}[10m])) > 10",
        pending_s: 0,
        severity: Warning,
        summary: "Callbacks of switch {{ $labels.switch }} fail signature verification",
        description: "Confirmations of this switch are found by query only, and so later. Check first the secret and the clocks in the payments-api's log.",
    },
    Rule {
        name: "CallbacksUnreadable",
        expr: "sum by (switch) (increase(switch_callbacks_total{outcome=\"unreadable\"}[10m])) > 0",
        pending_s: 0,
        severity: Critical,
        summary: "Switch {{ $labels.switch }} sends authentic callbacks that cannot be parsed",
        description: "Confirmations of this switch are not received. Compare the body in the payments-api's log with the documented format first.",
    },
];
