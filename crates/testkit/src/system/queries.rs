//! Queries of the bank's database, and waits for its state. Written separately: the tests share no query with the service.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::ensure;
use sqlx::{AssertSqlSafe, Row as _};

use super::{AcceptedPayment, OPENING_MINOR, System};
use crate::auditor::{self, Audit};
use crate::wait::until;

/// Time limit for a payment to reach a state.
const WITHIN: Duration = Duration::from_secs(90);

impl System {
    /// Opens a customer's account with a balance of [`OPENING_MINOR`] in the system's currency.
    ///
    /// # Errors
    /// If PostgreSQL refuses, for example because the account exists.
    pub async fn open_account(&self, account_id: &str) -> anyhow::Result<()> {
        sqlx::query(
            "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor)
             VALUES ($1, 'test', 'customer', $2, 0)",
        )
        .bind(account_id)
        .bind(self.currency)
        .execute(&self.database.pool)
        .await?;
        sqlx::query(
            "WITH done AS (INSERT INTO operations (operation_key, outcome) VALUES ('opening:' || $1, 'done'))
             INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('opening:' || $1, 'fund', 'internal:funding:' || $3, $1, $2, $3)",
        )
        .bind(account_id)
        .bind(OPENING_MINOR)
        .bind(self.currency)
        .execute(&self.database.pool)
        .await?;
        self.expect_deposit(OPENING_MINOR);
        Ok(())
    }

    /// Has [`System::audit`] expect a deposit by operators, in minor units.
    pub fn expect_deposit(&self, amount_minor: i64) {
        self.paid_in_minor.fetch_add(amount_minor, Ordering::Relaxed);
    }

