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
    let processes = [
        Process::PaymentsApi,
        Process::PaymentWorker,
        Process::BackgroundWorker,
        Process::Notifier,
        Process::OperatorApi,
    ];
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
            "Customers cannot create or read payments, and switches cannot send callbacks. Read the end of the payments-api's log for why it stopped, and start it again.",
        ),
        Process::PaymentWorker => (
            Critical,
            "Customers' accepted payments do not start and open payments do not advance. Read the end of the payment-worker's log for why it stopped, and start it again.",
        ),
        Process::BackgroundWorker => (
            Critical,
            "Most other alerts are silent because their metrics are missing; customers and tenants get no notifications, and no journal entry is sealed. Read the end of the background-worker's log for why it stopped, and start it again.",
        ),
        Process::Notifier => (
            Warning,
            "Customers and tenants get no notifications and webhooks; payments continue. Read the end of the notifier's log for why it stopped, and start it again.",
        ),
        Process::OperatorApi => (
            Warning,
            "Operators cannot log in and decide over the API; payments continue, and those that need an operator wait. Read the end of the operator-api's log for why it stopped, and start it again.",
        ),
    };
    let name = format!("{}Down", pascal_case(job));
    Alert {
        expr: format!("absent(up{{job=\"{job}\"}} == 1)"),
        pending_for: Duration::from_secs(60),
        severity,
        summary: format!("Prometheus reaches no {job} process"),
        description: description.to_owned(),
        page: Page::new(SERVICE_ALERTS, &name),
        name,
    }
}

