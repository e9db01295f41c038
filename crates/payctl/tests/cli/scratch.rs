//! A database of one test's own; it goes with its value.

use sqlx::Postgres;
use sqlx::migrate::MigrateDatabase as _;

use crate::run::payctl;

/// The name of a database that is not there yet, on the server of `DATABASE_URL`.
pub(crate) struct Scratch {
    url: String,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let server =
            std::env::var("DATABASE_URL").expect("DATABASE_URL names a server where databases may be made");
        let (server, _) = server.rsplit_once('/').expect("DATABASE_URL ends in /database");
        Self { url: format!("{server}/payctl_{}", uuid::Uuid::new_v4().simple()) }
    }

    /// With the payments' tables.
    pub(crate) async fn migrated() -> Self {
        let scratch = Self::new();
        payctl(&["migrate", "--database-url", scratch.url()]).await.done();
        scratch
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let url = self.url.clone();
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(Postgres::force_drop_database(&url)))
        });
        // A database that is left over harms nobody; a panic here would hide the test's own.
        let _ = dropped.join();
    }
}
