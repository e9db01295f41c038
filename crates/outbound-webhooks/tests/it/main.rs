//! Tests on a real database, with real HTTP servers as endpoints. `DATABASE_URL` names a server on which databases may be
//! created.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "an unexpected value fails the test"
)]

mod address_policy;
mod delivery;
mod disabling;
mod endpoints;
mod https;
mod leases;
mod limits;
mod query_cost;
mod replay;
mod retention;
mod support;