/// The alert on a stalled background task; of several background-workers, one that succeeds is enough.
fn task_alert(task: BackgroundTask) -> Alert {
    let (word, limit_s) = (task.as_str(), task.stalled_after().as_secs());
    let (severity, affected) = match task {
        BackgroundTask::InboxDelivery => (
            Critical,
            "Callbacks, customers' cancel requests and operator decisions may not reach their payments.",
        ),
        BackgroundTask::AccountRestoring => (
            Critical,
            "Customers' accounts may not be restored in time when a switch does not confirm; the payment-workers restore them a moment later while they run.",
        ),
        BackgroundTask::MetricsCollection => {
            (Critical, "Nobody is affected yet, but most gauges are stale, so other alerts may not fire.")
        }
        BackgroundTask::HoldAudit => {
            (Critical, "Nobody is affected yet, but a wrong hold in a customer's account is not detected.")
        }
        BackgroundTask::JournalSealing => {
            (Critical, "Nobody is affected yet, but a change of unsealed journal entries is not detected.")
        }
        BackgroundTask::HeadsExport => (
            Warning,
            "Nobody is affected yet, but who may write all tables could rebuild the hash chains since the last exported heads.",
        ),
        BackgroundTask::PartitionMaintenance => (
            Warning,
            "Nobody is affected yet, but idempotency keys and published events use more and more disk space.",
        ),
    };
    let name = format!("{}Stalled", pascal_case(word));
    Alert {
        expr: format!(
            "time() - max(background_task_last_success_timestamp_seconds{{task=\"{word}\"}}) > {limit_s}"
        ),
        pending_for: Duration::ZERO,
        severity,
        summary: format!(
            "The background task {word} of the background-worker has not succeeded for {limit_s} s"
        ),
        description: format!("{affected} Read why the task {word} fails in the background-worker's log."),
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
        summary: "A callback, cancel request, final status or operator decision has not reached its workflow for 10 minutes",
        description: "The customer's payment does not advance. Check first that Temporal answers and that a payment-worker is running.",
    },
    // Entries are sealed every second.
    Rule {
        name: "JournalSealingBacklog",
        expr: "max(journal_unsealed_oldest_seconds) > 60",
        pending_s: 30,
        severity: Critical,
        summary: "Entries of the ledger's journal have not been sealed into the hash chain for 1 minute",
        description: "Nobody is affected yet, but a change of an unsealed entry is not detected. Check first whether the alert JournalSealingStalled or BackgroundWorkerDown fires, and follow it.",
    },
    // A run starts every hour, and may take until the next one is due.
    Rule {
        name: "ReconciliationOverdue",
        expr: "max(reconciliation_last_run_age_seconds) > 10800",
        pending_s: 60,
        severity: Warning,
        summary: "No reconciliation run (ledger against switch statements and workflows) has finished for 3 hours",
        description: "Nobody is affected yet, but drift between the ledger and the switches is not detected. Check first in the Temporal UI whether the reconciliation schedule exists and why its last run failed.",
    },
    // Once a day by default.
    Rule {
        name: "FullReconciliationOverdue",
        expr: "max(reconciliation_last_full_run_age_seconds) > 259200",
        pending_s: 60,
        severity: Warning,
        summary: "No reconciliation run over everything has finished for 3 days",
        description: "Nobody is affected yet, but drift that is older than the window of the hourly runs, and a journal that was changed there, is not detected. Check first in the Temporal UI whether the schedule reconciliation-of-everything exists and why its last run failed.",
    },
    // Two runs have missed the source. A switch without a statement counts as unread.
    Rule {
        name: "ReconciliationIncomplete",
        expr: "max(reconciliation_unread_sources) > 0",
        pending_s: 7_200,
        severity: Warning,
        summary: "Reconciliation runs could not read a switch statement or the list of workflows for 2 hours",
        description: "Nobody is affected yet, but drift between the ledger and the unread statement or list is not detected. `payctl reconcile` shows what could not be read and why.",
    },
    Rule {
        name: "ErasureFailing",
        expr: "max(erasures_failing) > 0",
        pending_s: 60,
        severity: Warning,
        summary: "The database refuses to erase personal fields of a payment",
        description: "Personal fields that two operators had erased are still stored. The payment is tried again every hour, and the others go on. The background-worker's log names the account, the payment and the reason.",
    },
    // A payment ends within days of its acceptance, and may be erased `background_worker.erase_after_s` after its end.
    Rule {
        name: "ErasureOverdue",
        expr: "max(erasures_overdue_seconds) > 864000",
        pending_s: 60,
        severity: Warning,
        summary: "An erasure of personal fields has been overdue for 10 days",
        description: "Personal fields that two operators had erased may still be stored: those of payments with something open. `payctl accounts show ACCOUNT --tenant TENANT` shows how many payments are erased and how many wait; close what is open of those.",
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
        summary: "Outbox events have been waiting for 1 minute to be published to the broker",
        description: "Customers and tenants get notifications and webhooks late; no event is lost. Check first that the broker answers, then read the outbox relay's warnings in the background-worker's log.",
    },
    Rule {
        name: "OutboxEventParked",
        expr: "max(outbox_parked) > 0",
        pending_s: 15,
        severity: Warning,
        summary: "The broker refused an outbox event repeatedly and the outbox relay parked it",
        description: "The customer and the tenant get no updates of the payment: its later events wait, too. Read the broker's reason with `payctl events parked`, remove the cause, and run `payctl events retry`.",
    },
    Rule {
        name: "ConsumerMessageParked",
        expr: "max(consumer_parked_messages) > 0",
        pending_s: 15,
        severity: Warning,
        summary: "A consumer of the notifier failed to process a message repeatedly and parked it",
        description: "A customer or a tenant was not notified, and no retry follows. Read why with `payctl events parked`, then run `payctl events republish`, or `payctl events discard` if the message can never be processed.",
    },
    // Events are processed within a second; the backlog is counted up to 10,000.
    Rule {
        name: "ConsumerLagging",
        expr: "max by (consumer) (events_unprocessed_oldest_seconds) > 60 or max by (consumer) (events_unprocessed) >= 10000",
        pending_s: 30,
        severity: Warning,
        summary: "The notifier's consumer {{ $labels.consumer }} lags behind the published events",
        description: "Customers or tenants are notified late. Check first that a notifier is running, then read the consumer's warnings in its log.",
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
        summary: "An outbound webhook delivery has been due for 5 minutes without a delivery attempt",
        description: "Tenants receive their events late; payments continue. Check first that a notifier is running and that outbound_webhooks.master_key is set in its configuration.",
    },
    // An endpoint that is down is attempted less and less often: half of all attempts is an error of ours or of a large tenant.
    Rule {
        name: "WebhookFailureRateHigh",
        expr: "sum(rate(outbound_webhook_attempts_total{outcome!~\"delivered|lease_lost\"}[15m])) / sum(rate(outbound_webhook_attempts_total{outcome!=\"lease_lost\"}[15m])) > 0.5",
        pending_s: 900,
        severity: Warning,
        summary: "More than half of the delivery attempts of outbound webhooks have failed for 15 minutes",
        description: "Tenants receive their events late. Check first with `payctl webhooks list` whether the endpoints of one tenant or of all tenants fail.",
    },
    Rule {
        name: "WebhookSendingBlocked",
        expr: "sum(increase(outbound_webhook_attempts_total{outcome=\"not_sent\"}[15m])) > 0",
        pending_s: 0,
        severity: Warning,
        summary: "Outbound webhook deliveries are deferred because the notifier cannot send them",
        description: "Tenants receive no events until the notifier's configuration is corrected: master key, root certificates or allowed networks. Read why with `payctl webhooks deliveries ENDPOINT`.",
    },
    Rule {
        name: "WebhookEndpointDisabled",
        expr: "sum by (reason) (increase(outbound_webhook_endpoints_disabled_total[1h])) > 0",
        pending_s: 15,
        severity: Info,
        summary: "The notifier disabled a tenant's webhook endpoint because of its responses (reason: {{ $labels.reason }})",
        description: "The tenant receives no events at the endpoint until the tenant enables it. Find the endpoint with `payctl webhooks list` and inform its tenant.",
    },
];

