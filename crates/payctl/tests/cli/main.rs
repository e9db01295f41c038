//! The program as it is used: arguments in, exit code and text out. Database and switch are real ones; the
//! API, and a switch that lies, are played by the test, so that each answer can be chosen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod bank;
mod completions;
mod database;
mod decide;
mod events;
mod keys;
mod ledger;
mod liar;
mod limits;
mod mock;
mod payments;
mod queues;
mod run;
mod scratch;
mod show;
mod stub;
mod switches;
mod webhooks;
