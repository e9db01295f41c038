//! Tests of the switch over HTTP, each with a database of its own. `DATABASE_URL` names a server on which databases may be
//! created.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failing helper fails its test")]

mod callbacks;
mod cancel;
mod concurrency;
mod faults;
mod keyless;
mod pages;
mod process;
mod rails;
mod recall;
mod statement;
mod submit;
mod test_switch;
