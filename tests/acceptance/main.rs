//! Payments without failures, and with each kind of failure. Test names begin with the number of the requirement. After each
//! test the bank's ledger is compared with the switch's transfers.

mod budget;
mod cancellation;
mod confirmation;
mod crashes;
mod database_rights;
mod encrypted_links;
mod event_stream;
mod generated_clients;
mod no_worker;
mod operator_api;
mod path_a_submit_failed;
mod path_b_sla_expired;
mod path_c_debit_refused;
mod repeated_requests;
mod sdk_metrics;
mod stored_payloads;
mod traces;
mod trigger;
mod workflow_failures;
