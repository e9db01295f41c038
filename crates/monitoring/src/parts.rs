//! Alerts about the processes and what they depend on.

use std::time::Duration;

use crate::alert::Severity::{Critical, Info, Warning};
use crate::alert::{Alert, Page, Severity, camel, spoken};
use crate::metrics::Process;
use crate::task::BackgroundTask;

/// Pages of these alerts.
pub const PARTS: &str = "parts.md";

/// An alert whose page is called as it is.
fn alert(name: &str, expr: &str, held_for_s: u64, severity: Severity, summary: &str, because: &str) -> Alert {
    Alert {
        name: name.to_owned(),
        expr: expr.to_owned(),
        held_for: Duration::from_secs(held_for_s),
        severity,
        summary: summary.to_owned(),
        because: because.to_owned(),
        page: Page::new(PARTS, name),
    }
}

/// Every alert about the parts.
#[must_use]
pub fn alerts() -> Vec<Alert> {
    let mut all: Vec<Alert> =
        [Process::Api, Process::Worker, Process::BackgroundWorker, Process::Notifier].map(gone).into();
    all.extend(BackgroundTask::ALL.iter().map(|task| late(*task)));
    all.extend(others());
    all
}

/// The job of a scrape is the name of the process.
fn gone(process: Process) -> Alert {
    let name = process.as_str();
    let because = match process {
        Process::Api => "nobody can pay, and switches cannot call back",
        Process::Worker => "accepted payments are not started; what is with a switch waits for its answer",
        Process::BackgroundWorker => {
            "nothing is measured, sealed or published any more: most other alerts are silent now"
        }
        Process::Notifier => "customers are told nothing; their payments go on",
    };
    let severity = if process == Process::Notifier { Warning } else { Critical };
    alert(
        &format!("No{}", camel(&name.replace('-', "_"))),
        &format!("absent(up{{job=\"{name}\"}} == 1)"),
        60,
        severity,
        &format!("No {name} answers"),
        because,
    )
}

fn late(task: BackgroundTask) -> Alert {
    let (word, late_s) = (task.as_str(), task.late_after().as_secs());
    alert(
        &format!("RelayLate{}", camel(word)),
        // Of several relays one is enough.
        &format!(
            "time() - max(background_task_last_success_timestamp_seconds{{task=\"{word}\"}}) > {late_s}"
        ),
        0,
        if matches!(task, BackgroundTask::Keep | BackgroundTask::Mend) { Warning } else { Critical },
        &format!("The relay has not managed to {} for {late_s} s", spoken(word)),
        "several of its rounds have failed or hang; a single failure is tried again by itself",
    )
}