    /// The payment's state in the bank's database.
    ///
    /// # Errors
    /// If the payment does not exist or PostgreSQL does not answer.
    pub async fn state(&self, payment_id: &str) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar("SELECT state FROM payments WHERE payment_id = $1")
            .bind(payment_id)
            .fetch_one(&self.database.pool)
            .await?)
    }

    /// The name of the payment's transfer at its switch: the rail's id once it is minted, else the reference.
    ///
    /// # Errors
    /// If the payment does not exist or PostgreSQL does not answer.
    pub async fn transfer_name(&self, payment_id: &str) -> anyhow::Result<String> {
        Ok(sqlx::query_scalar(
            "SELECT coalesce(rail_id, tx_id || ':submit') FROM payments WHERE payment_id = $1",
        )
        .bind(payment_id)
        .fetch_one(&self.database.pool)
        .await?)
    }

    /// Waits until the payment is in `state`.
    ///
    /// # Errors
    /// If the payment is not in that state in time; the error has its timeline and the end of the worker's log.
    pub async fn wait_for_state(&self, payment_id: &str, state: &str) -> anyhow::Result<()> {
        let expected = format!("{payment_id} is {state}");
        let reached =
            until(&expected, WITHIN, || async { Ok((self.state(payment_id).await? == state).then_some(())) });
        match reached.await {
            Ok(()) => Ok(()),
            Err(error) => {
                let timeline = self.timeline(payment_id).await.unwrap_or_default().join("\n");
                Err(error.context(format!("{timeline}\n{}", self.worker.log_tail())))
            }
        }
    }

    /// Waits until every payment has ended.
    ///
    /// # Errors
    /// If a payment is still open after the time limit; the error has the timelines of the open payments and the end of the
    /// worker's log.
    pub async fn wait_until_all_have_ended(&self) -> anyhow::Result<()> {
        self.wait_until_all_have_ended_within(WITHIN).await
    }

    /// As [`System::wait_until_all_have_ended`], with another time limit.
    ///
    /// # Errors
    /// As there.
    pub async fn wait_until_all_have_ended_within(&self, limit: Duration) -> anyhow::Result<()> {
        let ended = until("every payment has ended", limit, || async {
            let open: i64 = sqlx::query_scalar("SELECT count(*) FROM payments WHERE ended_at IS NULL")
                .fetch_one(&self.database.pool)
                .await?;
            Ok((open == 0).then_some(()))
        });
        let Err(error) = ended.await else { return Ok(()) };
        let open: Vec<String> =
            sqlx::query_scalar("SELECT payment_id FROM payments WHERE ended_at IS NULL LIMIT 5")
                .fetch_all(&self.database.pool)
                .await?;
        let mut context = String::new();
        for payment_id in open {
            let timeline = self.timeline(&payment_id).await?.join("\n");
            context.push_str(&format!("{payment_id} is open:\n{timeline}\n"));
        }
        Err(error.context(context + &self.worker.log_tail()))
    }

    /// The payment's timeline, each entry as `state: detail`.
    ///
    /// # Errors
    /// If PostgreSQL does not answer.
    pub async fn timeline(&self, payment_id: &str) -> anyhow::Result<Vec<String>> {
        let rows = sqlx::query("SELECT state, detail FROM timeline WHERE payment_id = $1 ORDER BY entry_id")
            .bind(payment_id)
            .fetch_all(&self.database.pool)
            .await?;
        Ok(rows
            .iter()
            .map(|row| format!("{}: {}", row.get::<String, _>(0), row.get::<String, _>(1)))
            .collect())
    }

    /// Kinds of the payment's exceptions, sorted.
    ///
    /// # Errors
    /// If PostgreSQL does not answer.
    pub async fn exceptions(&self, payment_id: &str) -> anyhow::Result<Vec<String>> {
        Ok(sqlx::query_scalar("SELECT kind FROM exceptions WHERE payment_id = $1 ORDER BY kind")
            .bind(payment_id)
            .fetch_all(&self.database.pool)
            .await?)
    }

    /// Amounts that a payment's customer was debited, in minor units; at most one, if the ledger is right.
    ///
    /// # Errors
    /// If PostgreSQL does not answer.
    pub async fn debits(&self, payment_id: &str) -> anyhow::Result<Vec<i64>> {
        Ok(sqlx::query_scalar(
            "SELECT j.amount_minor FROM journal j JOIN payments p USING (payment_id)
             WHERE payment_id = $1 AND (j.kind = 'debit' OR j.kind = 'late_debit' AND j.debit_account = p.source_account)
             ORDER BY j.entry_id",
        )
        .bind(payment_id)
        .fetch_all(&self.database.pool)
        .await?)
    }

    /// Freezes (`frozen`) or unfreezes (`active`) an account, as operators do.
    ///
    /// # Errors
    /// If PostgreSQL refuses.
    pub async fn set_account_status(&self, account_id: &str, status: &str) -> anyhow::Result<()> {
        sqlx::query("UPDATE accounts SET status = $2 WHERE account_id = $1")
            .bind(account_id)
            .bind(status)
            .execute(&self.database.pool)
            .await?;
        Ok(())
    }

    /// Available balance of [`System::account`], in minor units.
    ///
    /// # Errors
    /// If PostgreSQL does not answer.
    pub async fn available(&self) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar("SELECT available_minor FROM accounts WHERE account_id = $1")
            .bind(&self.account)
            .fetch_one(&self.database.pool)
            .await?)
    }

    /// Waits until every inbox message of a payment is delivered to its workflow.
    ///
    /// # Errors
    /// If a message is not delivered in time.
    pub async fn wait_until_inbox_delivered(&self, payment_id: &str) -> anyhow::Result<()> {
        let expected = format!("the inbox messages of {payment_id} are delivered");
        until(&expected, WITHIN, || async {
            let undelivered: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM inbox WHERE payment_id = $1 AND delivered_at IS NULL",
            )
            .bind(payment_id)
            .fetch_one(&self.database.pool)
            .await?;
            Ok((undelivered == 0).then_some(()))
        })
        .await
    }

    /// Kills the worker while the switch keeps back the answer to the payment's submit, which it has accepted: for a behaviour with
    /// `accept_hang_ms`.
    ///
    /// # Errors
    /// If the switch does not accept the transfer in time, or the answer was recorded before the kill.
    pub async fn kill_worker_before_the_answer(&mut self, payment: &AcceptedPayment) -> anyhow::Result<()> {
        until("the switch has accepted the transfer", WITHIN, || async {
            Ok(self.switch.transfer_status(&payment.reference).await?.map(|_| ()))
        })
        .await?;
        self.worker.kill().await?;
        let answered: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM submissions WHERE payment_id = $1 AND outcome IS NOT NULL",
        )
        .bind(&payment.payment_id)
        .fetch_one(&self.database.pool)
        .await?;
        ensure!(answered == 0, "the worker was killed too late: the answer is recorded");
        Ok(())
    }

    /// Damages the ledger by statements that no trigger sees. It is not sampled from here on.
    ///
    /// # Errors
    /// The database's.
    pub async fn damage_ledger(&self, statements: &str) -> anyhow::Result<()> {
        self.sampler.stop();
        let damage = format!("BEGIN; SET LOCAL session_replication_role = replica; {statements}; COMMIT");
        sqlx::raw_sql(AssertSqlSafe(damage)).execute(&self.database.pool).await?;
        Ok(())
    }

    /// Compares the three books: bank and switches ([`auditor::compare`]), and Temporal's histories, once the workflows have closed. Called at the end of every case: the ledger has been sampled since the start.
    ///
    /// # Errors
    /// Every disagreement, or the first sample that was not in order.
    pub async fn audit(&self) -> anyhow::Result<Audit> {
        self.histories.check(self).await?;
        Ok(self.audit_all().await?.since(self.counted_before))
    }

    /// The same, with the payments of every case.
    pub(super) async fn audit_all(&self) -> anyhow::Result<Audit> {
        let audit = auditor::compare(&self.database.pool, self.switches()).await?;
        auditor::check_total(&self.database.pool, self.paid_in_minor.load(Ordering::Relaxed)).await?;
        self.histories.check_closed(self).await?;
        self.sampler.check()?;
        Ok(audit)
    }
}
