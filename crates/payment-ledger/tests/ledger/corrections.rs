//! `operator::decisions::correct`: after a payment's end money moves only by corrections, which need two operators, an open
//! exception of the payment and their own key, and are made once.

use crate::support::{AMOUNT_MINOR, Bank, FUNDS_MINOR, Sample, Stage, event, failure, success};
use futures::future::join_all;
use payment_ledger::operator::decisions::{
    ConfirmOutcome, DecideError, DecisionRefusedError, DecisionStatus,
};
use payment_ledger::reads::queues::ExceptionFilter;
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::PaymentState;
use payment_protocol::action::Correction;
use payment_protocol::ids::PaymentId;
use payment_protocol::port::SubmitProgress;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

const HELD: i64 = FUNDS_MINOR - AMOUNT_MINOR;

fn refused<T: std::fmt::Debug>(outcome: Result<T, DecideError>) -> DecisionRefusedError {
    match outcome {
        Err(DecideError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

/// An ended payment with an open exception from a contradicting callback.
async fn contradicted(bank: &Bank, stage: Stage, key: &str) -> (Sample, i64) {
    let p = bank.payment_at(stage, key).await;
    let exception_id = contradict(bank, &p, key).await;
    (p, exception_id)
}

/// Stores a contradicting callback; returns the id of its exception.
async fn contradict(bank: &Bank, p: &Sample, name: &str) -> i64 {
    let event = event(p, &name.replace(' ', "-"));
    let callback = if bank.state(p).await == "settled" { failure(p, &event) } else { success(p, &event) };
    bank.ledger.store_callback(&callback).await.unwrap();
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

/// The customer was debited.
const CHARGED: &str = "transfer_charged 1000";
/// The amount came back, to the customer or to the bank.
const TO_CUSTOMER: &str = "transfer_returned 1000 customer";
const TO_BANK: &str = "transfer_returned 1000 bank";

/// Every sequence of corrections, with the balances after it in units of the payment's amount, and the events (S0.9): the customer reads of
/// each change of the account.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn each_correction_posts_to_the_account_that_bears_the_amount(pool: PgPool) {
    use Correction::{LateDebit, ReturnCredit, WriteOff};
    let bank = Bank::new(pool);
    #[rustfmt::skip]
    let table = [
        // final state              account     corrections                          available    claims  losses  escrow  events after the end
        (Stage::Released,           "active",   vec![LateDebit],                     HELD,        0,      0,      1,      vec![CHARGED]),
        (Stage::Released,           "frozen",   vec![LateDebit],                     FUNDS_MINOR, -1,     0,      1,      vec![]),
        (Stage::Released,           "frozen",   vec![LateDebit, WriteOff],           FUNDS_MINOR, 0,      -1,     1,      vec![]),
        (Stage::Released,           "active",   vec![LateDebit, ReturnCredit],       FUNDS_MINOR, 0,      0,      0,      vec![CHARGED, TO_CUSTOMER]),
        (Stage::Released,           "frozen",   vec![LateDebit, ReturnCredit],       FUNDS_MINOR, 0,      0,      0,      vec![TO_BANK]),
        (Stage::Released,           "frozen",   vec![LateDebit, WriteOff, ReturnCredit], FUNDS_MINOR, 0,  0,      0,      vec![TO_BANK]),
        (Stage::Settled,            "active",   vec![ReturnCredit],                  FUNDS_MINOR, 0,      0,      0,      vec![TO_CUSTOMER]),
        (Stage::Settled,            "frozen",   vec![ReturnCredit],                  FUNDS_MINOR, 0,      0,      0,      vec![TO_CUSTOMER]),
        (Stage::ReleasedUnreserved, "active",   vec![LateDebit],                     HELD,        0,      0,      1,      vec![CHARGED]),
        (Stage::Rejected,           "frozen",   vec![LateDebit],                     FUNDS_MINOR, -1,     0,      1,      vec![]),
    ];
    let (mut claims, mut losses, mut escrow) = (0, 0, 0);
    for (n, (stage, account, corrections, available, claimed, lost, left, expected)) in
        table.into_iter().enumerate()
    {
        let p = bank.payment_at(stage, &format!("row {n}")).await;
        let end = bank.state(&p).await;
        if account == "frozen" {
            bank.freeze(&p).await;
        }
        for correction in corrections {
            // A charge to claims opens the exception that the write-off closes.
            let exception_id = match correction {
                WriteOff => bank.open_exception(&p).await,
                _ if bank.state(&p).await == "settled" => contradict(&bank, &p, correction.as_str()).await,
                _ => {
                    let mismatch = Callback {
                        amount_minor: AMOUNT_MINOR + 1,
                        ..success(&p, &event(&p, correction.as_str()))
                    };
                    let callback = if correction == LateDebit {
                        success(&p, mismatch.event_id.as_str())
                    } else {
                        mismatch
                    };
                    bank.ledger.store_callback(&callback).await.unwrap();
                    bank.open_exception(&p).await
                }
            };
            let done = correct(&bank, exception_id, correction).await.unwrap();
            let ConfirmOutcome::Corrected { detail } = done else {
                panic!("expected a correction, got {done:?}")
            };
            let of_payment = ExceptionFilter {
                with_closed: true,
                payment_id: Some(p.id.clone()),
                limit: 10,
                ..Default::default()
            };
            let closed = bank.ledger.exceptions(&of_payment).await.unwrap();
            let closed = closed.into_iter().find(|e| e.exception_id == exception_id).unwrap();
            let decision = bank.ledger.decisions(&p.id).await.unwrap().pop().unwrap();
            assert_eq!(closed.closed_by.as_deref(), Some(decision.decision_id.as_str()), "row {n}");
            assert_eq!((decision.status, decision.detail), (DecisionStatus::Done, Some(detail)), "row {n}");
            let key = format!("{}:correct:{}", p.tx, decision.decision_id);
            assert_eq!(bank.operation(&key).await, ["done"], "row {n}");
        }
        (claims, losses, escrow) =
            (claims + claimed * AMOUNT_MINOR, losses + lost * AMOUNT_MINOR, escrow + left * AMOUNT_MINOR);
        assert_eq!(bank.state(&p).await, end, "row {n}: the final state changed");
        assert_eq!(bank.available(&p).await, available, "row {n}");
        let internal =
            (bank.internal("claims").await, bank.internal("losses").await, bank.internal("escrow").await);
        assert_eq!(internal, (claims, losses, escrow), "row {n}");
        let events = format!(
            "SELECT concat_ws(' ', kind, coalesce(body ->> 'charged_minor', body ->> 'returned_minor'), body ->> 'credited') FROM outbox
             WHERE subject_key = '{}' AND kind IN ('transfer_charged', 'transfer_returned')
                 AND body ->> 'status' = '{end}' ORDER BY sequence",
            p.id
        );
        assert_eq!(bank.words(&events).await, expected, "row {n}");
        bank.audit().await;
    }
}

/// Every reason for a refusal, also with all later reasons in the order of precedence.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_correction_is_refused_for_the_first_reason_in_precedence(pool: PgPool) {
    use Correction::{LateDebit, ReturnCredit, WriteOff};
    let bank = Bank::new(pool);
    let open = bank.payment_at(Stage::Confirmed, "open").await;
    bank.ledger.store_callback(&failure(&open, "f")).await.unwrap();
    let of_open = bank.open_exception(&open).await;
    let unknown = Callback { reference: "tx_none:submit".into(), ..success(&open, "unknown") };
    bank.ledger.store_callback(&unknown).await.unwrap();
    let unmatched = bank.number("SELECT exception_id FROM exceptions WHERE payment_id IS NULL").await;
    let (_, closed) = contradicted(&bank, Stage::Released, "closed").await;
    bank.ledger.close_exception(closed, "Ann", "seen").await.unwrap();
    let (_, settled) = contradicted(&bank, Stage::Settled, "settled").await;
    let (_, released) = contradicted(&bank, Stage::Released, "released").await;
    let (late, first) = contradicted(&bank, Stage::Released, "late").await;
    correct(&bank, first, LateDebit).await.unwrap();
    let mismatch = Callback { amount_minor: AMOUNT_MINOR + 1, ..success(&late, "mismatch") };
    bank.ledger.store_callback(&mismatch).await.unwrap();
    let debited_late = bank.open_exception(&late).await;
    let (returned, first) = contradicted(&bank, Stage::Settled, "returned").await;
    correct(&bank, first, ReturnCredit).await.unwrap();
    let returned = contradict(&bank, &returned, "again").await;
    let (_, taken) = contradicted(&bank, Stage::Released, "taken").await;
    let other = bank
        .ledger
        .propose_correction(taken, LateDebit, "Zoe", "mine", Some("line 3"))
        .await
        .unwrap()
        .decision_id;
    #[rustfmt::skip]
    let table = [
        // exception     correction     by     reason   refused
        (-1,             LateDebit,     "",    "",      DecisionRefusedError::MissingOperator),
        (-1,             LateDebit,     "Ann", " ",     DecisionRefusedError::MissingReason),
        (-1,             LateDebit,     "Ann", "why",   DecisionRefusedError::UnknownException(-1)),
        (unmatched,      LateDebit,     "Ann", "why",   DecisionRefusedError::WithoutPayment(unmatched)),
        (closed,         ReturnCredit,  "Ann", "why",   DecisionRefusedError::ExceptionClosed(closed)),
        (of_open,        WriteOff,      "Ann", "why",   DecisionRefusedError::PaymentOpen(PaymentState::Confirmed)),
        (settled,        LateDebit,     "Ann", "why",   DecisionRefusedError::AlreadyDebited),
        (debited_late,   LateDebit,     "Ann", "why",   DecisionRefusedError::AlreadyDebited),
        (debited_late,   WriteOff,      "Ann", "why",   DecisionRefusedError::NothingOnClaims),
        (settled,        WriteOff,      "Ann", "why",   DecisionRefusedError::NothingOnClaims),
        (released,       WriteOff,      "Ann", "why",   DecisionRefusedError::NothingOnClaims),
        (released,       ReturnCredit,  "Ann", "why",   DecisionRefusedError::NotDebited),
        (taken,          ReturnCredit,  "Ann", "why",   DecisionRefusedError::NotDebited),
        (returned,       ReturnCredit,  "Ann", "why",   DecisionRefusedError::AlreadyReturned),
        (returned,       LateDebit,     "Ann", "why",   DecisionRefusedError::AlreadyDebited),
        (taken,          LateDebit,     "Ann", "why",   DecisionRefusedError::AnotherDecisionOpen(other)),
    ];
    for (n, (exception_id, correction, by, reason, expected)) in table.into_iter().enumerate() {
        let outcome =
            bank.ledger.propose_correction(exception_id, correction, by, reason, Some("line 3")).await;
        assert_eq!(refused(outcome), expected, "row {n}");
    }
    bank.audit().await;
}

/// What no report says, an operator may know: a payment that ended otherwise than its transfer gets an exception by hand, once, and is then
/// corrected as any other.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_operator_opens_an_exception_about_an_ended_payment_once(pool: PgPool) {
    let bank = Bank::new(pool);
    let (open, released) =
        (bank.payment_at(Stage::Confirmed, "open").await, bank.payment_at(Stage::Released, "released").await);
    let unknown = PaymentId::new("pay_none").unwrap();
    for (id, by, reason, expected) in [
        (&unknown, "", "", DecisionRefusedError::MissingOperator),
        (&unknown, "Ann", " ", DecisionRefusedError::MissingReason),
        (&unknown, "Ann", "why", DecisionRefusedError::UnknownPayment(unknown.clone())),
        (&open.id, "Ann", "why", DecisionRefusedError::PaymentOpen(PaymentState::Confirmed)),
    ] {
        assert_eq!(refused(bank.ledger.open_exception_by_operator(id, by, reason).await), expected);
    }
    let first = bank.ledger.open_exception_by_operator(&released.id, "Ann", "letter 7").await.unwrap();
    let again = bank.ledger.open_exception_by_operator(&released.id, "Bob", "letter 7, too").await.unwrap();
    assert_eq!((first, bank.exceptions(&released).await), (again, vec!["opened_by_operator".into()]));
    correct(&bank, first, Correction::LateDebit).await.unwrap();
    assert_eq!(bank.available(&released).await, HELD);
    let next = bank.ledger.open_exception_by_operator(&released.id, "Ann", "letter 8").await.unwrap();
    assert_ne!(next, first);
    correct(&bank, next, Correction::ReturnCredit).await.unwrap();
    assert_eq!(bank.available(&released).await, FUNDS_MINOR);
    bank.audit().await;
}

/// The confirmation of a correction needs another operator, and the correction is checked again.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_correction_is_checked_again_at_its_confirmation(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, exception_id) = contradicted(&bank, Stage::Released, "k").await;
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
    assert_eq!(
        refused(bank.ledger.confirm(id, "ANN ", "yes").await),
        DecisionRefusedError::SameOperator("Ann".into())
    );
    bank.ledger.close_exception(exception_id, "Carol", "nothing in it").await.unwrap();
    assert_eq!(
        refused(bank.ledger.confirm(id, "Bob", "yes").await),
        DecisionRefusedError::ExceptionClosed(exception_id)
    );
    assert_eq!(bank.available(&p).await, FUNDS_MINOR);
    bank.ledger.withdraw(id, "Ann", "nothing in it").await.unwrap();
    bank.audit().await;
}

