//! Read-only views of payments, accounts and queues, for the API, `payctl` and the metrics.

pub mod explain;
pub mod measure;
pub mod queues;
pub mod statement;
mod trace;
pub mod view;
