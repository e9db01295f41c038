//! Callbacks, cancels, interruptions and late answers in every state of a payment and at every instant (R6, R17 to R21c, R30), and workflows
//! that somebody else starts (R31). Test names begin with the number of the fault (`../faults.md`).

mod contradictory_callbacks;
mod copies;
mod forged_inputs;
mod golden_table;
mod interruptions;
mod late_release;
mod returned_money;
mod sla_end;
mod truth_table;
mod untrue_callbacks;

/// Held by tests that make many payments at once and depend on timing: those of this program run one at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
