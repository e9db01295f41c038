//! The lines of a switch's statement, as they were read.

use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::SwitchName;
use payment_protocol::report::StatementLine;

use crate::{Ledger, LedgerError, writes};

impl Ledger {
    /// How far the statement of a switch was read; none from its beginning.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn statement_cursor(&self, switch: &SwitchName) -> Result<Option<String>, LedgerError> {
        let place =
            sqlx::query_scalar!("SELECT cursor FROM statement_cursors WHERE switch = $1", switch.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(place.flatten())
    }

    /// Stores a page, and how far it goes; how many of its lines are new. Lines that are there already stay as they are, so
    /// that two readers do no harm.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn store_lines(&self, switch: &SwitchName, page: &[StatementLine]) -> Result<u64, LedgerError> {
        let words = |of: fn(&StatementLine) -> &str| -> Vec<String> {
            page.iter().map(|line| writes::storable(of(line)).into_owned()).collect()
        };
        let references: Vec<Option<String>> = page
            .iter()
            .map(|line| line.reference.as_deref().map(|words| writes::storable(words).into_owned()))
            .collect();
        let statuses: Vec<&str> = page.iter().map(|line| line.status.as_str()).collect();
        let amounts: Vec<i64> = page.iter().map(|line| line.amount_minor).collect();
        let ends: Vec<jiff_sqlx::Timestamp> = page.iter().map(|line| line.finished_at.to_sqlx()).collect();
        let mut tx = self.pool.begin().await?;
        let new = sqlx::query!(
            "INSERT INTO statement_lines (switch, cursor, transfer_id, reference, status, amount_minor, currency, finished_at)
             SELECT $1, line.* FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[],
                                           $8::timestamptz[]) AS line
             ON CONFLICT DO NOTHING",
            switch.as_str(),
            &words(|line| &line.cursor),
            &words(|line| &line.transfer_id),
            &references as &[Option<String>],
            &statuses as &[&str],
            &amounts,
            &words(|line| &line.currency),
            &ends as &[jiff_sqlx::Timestamp],
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        sqlx::query!(
            "INSERT INTO statement_cursors (switch, cursor) VALUES ($1, $2)
             ON CONFLICT (switch) DO UPDATE SET cursor = coalesce(excluded.cursor, statement_cursors.cursor),
                                                read_at = clock_timestamp()",
            switch.as_str(),
            page.last().map(|line| writes::storable(&line.cursor).into_owned()),
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(new)
    }
}