fn others() -> Vec<Alert> {
    vec![
        alert(
            "InboxNotDelivered",
            "max(inbox_undelivered_oldest_seconds) > 600",
            60,
            Critical,
            "A callback, cancel or decision has not reached its workflow for ten minutes",
            "the relay tries again every five minutes at the latest: it has failed at least twice since",
        ),
        alert(
            "JournalNotSealed",
            "max(journal_unsealed_oldest_seconds) > 60",
            30,
            Critical,
            "Entries of the journal have not been sealed for a minute",
            "they are sealed every second; until then a change of them would not be seen",
        ),
        alert(
            "SweepLate",
            "max(reconciliation_last_run_age_seconds) > 10800",
            60,
            Warning,
            "The three books have not been compared for three hours",
            "they are compared every hour, and one comparison may take as long as the next is due",
        ),
        alert(
            "SweepBlind",
            "max(reconciliation_unread_books) > 0",
            7200,
            Warning,
            "A book could not be read when the three were compared",
            "a switch without a statement is counted too: leave this alert out where that is so by contract; otherwise two comparisons have missed it",
        ),
        alert(
            "EventsNotPublished",
            "max(outbox_oldest_unpublished_seconds) > 60",
            30,
            Warning,
            "Events have waited for a minute to be published",
            "they are published within half a second; nothing is lost while they wait",
        ),
        alert(
            "EventParked",
            "max(outbox_parked) > 0",
            15,
            Warning,
            "The broker has refused an event five times",
            "it keeps back the later events of its payment, and nothing tries it again",
        ),
        alert(
            "DeliveryParked",
            "max(outbox_parked_deliveries) > 0",
            15,
            Warning,
            "A consumer could not take an event in, five times",
            "a customer or a tenant's endpoint was not told of something, and nothing tries it again",
        ),
        alert(
            "ConsumerBehind",
            "max by (consumer) (events_unprocessed_oldest_seconds) > 60 or max by (consumer) (events_unprocessed) >= 10000",
            30,
            Warning,
            "A consumer is behind what was published",
            "an event is taken in within a second; 10,000 is as far as it is counted",
        ),
        alert(
            "BrokerLosesEvents",
            "sum(increase(outbox_lost_total[10m])) > 0",
            1_800,
            Warning,
            "The broker has been losing events for half an hour",
            "what is lost once is published again within a minute; for ten seconds of it the broker may know its id and keep it out",
        ),
        alert(
            "WebhooksLate",
            "max(outbound_webhook_oldest_due_seconds) > 300",
            60,
            Warning,
            "A delivery to a webhook endpoint has been due for five minutes",
            "what is due is sent at once; an attempt takes ten seconds at most, and an endpoint that hangs keeps only its own waiting",
        ),
        alert(
            "WebhooksNotDelivered",
            "sum(rate(outbound_webhook_attempts_total{outcome!~\"delivered|taken_over\"}[15m])) / sum(rate(outbound_webhook_attempts_total{outcome!=\"taken_over\"}[15m])) > 0.5",
            900,
            Warning,
            "More than half of the attempts to deliver webhooks do not",
            "an endpoint that is down fails alone and is tried ever more seldom; half of all, for so long, is a fault of ours or of a large tenant",
        ),
        alert(
            "WebhooksNotSent",
            "sum(increase(outbound_webhook_attempts_total{outcome=\"not_sent\"}[15m])) > 0",
            0,
            Warning,
            "Webhooks are put off because we cannot send them",
            "another master key, no certificates or changed rules; no endpoint can mend that, and it waits until we do",
        ),
        alert(
            "WebhookEndpointDisabled",
            "sum by (reason) (increase(outbound_webhook_endpoints_disabled_total[1h])) > 0",
            15,
            Info,
            "A webhook endpoint was disabled because of what it answered",
            "its tenant is told nothing there until somebody enables it",
        ),
        alert(
            "IdempotencyStoreLeft",
            "max(idempotency_circuit_open) > 0",
            10,
            Critical,
            "The idempotency store does not answer and is left in peace: payments are refused with 503",
            "the breaker opens after three failures and looks every second: ten of its looks have failed",
        ),
        alert(
            "SwitchLeft",
            "max by (switch) (switch_circuit_open) > 0",
            60,
            Critical,
            "Switch {{ $labels.switch }} gives no answer to submits",
            "the breaker opens after as many failures as the profile says, 20 by default, and tries again every two seconds; payments turn round after 30 s",
        ),
        alert(
            "PoolExhausted",
            "database_connections_idle == 0 and database_connections >= database_connections_max",
            60,
            Warning,
            "{{ $labels.job }} has used all its database connections for a minute",
            "who waits for one longer than three seconds has no outcome",
        ),
        alert(
            "SwitchStopped",
            "max(kill_switches_active{target=\"switch\"}) > 0",
            900,
            Info,
            "A switch takes no new payments: people have stopped it",
            "somebody did this on purpose; after a quarter of an hour everybody should know",
        ),
        alert(
            "CorridorStopped",
            "max(kill_switches_active{target=\"corridor\"}) > 0",
            900,
            Info,
            "A corridor takes no new payments: people have stopped it",
            "somebody did this on purpose; after a quarter of an hour everybody should know",
        ),
        alert(
            "StopForgotten",
            "max(kill_switches_active_oldest_seconds) > 86400",
            60,
            Warning,
            "A stop has stood for a day",
            "a stop is for an emergency; one that stands for a day is a decision that nobody took, or forgot",
        ),
        alert(
            "AccountLimitUsedUp",
            "max(limits_used_up{scope=\"account\"}) > 0",
            15,
            Info,
            "{{ $value }} accounts have used up a limit of today",
            "their payments are rejected until midnight UTC; that is what a limit is for",
        ),
        alert(
            "TenantLimitUsedUp",
            "max(limits_used_up{scope=\"tenant\"}) > 0",
            15,
            Warning,
            "{{ $value }} tenants have used up a limit of today",
            "all their customers' payments are rejected until midnight UTC",
        ),
        alert(
            "WorkflowsLost",
            "sum(increase(payments_resumed_total[15m])) > 0",
            0,
            Warning,
            "{{ $value }} payments were taken up again because their workflow was lost",
            "this is what the starter is for; that workflows are lost at all is worth a look at Temporal",
        ),
        alert(
            "ApiFailing",
            "sum(rate(http_request_seconds_count{status=~\"5..\"}[5m])) / sum(rate(http_request_seconds_count[5m])) > 0.01",
            120,
            Critical,
            "More than 1 % of the requests are answered 5xx",
            "callers repeat what failed, so a little is nothing; 1 % over five minutes is more than a restart",
        ),
        alert(
            "ApiOverloaded",
            "sum(increase(api_overloaded_total[5m])) > 0",
            60,
            Warning,
            "Requests were turned away because too many were worked on at once",
            "a burst is turned away and comes again; a minute is no burst",
        ),
        alert(
            "CallbacksNotBelieved",
            "sum by (switch) (increase(switch_callbacks_total{outcome=\"invalid_signature\"}[10m])) > 10",
            0,
            Warning,
            "Switch {{ $labels.switch }} is not believed: signatures are wrong, or somebody tries",
            "a single one is a repeat that came too late; more than ten in ten minutes is a wrong secret, a wrong clock or an attack",
        ),
        alert(
            "CallbacksUnreadable",
            "sum by (switch) (increase(switch_callbacks_total{outcome=\"unreadable\"}[10m])) > 0",
            0,
            Critical,
            "Switch {{ $labels.switch }} sends signed callbacks that cannot be read",
            "it has changed its form: no confirmation of it comes in any more",
        ),
    ]
}