/// Alerts on circuits, connection pools and the database's settings.
const CIRCUIT_RULES: &[Rule] = &[
    // The circuit opens after 3 failures and probes every second: 10 probes have failed.
    Rule {
        name: "IdempotencyCircuitOpen",
        expr: "max(idempotency_circuit_open) > 0",
        pending_s: 10,
        severity: Critical,
        summary: "The circuit of the idempotency store is open: its database did not answer several times in a row",
        description: "Customers' new payments are all refused with 503; clients may repeat them safely. Check first that the payments-api's database answers and accepts writes.",
    },
    // The circuit opens after the profile's `breaker_failures`, 20 by default, and probes every 2 s.
    Rule {
        name: "SwitchCircuitOpen",
        expr: "max by (switch) (switch_circuit_open) > 0",
        pending_s: 60,
        severity: Critical,
        summary: "The circuit of switch {{ $labels.switch }} is open: submits to it are held back after failures in a row",
        description: "Customers' payments through the switch fail when their submit time budget (submit_budget_ms) ends. Ask the switch's operators first whether the switch is down.",
    },
    // A connection is awaited for 3 s at most.
    Rule {
        name: "DatabasePoolExhausted",
        expr: "database_connections_idle == 0 and database_connections >= database_connections_max",
        pending_s: 60,
        severity: Warning,
        summary: "The process {{ $labels.job }} has used all of its database connections for 1 minute",
        description: "Customers' requests or payment steps fail after waiting 3 s for a connection; clients or Temporal repeat them. Look first in `pg_stat_activity` for locks and slow statements.",
    },
    // A base backup is connected like a standby, and ends.
    Rule {
        name: "LedgerCommitsMayBeLost",
        expr: "max by (reason) (ledger_commits_may_be_lost) > 0",
        pending_s: 900,
        severity: Critical,
        summary: "The settings of the ledger's PostgreSQL allow a confirmed commit to be lost (reason: {{ $labels.reason }})",
        description: "Nobody is affected until the server crashes or a standby is promoted; then customers' money may leave twice or without a record. Read in the runbook which setting the reason names, and correct it before any failover.",
    },
];

/// Alerts on kill switches and limits.
const ADMISSION_RULES: &[Rule] = &[
    Rule {
        name: "RestoresOverdue",
        expr: "max(restores_overdue_seconds) > 2",
        pending_s: 15,
        severity: Critical,
        summary: "Customers' accounts are not restored although no confirmation arrived in time",
        description: "The law gives a euro-area bank ten seconds. Read the warnings of the background-worker about account_restoring: the ledger's database does not answer in time, or it refuses a single payment's advance.",
    },
    Rule {
        name: "RestoredLate",
        expr: "max(restores_late) > 0",
        pending_s: 0,
        severity: Critical,
        summary: "Customers' accounts were restored more than a second late within the last hour",
        description: "The profiles leave a second to the law's ten seconds. Find the payments and the cause in the runbook: a database that did not answer, locked accounts, or too few processes.",
    },
    Rule {
        name: "RecallsOverdue",
        expr: "max by (switch) (recalls_overdue) > 0",
        pending_s: 15,
        severity: Warning,
        summary: "A recall at the switch {{ $labels.switch }} has no answer in its time, or its promised money is not back",
        description: "The bank bears the amount meanwhile. Find the payments in the runbook, ask the switch's operators, and collect the amount from the customer or write it off if the receiving bank keeps it.",
    },
    Rule {
        name: "ClaimsNearLimit",
        expr: "max by (switch) (claims_open_minor) > on (switch) 0.5 * max by (switch) (claims_limit_minor)",
        pending_s: 15,
        severity: Warning,
        summary: "The bank's open claims of the switch {{ $labels.switch }} have reached half of their limit",
        description: "The bank has paid customers whose transfers the switch does not confirm. At the limit new payments of the switch are refused with 503. Ask the switch's operators why confirmations are missing, and collect old claims (`payctl exceptions`).",
    },
    Rule {
        name: "ClaimsAtLimit",
        expr: "max by (switch) (claims_open_minor) >= on (switch) max by (switch) (claims_limit_minor)",
        pending_s: 0,
        severity: Critical,
        summary: "The bank's open claims of the switch {{ $labels.switch }} have reached their limit, and new payments are refused",
        description: "New payments of the switch are refused with 503; restores go on, and accepted payments too. Ask the switch's operators why confirmations are missing, and collect or write off old claims (`payctl exceptions`).",
    },
    Rule {
        name: "KillSwitchActiveForSwitch",
        expr: "max(kill_switches_active{target=\"switch\"}) > 0",
        pending_s: 900,
        severity: Info,
        summary: "An operator's kill switch has stopped new payments to a switch for 15 minutes",
        description: "Customers' new payments to the switch are refused with 503; accepted payments continue. `payctl kill-switch list` shows who set the kill switch and why.",
    },
    Rule {
        name: "KillSwitchActiveForCorridor",
        expr: "max(kill_switches_active{target=\"corridor\"}) > 0",
        pending_s: 900,
        severity: Info,
        summary: "An operator's kill switch has stopped new payments of a corridor for 15 minutes",
        description: "Customers' new payments in the corridor's currency to its destination accounts are refused with 503; accepted payments continue. `payctl kill-switch list` shows who set the kill switch and why.",
    },
    // A kill switch is meant for an emergency.
    Rule {
        name: "KillSwitchActiveTooLong",
        expr: "max(kill_switches_active_oldest_seconds) > 86400",
        pending_s: 60,
        severity: Warning,
        summary: "A kill switch has been active for more than 1 day",
        description: "Customers' new payments of its switch or corridor are still refused with 503. Find who set it with `payctl kill-switch list`, and ask that operator whether to lift it.",
    },
    Rule {
        name: "AccountLimitExhausted",
        expr: "max(limits_exhausted{scope=\"account\"}) > 0",
        pending_s: 15,
        severity: Info,
        summary: "Customers' accounts have used up a payment limit for today (limits: {{ $value }})",
        description: "Further payments from the accounts are rejected until midnight UTC, as the limits require. `payctl limits list` shows the accounts, limits and use.",
    },
    Rule {
        name: "TenantLimitExhausted",
        expr: "max(limits_exhausted{scope=\"tenant\"}) > 0",
        pending_s: 15,
        severity: Warning,
        summary: "Tenants have used up a payment limit for today (limits: {{ $value }})",
        description: "Payments of all customers of these tenants are rejected until midnight UTC. Find the tenants with `payctl limits list`, and ask them whether the volume is legitimate.",
    },
];

