//! The router in process on a real database, with Temporal unreachable throughout: accepting a payment and storing a callback need PostgreSQL only.
//! Modules mirror the routes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed setup fails the test")]
#![expect(clippy::disallowed_methods, reason = "tests plan their own transactions")]

mod accounts;
mod api_keys;
mod callbacks;
mod docs;
mod limits;
mod middleware;
mod payments;
mod support;
mod tenants;
mod webhook_endpoints;
