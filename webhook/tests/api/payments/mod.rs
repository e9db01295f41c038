//! `/api/v1/payments`.

mod cancel;
mod create;
mod events;
mod list;
mod read;
mod stopped;