/// Alerts on the API, the callbacks and workflow recovery.
const API_RULES: &[Rule] = &[
    Rule {
        name: "PaymentWorkflowLost",
        expr: "sum(increase(payments_resumed_total[15m])) > 0",
        pending_s: 0,
        severity: Warning,
        summary: "Open payments lost their Temporal workflow; recovery workflows started (payments: {{ $value }})",
        description: "Customers' payments fail although nothing was wrong with them: a recovery workflow cancels each payment that was reserved and not confirmed. Find out first in the Temporal UI who or what ended their workflows.",
    },
    // Clients repeat failed requests, and a restart stays below 1 % over 5 minutes.
    Rule {
        name: "ApiErrorRateHigh",
        expr: "sum(rate(http_request_duration_seconds_count{status=~\"5..\"}[5m])) / sum(rate(http_request_duration_seconds_count[5m])) > 0.01",
        pending_s: 120,
        severity: Critical,
        summary: "The payments-api answers more than 1 % of its requests with a 5xx status",
        description: "Customers' clients must repeat their requests, which is safe. Find the failing routes first in the metric http_request_duration_seconds, then the errors in the payments-api's log.",
    },
    // A burst ends within a minute.
    Rule {
        name: "ApiOverloaded",
        expr: "sum(increase(api_overloaded_total[5m])) > 0",
        pending_s: 60,
        severity: Warning,
        summary: "The payments-api refuses requests because too many requests are in flight",
        description: "Clients or switches receive 503 `overloaded` and repeat; a payment waits for its callback. Check first in the metric http_request_duration_seconds whether requests are slower or more numerous than usual.",
    },
    // A single one may be a late repetition; more than ten in ten minutes is a wrong secret, a wrong clock or an attack.
    Rule {
        name: "CallbackSignaturesInvalid",
        expr: "sum by (switch) (increase(switch_callbacks_total{outcome=\"invalid_signature\"}[10m])) > 10",
        pending_s: 0,
        severity: Warning,
        summary: "The payments-api refuses callbacks of switch {{ $labels.switch }}: their signatures are wrong",
        description: "Customers' payments through the switch are cancelled at the end of their SLA unless the switch settled them. Read the refused callbacks in the payments-api's log first: a wrong secret, a wrong clock, or an attack.",
    },
    Rule {
        name: "CallbacksUnreadable",
        expr: "sum by (switch) (increase(switch_callbacks_total{outcome=\"unreadable\"}[10m])) > 0",
        pending_s: 0,
        severity: Critical,
        summary: "Switch {{ $labels.switch }} sends correctly signed callbacks that the payments-api cannot parse",
        description: "The switch's confirmations do not reach their payments, which are cancelled at the end of their SLA unless the switch settled them. Compare the callback body in the payments-api's log with the documented callback format first.",
    },
];
