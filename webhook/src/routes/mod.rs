//! One file per route, named after its path.

pub(crate) mod accounts;
pub(crate) mod callbacks;
pub(crate) mod docs;
pub(crate) mod history;
pub(crate) mod payments;
pub(crate) mod webhook_endpoints;
