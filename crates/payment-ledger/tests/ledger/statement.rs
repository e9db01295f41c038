//! `reads::statement`: balances at any instant, account statements and trial balances, compared with sums over all entries.

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Stage, account_id, tenant};
use jiff::{SignedDuration, Timestamp};
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::reads::statement::{AccountStatement, AccountStatementEntry, AccountStatementQuery};
use payment_ledger::steps::accept::NewPayment;
use sqlx::PgPool;

const ACCOUNT: &str = "purse";
const HOLDING: &str = "internal:holding:EUR";
const ESCROW: &str = "internal:escrow:EUR";
const FUNDING: &str = "internal:funding:EUR";

/// Minutes between two entries, so that they spread over hours with one on each full hour.
const STEP_M: i64 = 20;

async fn seal(bank: &Bank, entries: i64) {
    assert!(matches!(bank.ledger.seal(BatchSize::new(entries)).await.unwrap(), SealOutcome::Batch { .. }));
}

/// The instant before the first entry.
fn start() -> Timestamp {
    "2026-03-28T22:00:00Z".parse().unwrap()
}

fn after(minutes: i64) -> Timestamp {
    start() + SignedDuration::from_mins(minutes)
}

/// Two accounts, and payments at several stages; entries and holds are moved to distinct times. Part of the entries is sealed, not
/// the oldest. Returns the number of entries.
async fn bank_with_history(pool: PgPool) -> (Bank, i64) {
    let bank = Bank::new(pool);
    let account = bank.open(ACCOUNT, FUNDS_MINOR).await;
    bank.open("other", FUNDS_MINOR).await;
    for (n, stage) in
        [Stage::Settled, Stage::Released, Stage::Reserved, Stage::Settled].into_iter().enumerate()
    {
        let order = NewPayment { source_account: account.clone(), ..bank.order(&format!("k{n}")) };
        let p = bank.accept(&order).await;
        bank.advance(&p, stage).await;
    }
    bank.sql(&format!(
        "SET LOCAL session_replication_role = replica;
         UPDATE journal SET posted_at = '{}'::timestamptz + entry_id * interval '{STEP_M} minutes';
         UPDATE holds h SET
             opened_at = (SELECT posted_at FROM journal j WHERE j.payment_id = h.payment_id AND kind = 'reserve'),
             closed_at = (SELECT posted_at FROM journal j WHERE j.payment_id = h.payment_id AND kind <> 'reserve');
         CREATE TABLE early AS SELECT entry_id FROM journal_unsealed WHERE entry_id % 3 = 0;
         DELETE FROM journal_unsealed WHERE entry_id % 3 = 0",
        start()
    ))
    .await;
    seal(&bank, 4).await;
    // These entries were committed late: their hours may be sealed already.
    bank.sql("INSERT INTO journal_unsealed TABLE early").await;
    let entries = bank.number("SELECT max(entry_id) FROM journal").await;
    (bank, entries)
}

/// Balance of an account at an instant, as the sum of its entries.
async fn summed(bank: &Bank, account: &str, at: Timestamp) -> i64 {
    bank.number(&format!(
        "SELECT coalesce(sum(CASE WHEN credit_account = '{account}' THEN amount_minor ELSE -amount_minor END), 0)::bigint
         FROM journal WHERE '{account}' IN (credit_account, debit_account) AND posted_at <= '{at}'"
    ))
    .await
}

/// Open holds of a customer's account at an instant.
async fn held(bank: &Bank, account: &str, at: Timestamp) -> i64 {
    bank.number(&format!(
        "SELECT coalesce(sum(CASE j.kind WHEN 'reserve' THEN j.amount_minor ELSE -j.amount_minor END), 0)::bigint
         FROM journal j JOIN payments p USING (payment_id)
         WHERE p.source_account = '{account}' AND j.kind IN ('reserve', 'debit', 'release') AND j.posted_at <= '{at}'"
    ))
    .await
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_an_account_balance_is_exact_at_every_instant(pool: PgPool) {
    let (bank, entries) = bank_with_history(pool).await;
    let mut non_zero = 0;
    for round in 0..3 {
        for n in -1..=entries + 1 {
            for us in [-1, 0, 1] {
                let at = after(n * STEP_M) + SignedDuration::from_micros(us);
                for account in [ACCOUNT, "other", HOLDING, ESCROW, FUNDING] {
                    let balance = bank.ledger.balance_at(account, None, Some(at)).await.unwrap().unwrap();
                    let expected = (summed(&bank, account, at).await, held(&bank, account, at).await);
                    assert_eq!(
                        (balance.available_minor, balance.held_minor),
                        expected,
                        "{round}: {account} at {at}"
                    );
                    non_zero += i64::from(balance.ledger_minor() != 0);
                }
                let trial = bank.ledger.trial_balance(Some(at)).await.unwrap();
                assert_eq!(trial.iter().map(|line| line.balance_minor).sum::<i64>(), 0, "{at}: {trial:?}");
                let customers = trial.iter().find(|line| line.account == "customers").unwrap();
                let both = summed(&bank, ACCOUNT, at).await + summed(&bank, "other", at).await;
                assert_eq!((customers.balance_minor, trial.len()), (both, 6), "{at}");
            }
        }
        match round {
            // Late entries are added to sealed hours, first some and then all.
            0 => seal(&bank, 2).await,
            _ => while bank.ledger.seal(BatchSize::new(3)).await.unwrap() != SealOutcome::NothingToSeal {},
        }
    }
    assert!(non_zero > 50, "only {non_zero} balances are not zero");
    assert_eq!(bank.ledger.verify(None).await.unwrap().findings, []);
}

/// The balance observed after each step is returned later for that instant.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_past_account_balances_are_those_observed_at_that_time(pool: PgPool) {
    let bank = Bank::new(pool);
    let order = bank.order("k");
    let account = bank.open(order.source_account.as_str(), FUNDS_MINOR).await;
    let one = bank.accept(&order).await;
    let other = NewPayment { source_account: account.clone(), ..bank.order("other") };
    let other = bank.accept(&other).await;
    let mut observed = vec![];
    let steps =
        [(&one, Stage::Accepted), (&one, Stage::Reserved), (&other, Stage::Released), (&one, Stage::Settled)];
    for (p, stage) in steps {
        bank.advance(p, stage).await;
        let now = bank.words("SELECT to_json(clock_timestamp()) #>> '{}'").await.pop().unwrap();
        let account = bank.ledger.account(&tenant(), &account).await.unwrap().unwrap();
        observed.push((now.parse::<Timestamp>().unwrap(), account));
    }
    let amounts: Vec<_> =
        observed.iter().map(|(_, account)| (account.available_minor, account.held_minor)).collect();
    let left = FUNDS_MINOR - AMOUNT_MINOR;
    assert_eq!(amounts, [(FUNDS_MINOR, 0), (left, AMOUNT_MINOR), (left, AMOUNT_MINOR), (left, 0)]);
    for (at, account) in observed {
        let then =
            bank.ledger.balance_at(&account.account_id, Some(&tenant()), Some(at)).await.unwrap().unwrap();
        let expected = (account.available_minor, account.held_minor);
        assert_eq!((then.available_minor, then.held_minor), expected, "{at}");
    }
}

