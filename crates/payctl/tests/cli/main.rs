//! The program as it is used: arguments in, exit code and text out. The database is a real one; the
//! API is played by the test, so that each answer can be chosen.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod database;
mod payments;
mod run;
mod scratch;
mod stub;
