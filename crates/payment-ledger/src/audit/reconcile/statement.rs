//! Statement lines of the switches, as read.

use jiff_sqlx::ToSqlx as _;
use payment_protocol::ids::{ReturnId, SwitchName};
use payment_protocol::report::StatementLine;
use postgres_kit::text::replace_nul;

use crate::{Ledger, LedgerError};

impl Ledger {
    /// The cursor of the last line read; `None` to read from the beginning.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn statement_cursor(&self, switch: &SwitchName) -> Result<Option<String>, LedgerError> {
        let cursor =
            sqlx::query_scalar!("SELECT cursor FROM statement_cursors WHERE switch = $1", switch.as_str())
                .fetch_optional(&self.pool)
                .await?;
        Ok(cursor.flatten())
    }

    /// Stores a page of statement lines and its cursor; returns how many lines are new. Existing lines are skipped and the
    /// cursor never moves back (S3.8), so concurrent readers do no harm.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn store_lines(&self, switch: &SwitchName, page: &[StatementLine]) -> Result<u64, LedgerError> {
        let texts = |column: fn(&StatementLine) -> &str| -> Vec<String> {
            page.iter().map(|line| replace_nul(column(line)).into_owned()).collect()
        };
        let references: Vec<Option<String>> = page
            .iter()
            .map(|line| line.reference.as_deref().map(|text| replace_nul(text).into_owned()))
            .collect();
        let statuses: Vec<&str> = page.iter().map(|line| line.status.as_str()).collect();
        let amounts: Vec<i64> = page.iter().map(|line| line.amount_minor).collect();
        let finished_at: Vec<jiff_sqlx::Timestamp> =
            page.iter().map(|line| line.finished_at.to_sqlx()).collect();
        let return_ids: Vec<Option<&str>> =
            page.iter().map(|line| line.return_id.as_ref().map(ReturnId::as_str)).collect();
        let mut tx = self.pool.begin().await?;
        let new = sqlx::query!(
            "INSERT INTO statement_lines (switch, cursor, transfer_id, reference, status, amount_minor, currency, finished_at, return_id)
             SELECT $1, line.* FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[],
                                           $8::timestamptz[], $9::text[]) AS line
             ON CONFLICT DO NOTHING",
            switch.as_str(),
            &texts(|line| &line.cursor),
            &texts(|line| &line.transfer_id),
            &references as &[Option<String>],
            &statuses as &[&str],
            &amounts,
            &texts(|line| &line.currency),
            &finished_at as &[jiff_sqlx::Timestamp],
            &return_ids as &[Option<&str>],
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        sqlx::query!(
            "INSERT INTO statement_cursors AS c (switch, cursor) VALUES ($1, $2)
             ON CONFLICT (switch) DO UPDATE
             SET read_at = clock_timestamp(),
                 cursor = CASE WHEN excluded.cursor IS NULL OR EXISTS (
                     SELECT FROM statement_lines page JOIN statement_lines present USING (switch)
                     WHERE switch = $1 AND page.cursor = excluded.cursor AND present.cursor = c.cursor
                       AND page.line_id < present.line_id)
                 THEN c.cursor ELSE excluded.cursor END",
            switch.as_str(),
            page.last().map(|line| replace_nul(&line.cursor).into_owned()),
        )
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(new)
    }

    /// Number of lines stored after the line `line_id`.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn count_lines_after(&self, line_id: i64) -> Result<u64, LedgerError> {
        let count = sqlx::query_scalar!(
            r#"SELECT count(*) AS "count!" FROM statement_lines WHERE line_id > $1"#,
            line_id
        )
        .fetch_one(&self.pool)
        .await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}