/// Sixteen concurrent confirmations post once and return the same result.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_confirmations_book_a_correction_once(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::with_connections(options, connect, 16).await;
    let (p, exception_id) = contradicted(&bank, Stage::Released, "k").await;
    let proposed = bank
        .ledger
        .propose_correction(exception_id, Correction::LateDebit, "Ann", "it left", Some("line 3"))
        .await
        .unwrap();
    let results = join_all((0..16).map(|_| bank.ledger.confirm(&proposed.decision_id, "Bob", "yes"))).await;
    let first = ConfirmOutcome::Corrected { detail: "10.00 EUR debited late".into() };
    assert!(results.into_iter().all(|result| result.unwrap() == first));
    assert_eq!(bank.available(&p).await, HELD);
    bank.audit().await;
    bank.close().await;
}

/// Unique indexes allow one debit per payment and one correction of each kind.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_accepts_each_kind_of_correction_once_per_payment(pool: PgPool) {
    let bank = Bank::new(pool);
    let charged = bank.payment_at(Stage::Accepted, "charged").await;
    let row = |n: usize, kind: &str, debit: &str, credit: &str| {
        format!(
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('by hand {n}', '{}', '{kind}', 'internal:{debit}:EUR', 'internal:{credit}:EUR', 1, 'EUR')",
            charged.id
        )
    };
    bank.sql(&row(0, "late_debit", "claims", "escrow")).await;
    bank.sql(&row(1, "write_off", "losses", "claims")).await;
    bank.sql(&row(2, "return_credit", "escrow", "losses")).await;
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

