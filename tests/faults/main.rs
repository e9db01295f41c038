//! Faults and the properties that hold in spite of them. One file per fault or family of faults; test names begin with the
//! number of the fault (`../faults.md`).

mod broker_outage;
mod busy_switch;
#[cfg(target_os = "linux")]
mod clocks;
mod conservation;
mod crash_points;
mod customer_notifications;
mod cut_commits;
mod event_bank;
mod event_delivery;
mod event_latency;
mod frozen_workers;
#[cfg(target_os = "linux")]
mod full_disk;
mod hung_switch;
mod kill_runs;
mod lost_commits;
mod outbound_webhooks;
mod read_only_database;
mod reconciliation;
mod restored_backups;
mod silent_database;
mod temporal_namespace;
mod unanswered_requests;
mod upgrades;
mod workflow_starts;

/// Held by tests that make many payments at once and depend on timing: those of this program run one at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
