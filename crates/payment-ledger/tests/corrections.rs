//! After the end money moves only by corrections: two people, an open exception of that payment, a key of its own, once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod support;

use futures::future::join_all;
use payment_ledger::operator::decisions::{
    ConfirmOutcome, Correction, DecideError, DecisionRefusedError as No, DecisionStatus,
};
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::PaymentState;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Sample, Stage, event, failure, success};

const HELD: i64 = FUNDS_MINOR - AMOUNT_MINOR;

fn refused<T: std::fmt::Debug>(outcome: Result<T, DecideError>) -> No {
    match outcome {
        Err(DecideError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

/// A payment at an end with an open exception: the switch said otherwise afterwards.
async fn disputed(bank: &Bank, stage: Stage, key: &str) -> (Sample, i64) {
    let p = bank.payment_at(stage, key).await;
    let exception_id = dispute(bank, &p, key).await;
    (p, exception_id)
}

/// Opens another exception of the payment.
async fn dispute(bank: &Bank, p: &Sample, name: &str) -> i64 {
    let event = event(p, &name.replace(' ', "-"));
    let said = if bank.state(p).await == "settled" { failure(p, &event) } else { success(p, &event) };
    bank.ledger.store_callback(&said).await.unwrap();
    bank.open_exception(p).await
}

async fn correct(
    bank: &Bank,
    exception_id: i64,
    correction: Correction,
) -> Result<ConfirmOutcome, DecideError> {
    let proposed =
        bank.ledger.propose_correction(exception_id, correction, "Ann", "found", Some("line 3")).await?;
    assert_eq!(proposed.message, None);
    bank.ledger.confirm(&proposed.decision_id, "Bob", "I agree").await
}

/// The money of each path, correction after correction.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn each_correction_moves_the_money_to_who_bears_it(pool: PgPool) {
    use Correction::{LateDebit, ReturnCredit, WriteOff};
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // end                      account     corrections                          available    claims  losses  escrow
        (Stage::Released,           "active",   vec![LateDebit],                     HELD,        0,      0,      1),
        (Stage::Released,           "frozen",   vec![LateDebit],                     FUNDS_MINOR, -1,     0,      1),
        (Stage::Released,           "frozen",   vec![LateDebit, WriteOff],           FUNDS_MINOR, 0,      -1,     1),
        (Stage::Released,           "active",   vec![LateDebit, ReturnCredit],       FUNDS_MINOR, 0,      0,      0),
        (Stage::Released,           "frozen",   vec![LateDebit, ReturnCredit],       FUNDS_MINOR, 0,      0,      0),
        (Stage::Released,           "frozen",   vec![LateDebit, WriteOff, ReturnCredit], FUNDS_MINOR, 0,  0,      0),
        (Stage::Settled,            "active",   vec![ReturnCredit],                  FUNDS_MINOR, 0,      0,      0),
        (Stage::Settled,            "frozen",   vec![ReturnCredit],                  FUNDS_MINOR, 0,      0,      0),
        (Stage::ReleasedUnreserved, "active",   vec![LateDebit],                     HELD,        0,      0,      1),
        (Stage::Rejected,           "frozen",   vec![LateDebit],                     FUNDS_MINOR, -1,     0,      1),
    ];
    let (mut claims, mut losses, mut escrow) = (0, 0, 0);
    for (n, (stage, account, corrections, available, claimed, lost, left)) in table.into_iter().enumerate() {
        let p = bank.payment_at(stage, &format!("row {n}")).await;
        let end = bank.state(&p).await;
        if account == "frozen" {
            bank.freeze(&p).await;
        }
        for correction in corrections {
            // What was charged to claims is itself the exception that a write-off closes.
            let exception_id = match correction {
                WriteOff => bank.open_exception(&p).await,
                _ if bank.state(&p).await == "settled" => dispute(&bank, &p, correction.as_str()).await,
                _ => {
                    let odd = Callback {
                        amount_minor: AMOUNT_MINOR + 1,
                        ..success(&p, &event(&p, correction.as_str()))
                    };
                    let said = if correction == LateDebit { success(&p, odd.event_id.as_str()) } else { odd };
                    bank.ledger.store_callback(&said).await.unwrap();
                    bank.open_exception(&p).await
                }
            };
            let done = correct(&bank, exception_id, correction).await.unwrap();
            let ConfirmOutcome::Corrected { detail } = done else { panic!("{done:?}") };
            let closed = bank.ledger.exceptions(false, Some(&p.id), 10).await.unwrap();
            let closed = closed.into_iter().find(|e| e.exception_id == exception_id).unwrap();
            let decision = bank.ledger.decisions(&p.id).await.unwrap().pop().unwrap();
            assert_eq!(closed.closed_by.as_deref(), Some(decision.decision_id.as_str()), "row {n}");
            assert_eq!((decision.status, decision.detail), (DecisionStatus::Done, Some(detail)), "row {n}");
            let key = format!("{}:correct:{}", p.tx, decision.decision_id);
            assert_eq!(bank.operation(&key).await, ["done"], "row {n}");
        }
        (claims, losses, escrow) =
            (claims + claimed * AMOUNT_MINOR, losses + lost * AMOUNT_MINOR, escrow + left * AMOUNT_MINOR);
        assert_eq!(bank.state(&p).await, end, "row {n}: an end is an end");
        assert_eq!(bank.available(&p).await, available, "row {n}");
        let internal =
            (bank.internal("claims").await, bank.internal("losses").await, bank.internal("escrow").await);
        assert_eq!(internal, (claims, losses, escrow), "row {n}");
        bank.audit().await;
    }
}

/// A correction's refusals, each in presence of all that come after it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_correction_is_refused_for_the_first_reason(pool: PgPool) {
    use Correction::{LateDebit, ReturnCredit, WriteOff};
    let bank = Bank::new(pool);
    let open = bank.payment_at(Stage::Confirmed, "open").await;
    bank.ledger.store_callback(&failure(&open, "f")).await.unwrap();
    let of_open = bank.open_exception(&open).await;
    let stranger = Callback { reference: "tx_none:submit".into(), ..success(&open, "stranger") };
    bank.ledger.store_callback(&stranger).await.unwrap();
    let of_nobody = bank.number("SELECT exception_id FROM exceptions WHERE payment_id IS NULL").await;
    let (_, closed) = disputed(&bank, Stage::Released, "closed").await;
    bank.ledger.close_exception(closed, "Ann", "seen").await.unwrap();
    let (_, settled) = disputed(&bank, Stage::Settled, "settled").await;
    let (_, released) = disputed(&bank, Stage::Released, "released").await;
    let (late, first) = disputed(&bank, Stage::Released, "late").await;
    correct(&bank, first, LateDebit).await.unwrap();
    let odd = Callback { amount_minor: AMOUNT_MINOR + 1, ..success(&late, "odd") };
    bank.ledger.store_callback(&odd).await.unwrap();
    let debited_late = bank.open_exception(&late).await;
    let (returned, first) = disputed(&bank, Stage::Settled, "returned").await;
    correct(&bank, first, ReturnCredit).await.unwrap();
    let returned = dispute(&bank, &returned, "again").await;
    let (_, taken) = disputed(&bank, Stage::Released, "taken").await;
    let other = bank
        .ledger
        .propose_correction(taken, LateDebit, "Zoe", "mine", Some("line 3"))
        .await
        .unwrap()
        .decision_id;
    #[rustfmt::skip]
    let table = [
        // exception     correction     by     reason   refused
        (-1,             LateDebit,     "",    "",      No::MissingOperator),
        (-1,             LateDebit,     "Ann", " ",     No::MissingReason),
        (-1,             LateDebit,     "Ann", "why",   No::UnknownException(-1)),
        (of_nobody,      LateDebit,     "Ann", "why",   No::WithoutPayment(of_nobody)),
        (closed,         ReturnCredit,  "Ann", "why",   No::ExceptionClosed(closed)),
        (of_open,        WriteOff,      "Ann", "why",   No::PaymentOpen(PaymentState::Confirmed)),
        (settled,        LateDebit,     "Ann", "why",   No::AlreadyDebited),
        (debited_late,   LateDebit,     "Ann", "why",   No::AlreadyDebited),
        (debited_late,   WriteOff,      "Ann", "why",   No::NothingOnClaims),
        (settled,        WriteOff,      "Ann", "why",   No::NothingOnClaims),
        (released,       WriteOff,      "Ann", "why",   No::NothingOnClaims),
        (released,       ReturnCredit,  "Ann", "why",   No::NotDebited),
        (taken,          ReturnCredit,  "Ann", "why",   No::NotDebited),
        (returned,       ReturnCredit,  "Ann", "why",   No::AlreadyReturned),
        (returned,       LateDebit,     "Ann", "why",   No::AlreadyDebited),
        (taken,          LateDebit,     "Ann", "why",   No::AnotherDecisionOpen(other)),
    ];
    for (n, (exception_id, correction, by, reason, expected)) in table.into_iter().enumerate() {
        let outcome =
            bank.ledger.propose_correction(exception_id, correction, by, reason, Some("line 3")).await;
        assert_eq!(refused(outcome), expected, "row {n}");
    }
    bank.audit().await;
}

