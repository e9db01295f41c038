//! Relay and consumers over a real broker that is killed, paused and sent poison messages (R23, R32, S3.5, S3.6).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod delivery;
mod discovery;
mod outages;
mod pipeline;
mod poison;
mod stream;
#[path = "../support/mod.rs"]
mod support;
