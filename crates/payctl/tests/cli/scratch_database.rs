//! A database for one test, dropped with its value.

use sqlx::Postgres;
use sqlx::migrate::MigrateDatabase as _;

use crate::run::payctl;

/// A unique database name on the server of `DATABASE_URL`. The database does not exist yet.
pub(crate) struct ScratchDatabase {
    url: String,
}

impl ScratchDatabase {
    pub(crate) fn new() -> Self {
        let server =
            std::env::var("DATABASE_URL").expect("DATABASE_URL must name a server that allows new databases");
        let (server, _) = server.rsplit_once('/').expect("DATABASE_URL must end in /database");
        Self { url: format!("{server}/payctl_{}", uuid::Uuid::new_v4().simple()) }
    }

    /// Creates and migrates the database.
    pub(crate) async fn migrated() -> Self {
        let scratch = Self::new();
        payctl(&["migrate", "--database-url", scratch.url()]).await.success();
        scratch
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The same for a session with the rights of payctl's own role, which reads.
    pub(crate) fn reading_url(&self) -> String {
        format!("{}?options[role]=payctl", self.url)
    }

    /// The same for a session with the rights of `payctl reconcile` and `payctl restore-check`.
    pub(crate) fn reconciling_url(&self) -> String {
        format!("{}?options[role]=payctl_reconcile", self.url)
    }
}

impl Drop for ScratchDatabase {
    fn drop(&mut self) {
        let url = self.url.clone();
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(Postgres::force_drop_database(&url)))
        });
        // A panic here would hide the test's own; a leftover database is harmless.
        let _ = dropped.join();
    }
}
