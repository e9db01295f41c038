//! The state that handlers and tasks of one switch share.

use std::sync::Arc;

use sqlx::PgPool;
use tokio::sync::Notify;

use crate::config::Config;
use crate::settings::Settings;

/// Configuration, settings and database of one switch.
pub(crate) struct Switch {
    pub(crate) config: Config,
    pub(crate) pool: PgPool,
    pub(crate) settings: Settings,
    /// Wakes the completion task: a transfer may be due.
    pub(crate) completion_due: Notify,
    /// Wakes the callback sender: a callback may be due.
    pub(crate) callback_due: Notify,
}

pub(crate) type SharedSwitch = Arc<Switch>;
