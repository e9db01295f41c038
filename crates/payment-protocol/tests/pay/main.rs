//! The payment as straight-line code over a scripted port: which calls are made, in which order, and with which
//! result the payment ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod operator;
mod paths;
mod recovery;
mod script;
mod strategies;
#[path = "../support/mod.rs"]
mod support;
