//! `/api/v1/payments`.

mod cancel;
mod create;
mod list;
mod read;
mod stopped;
