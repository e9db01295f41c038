//! The switch from outside, over HTTP, on a real database of its own per test.
//! `DATABASE_URL` names a server on which databases may be created.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a helper that fails fails its test")]

mod bench;
mod callbacks;
mod cancel;
mod faults;
mod keyless;
mod pages;
mod process;
mod race;
mod recall;
mod statement;
mod submit;