/// Closing an exception moves no money, so one operator suffices; the close is recorded as a decision.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn one_operator_closes_an_exception_with_a_reason(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.payment_at(Stage::Settled, "k").await;
    let unknown = Callback { reference: "tx_none:submit".into(), ..success(&p, "unknown") };
    bank.ledger.store_callback(&unknown).await.unwrap();
    let unmatched = bank.number("SELECT exception_id FROM exceptions").await;
    let of_payment = contradict(&bank, &p, "f").await;
    for exception_id in [unmatched, of_payment] {
        assert_eq!(
            refused(bank.ledger.close_exception(exception_id, "", "").await),
            DecisionRefusedError::MissingOperator
        );
        assert_eq!(
            refused(bank.ledger.close_exception(exception_id, "Ann", "").await),
            DecisionRefusedError::MissingReason
        );
        let decision_id = bank.ledger.close_exception(exception_id, "Ann", "called them").await.unwrap();
        let again = bank.ledger.close_exception(exception_id, "ann ", "called them").await.unwrap();
        assert_eq!(again, decision_id);
        let closed = DecisionRefusedError::ExceptionClosed(exception_id);
        assert_eq!(refused(bank.ledger.close_exception(exception_id, "Bob", "called them").await), closed);
        let decision = bank.ledger.decision(&decision_id).await.unwrap().unwrap();
        assert_eq!((decision.status, decision.exception_id), (DecisionStatus::Done, Some(exception_id)));
        assert!(matches!(
            bank.ledger.confirm(&decision_id, "Bob", "yes").await,
            Err(DecideError::Refused(_))
        ));
    }
    assert_eq!(
        refused(bank.ledger.close_exception(-1, "Ann", "why").await),
        DecisionRefusedError::UnknownException(-1)
    );
    assert_eq!(
        bank.ledger.exceptions(&ExceptionFilter { limit: 10, ..Default::default() }).await.unwrap(),
        []
    );
    bank.audit().await;
}

