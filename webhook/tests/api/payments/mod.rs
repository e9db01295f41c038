//! `/api/v1/payments`.

mod cancel;
mod create;
mod events;
mod kill_switches;
mod list;
mod retrieve;