/// All pages of a period: the last page, and the lines of all.
async fn pages(
    bank: &Bank,
    account: &str,
    from: Timestamp,
    to: Timestamp,
    limit: i64,
) -> (AccountStatement, Vec<AccountStatementEntry>) {
    let mut period = AccountStatementQuery { from, to: Some(to), after: None, limit };
    let mut lines = vec![];
    loop {
        let page = bank.ledger.statement(account, None, &period).await.unwrap().unwrap();
        lines.extend(page.lines.iter().cloned());
        assert!(page.lines.len() <= usize::try_from(limit).unwrap());
        match page.next {
            None => return (page, lines),
            next => period.after = next,
        }
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r10_account_statement_lines_lead_from_opening_to_closing_balance(pool: PgPool) {
    let (bank, entries) = bank_with_history(pool).await;
    for account in [ACCOUNT, "other", HOLDING, ESCROW, FUNDING] {
        for (from, to) in
            [(0, entries * STEP_M + 1), (STEP_M, 4 * STEP_M), (3 * STEP_M, 3 * STEP_M + 1), (70, 75)]
        {
            let (from, to) = (after(from), after(to));
            let (whole, all) = pages(&bank, account, from, to, 1_000).await;
            for limit in [1, 2, 3] {
                let (page, lines) = pages(&bank, account, from, to, limit).await;
                assert_eq!(lines, all, "{account} by {limit}");
                assert_eq!((page.opening, page.closing), (whole.opening.clone(), whole.closing.clone()));
            }
            let mut running = whole.opening.available_minor;
            let mut last = None;
            for line in &all {
                running += line.amount_minor;
                assert_eq!(line.balance_minor, running, "{account}: {line:?}");
                assert!((from..to).contains(&line.posted_at) && last < Some(line.posted_at), "{line:?}");
                last = Some(line.posted_at);
                let then =
                    bank.ledger.balance_at(account, None, Some(line.posted_at)).await.unwrap().unwrap();
                assert_eq!(then.available_minor, running);
            }
            assert_eq!(running, whole.closing.available_minor, "{account}");
            let counted = format!(
                "SELECT count(*) FROM journal WHERE '{account}' IN (debit_account, credit_account)
                 AND posted_at >= '{from}' AND posted_at < '{to}'"
            );
            assert_eq!(bank.number(&counted).await, i64::try_from(all.len()).unwrap());
        }
    }
    // A customer's statement has funds, reserves and releases.
    let (whole, all) = pages(&bank, ACCOUNT, after(0), after(1_000), 100).await;
    let kinds: Vec<_> = all.iter().map(|line| (line.kind.as_str(), line.amount_minor)).collect();
    let (reserve, release) = (("reserve", -AMOUNT_MINOR), ("release", AMOUNT_MINOR));
    assert_eq!(kinds, [("fund", FUNDS_MINOR), reserve, reserve, release, reserve, reserve]);
    assert_eq!(whole.opening.ledger_minor(), 0);
    let closing = (whole.closing.available_minor, whole.closing.held_minor, whole.closing.ledger_minor());
    assert_eq!(closing, (FUNDS_MINOR - 3 * AMOUNT_MINOR, AMOUNT_MINOR, FUNDS_MINOR - 2 * AMOUNT_MINOR));
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn another_tenants_account_history_is_not_found(pool: PgPool) {
    let (bank, _) = bank_with_history(pool).await;
    let other_tenant = payment_protocol::ids::TenantId::new("other").unwrap();
    let period = AccountStatementQuery { from: after(0), to: None, after: None, limit: 10 };
    let (own, account) = (tenant(), account_id(ACCOUNT));
    for (account, tenant) in [(account.as_str(), &other_tenant), ("nobody", &own), (HOLDING, &own)] {
        assert_eq!(bank.ledger.balance_at(account, Some(tenant), None).await.unwrap(), None, "{account}");
        assert_eq!(bank.ledger.statement(account, Some(tenant), &period).await.unwrap(), None, "{account}");
    }
    assert!(bank.ledger.balance_at(ACCOUNT, Some(&own), None).await.unwrap().is_some());
}