/// A correction is judged again when it is confirmed, and needs another person then.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_correction_is_judged_again_when_it_is_confirmed(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, exception_id) = disputed(&bank, Stage::Released, "k").await;
    let proposed = bank
        .ledger
        .propose_correction(exception_id, Correction::LateDebit, "Ann", "it left", Some("line 3"))
        .await
        .unwrap();
    let again = bank
        .ledger
        .propose_correction(exception_id, Correction::LateDebit, "ann", "it left", Some("line 3"))
        .await
        .unwrap();
    assert_eq!(again, proposed);
    let id = &proposed.decision_id;
    assert_eq!(refused(bank.ledger.confirm(id, "ANN ", "yes").await), No::SameOperator("Ann".into()));
    bank.ledger.close_exception(exception_id, "Carol", "nothing in it").await.unwrap();
    assert_eq!(refused(bank.ledger.confirm(id, "Bob", "yes").await), No::ExceptionClosed(exception_id));
    assert_eq!(bank.available(&p).await, FUNDS_MINOR);
    bank.ledger.withdraw(id, "Ann", "nothing in it").await.unwrap();
    bank.audit().await;
}

/// Sixteen confirmations at once book once and are told the same.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn many_confirmations_at_once_are_one_correction(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::crowded(options, connect, 16).await;
    let (p, exception_id) = disputed(&bank, Stage::Released, "k").await;
    let proposed = bank
        .ledger
        .propose_correction(exception_id, Correction::LateDebit, "Ann", "it left", Some("line 3"))
        .await
        .unwrap();
    let told = join_all((0..16).map(|_| bank.ledger.confirm(&proposed.decision_id, "Bob", "yes"))).await;
    let first = ConfirmOutcome::Corrected { detail: "10.00 EUR debited late".into() };
    assert!(told.into_iter().all(|told| told.unwrap() == first));
    assert_eq!(bank.available(&p).await, HELD);
    bank.audit().await;
    bank.close().await;
}

