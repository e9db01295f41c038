//! Runs the built binary: arguments in, exit code and text out. Database and mock switch are real; the tests
//! stub the API and faulty switches, to choose each reply.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]

mod api_stub;
mod audit;
mod bank;
mod completions;
mod database;
mod decide;
mod events;
mod faulty_switch;
mod keys;
mod ledger;
mod limits;
mod mock_switch;
mod oidc;
mod payments;
mod queues;
mod restore_check;
mod run;
mod scratch_database;
mod sessions;
mod show;
mod staff;
mod switches;
mod temporal_namespace;
mod webhooks;
mod worker;
