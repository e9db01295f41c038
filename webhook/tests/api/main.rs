//! The webhook's router in process on a real database, Temporal unreachable throughout: what is
//! accepted and stored here needs PostgreSQL only. Modules mirror the routes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod accounts;
mod around;
mod callbacks;
mod docs;
mod keys;
mod limits;
mod payments;
mod support;
mod tenants;
mod webhook_endpoints;
