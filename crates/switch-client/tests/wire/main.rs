//! The client against a switch that misbehaves on the wire: for every call the outcome of every status, body and broken
//! response. The rule of each row: only an answer that is exactly a documented definite one is refused, void, not found or
//! cancelled; everything else is unknown, no answer or our fault.
//!
//! | file | content |
//! |---|---|
//! | `server` | a server that answers with the bytes of a script |
//! | `calls` | every call of the client, its definite answer, and its outcome in a word |
//! | `transport`, `bodies`, `statuses` | tables that hold for every call |
//! | `submit`, `query`, `cancel`, `recall`, `listing`, `statement` | tables of one operation |
//! | `tls` | encrypted links: trusted and untrusted certificates on both sides |
//! | `clock`, `busy` | the headers `Date` and `Retry-After`, and the circuit breaker |

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "an unexpected value fails the test")]

mod bodies;
mod busy;
mod calls;
mod cancel;
mod clock;
mod listing;
mod query;
mod recall;
mod server;
mod statement;
mod statuses;
mod submit;
mod tls;
mod transport;
