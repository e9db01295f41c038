//! The routes, one file for each path and verb.

pub(crate) mod account_history;
pub(crate) mod accounts;
pub(crate) mod callbacks;
pub(crate) mod docs;
pub(crate) mod payments;
pub(crate) mod webhook_endpoints;