/// The database itself debits a payment once and makes each correction once.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_makes_each_correction_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let settled = bank.payment_at(Stage::Settled, "settled").await;
    let row = |n: usize, kind: &str, debit: &str, credit: &str| {
        format!(
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('by hand {n}', '{}', '{kind}', 'internal:{debit}:EUR', 'internal:{credit}:EUR', 1, 'EUR')",
            settled.id
        )
    };
    bank.sql(&row(1, "return_credit", "escrow", "claims")).await;
    bank.sql(&row(2, "write_off", "losses", "claims")).await;
    for (n, (kind, debit, credit, index)) in [
        ("late_debit", "claims", "escrow", "journal_debited_once"),
        ("return_credit", "escrow", "claims", "journal_one_return_credit"),
        ("write_off", "losses", "claims", "journal_one_write_off"),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = bank.refused(&row(10 + n, kind, debit, credit)).await;
        assert_eq!(refused, ("23505".to_owned(), index.to_owned()));
    }
}

/// An exception without money is closed by one person; the close is a decision on record.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_exception_is_closed_by_one_person_and_a_reason(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "k").await;
    let stranger = Callback { reference: "tx_none:submit".into(), ..success(&p, "stranger") };
    bank.ledger.store_callback(&stranger).await.unwrap();
    let of_nobody = bank.number("SELECT exception_id FROM exceptions").await;
    let of_payment = dispute(&bank, &p, "f").await;
    for exception_id in [of_nobody, of_payment] {
        assert_eq!(refused(bank.ledger.close_exception(exception_id, "", "").await), No::MissingOperator);
        assert_eq!(refused(bank.ledger.close_exception(exception_id, "Ann", "").await), No::MissingReason);
        let decision_id = bank.ledger.close_exception(exception_id, "Ann", "called them").await.unwrap();
        let again = bank.ledger.close_exception(exception_id, "ann ", "called them").await.unwrap();
        assert_eq!(again, decision_id);
        let closed = No::ExceptionClosed(exception_id);
        assert_eq!(refused(bank.ledger.close_exception(exception_id, "Bob", "called them").await), closed);
        let decision = bank.ledger.decision(&decision_id).await.unwrap().unwrap();
        assert_eq!((decision.status, decision.exception_id), (DecisionStatus::Done, Some(exception_id)));
        assert!(matches!(
            bank.ledger.confirm(&decision_id, "Bob", "yes").await,
            Err(DecideError::Refused(_))
        ));
    }
    assert_eq!(refused(bank.ledger.close_exception(-1, "Ann", "why").await), No::UnknownException(-1));
    assert_eq!(bank.ledger.exceptions(true, None, 10).await.unwrap(), []);
    bank.audit().await;
}