/// An exception that prevents the release of an open payment cannot be closed before the payment's end.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_exception_that_protects_an_open_payment_stays_open(pool: PgPool) {
    let bank = Bank::new(pool);
    let differing = bank.payment_at(Stage::Differing, "differing").await;
    let unsent = bank.payment_at(Stage::Reserved, "unsent").await;
    bank.ledger.store_callback(&success(&unsent, "unsent")).await.unwrap();
    for p in [&differing, &unsent] {
        let exception_id = bank.open_exception(p).await;
        let outcome = bank.ledger.close_exception(exception_id, "Ann", "tidy up").await;
        assert_eq!(refused(outcome), DecisionRefusedError::PaymentOpen(PaymentState::Reserved));
    }
    let begun = bank
        .ledger
        .begin_cancel(&unsent.id, &payment_protocol::cause::Cause::SlaExpired, SubmitProgress::NotScheduled)
        .await
        .unwrap();
    assert!(!begun.never_sent);
    bank.audit().await;
}

/// A contradiction after the close opens a new exception. Operators' reasons are not shown to the customer.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_contradiction_after_a_closed_exception_opens_a_new_exception(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, first) = contradicted(&bank, Stage::Released, "once").await;
    // A repeated contradiction while the exception is open belongs to the same exception.
    assert_eq!(contradict(&bank, &p, "twice").await, first);
    bank.ledger.close_exception(first, "Ann", "noise").await.unwrap();
    let second = contradict(&bank, &p, "thrice").await;
    assert_ne!(second, first);
    let has_reason = |lines: &[payment_ledger::reads::view::TimelineEntry]| {
        lines.iter().any(|line| line.detail.contains("noise"))
    };
    assert!(
        !has_reason(&bank.ledger.timeline(&p.id, 0, 100).await.unwrap()),
        "the customer sees the operator's reason"
    );
    assert!(has_reason(&bank.ledger.explain(&p.id, 100).await.unwrap().unwrap().timeline));
}

/// An exception about an amount charged to claims cannot be closed without a correction.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_amount_charged_to_claims_is_written_off_or_returned(pool: PgPool) {
    let bank = Bank::new(pool);
    let (p, late) = contradicted(&bank, Stage::Released, "k").await;
    bank.freeze(&p).await;
    correct(&bank, late, Correction::LateDebit).await.unwrap();
    let charged = bank.open_exception(&p).await;
    let refused = bank.ledger.close_exception(charged, "Ann", "no").await.unwrap_err();
    assert!(
        matches!(refused, DecideError::Refused(DecisionRefusedError::OnClaimsAccount(id)) if id == charged),
        "{refused:?}"
    );
    correct(&bank, charged, Correction::WriteOff).await.unwrap();
    bank.audit().await;
}
