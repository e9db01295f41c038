//! Faults and the properties that hold in spite of them. One file per fault or family of faults; test names begin with the
//! number of the fault (`../faults.md`).

mod broker_outage;
mod busy_switch;
#[cfg(target_os = "linux")]
mod clocks;
mod conservation;
mod contradictory_callbacks;
mod crash_points;
mod customer_notifications;
mod cut_commits;
mod event_bank;
mod event_delivery;
mod event_latency;
mod forged_inputs;
mod frozen_workers;
#[cfg(target_os = "linux")]
mod full_disk;
mod golden_table;
mod hung_switch;
mod interruptions;
mod kill_runs;
mod late_release;
mod lost_commits;
mod outbound_webhooks;
mod read_only_database;
mod reconciliation;
mod restored_backups;
mod returned_money;
mod row_lock;
mod silent_database;
mod sla_end;
mod temporal_namespace;
mod truth_table;
mod unanswered_requests;
mod untrue_callbacks;
mod upgrades;
mod workflow_starts;

/// Held by tests that make many payments at once and depend on timing: they run one at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