/// The exception that keeps an open payment from being released unasked cannot be closed before its end.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_keeps_an_open_payment_safe_is_not_closed(pool: PgPool) {
    let bank = Bank::new(pool);
    let differing = bank.payment_at(Stage::Differing, "differing").await;
    let unsent = bank.payment_at(Stage::Reserved, "unsent").await;
    bank.ledger.store_callback(&success(&unsent, "unsent")).await.unwrap();
    for p in [&differing, &unsent] {
        let exception_id = bank.open_exception(p).await;
        let outcome = bank.ledger.close_exception(exception_id, "Ann", "tidy up").await;
        assert_eq!(refused(outcome), No::PaymentOpen(PaymentState::Reserved));
    }
    let begun =
        bank.ledger.begin_cancel(&unsent.id, &payment_protocol::cause::Cause::SlaExpired).await.unwrap();
    assert!(!begun.never_sent);
    bank.audit().await;
}

/// Closing an exception does not silence the switch, and what people decided is not for the customer.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_is_met_again_after_it_was_closed_is_opened_anew(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, first) = disputed(&bank, Stage::Released, "once").await;
    // The same words of the switch while it is open are the same exception.
    assert_eq!(dispute(&bank, &p, "twice").await, first);
    bank.ledger.close_exception(first, "Ann", "noise").await.unwrap();
    let anew = dispute(&bank, &p, "thrice").await;
    assert_ne!(anew, first);
    let told = |lines: &[payment_ledger::reads::view::TimelineEntry]| {
        lines.iter().any(|line| line.detail.contains("noise"))
    };
    assert!(!told(&bank.ledger.timeline(&p.id, 0, 100).await.unwrap()), "the customer is shown it");
    assert!(told(&bank.ledger.explain(&p.id, 100).await.unwrap().unwrap().timeline));
}

/// What the claims account bears is not closed away.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn what_the_claims_account_bears_is_written_off_or_given_back(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, late) = disputed(&bank, Stage::Released, "k").await;
    bank.freeze(&p).await;
    correct(&bank, late, Correction::LateDebit).await.unwrap();
    let borne = bank.open_exception(&p).await;
    let refused = bank.ledger.close_exception(borne, "Ann", "no").await.unwrap_err();
    assert!(matches!(refused, DecideError::Refused(No::OnClaimsAccount(id)) if id == borne), "{refused:?}");
    correct(&bank, borne, Correction::WriteOff).await.unwrap();
    bank.audit().await;
}
