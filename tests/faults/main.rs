//! What goes wrong, and what holds all the same. One file per fault or family of faults; each test names the
//! fault's number (`../faults.md`).

mod busy_switch;
#[cfg(target_os = "linux")]
mod clocks;
mod contradictory;
mod drift;
mod events;
#[cfg(target_os = "linux")]
mod full_disk;
mod interrupted;
mod late_release;
mod sla_edge;
mod starts;
mod table;
mod truth_table;
mod webhooks;

/// Held by tests that make many payments at once and have instants to meet: one at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
