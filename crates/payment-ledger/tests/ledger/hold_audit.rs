//! `audit::reconcile::holds`: holds are counted by state and by `DecidedBy`, and each inconsistent hold is found once.

use std::collections::BTreeMap;

use crate::support::{AMOUNT_MINOR, Bank, Stage, account_id, profile, tenant};
use iso_currency::Currency;
use payment_ledger::audit::reconcile::findings::FindingOutcome;
use payment_ledger::audit::reconcile::holds::DecidedBy;
use payment_protocol::cause::OperatorReason;
use payment_protocol::drift::{Drift, Tolerance};
use payment_protocol::{PaymentState, SwitchProfile};
use sqlx::PgPool;

/// Tolerance of the tests: a cancel may take an hour.
const TOLERANCE: Tolerance = Tolerance { grace_s: 600, cancelling_s: 3_600 };

impl Bank {
    /// New findings of an audit, by their origin.
    async fn new_findings(&self) -> BTreeMap<String, Drift> {
        let audited = self.ledger.audit_holds(TOLERANCE).await.unwrap();
        assert!(audited.unreadable.is_none(), "{audited:?}");
        audited
            .findings
            .into_iter()
            .filter(|(_, known)| matches!(known, FindingOutcome::Opened(_)))
            .map(|(finding, _)| (finding.origin, finding.drift))
            .collect()
    }
}

/// The result has a row for every state and every currency, also for final states, which have no holds.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_holds_are_counted_by_state_and_deciding_party(pool: PgPool) {
    let bank = Bank::new(pool);
    assert_eq!(bank.ledger.held_by_state().await.unwrap(), [], "expected no rows without accounts");
    bank.ledger.open_account(&tenant(), &account_id("dollars"), Currency::USD).await.unwrap();
    let mut expected = BTreeMap::new();
    for (stage, key) in [
        (Stage::Accepted, "accepted"),
        (Stage::Reserved, "reserved"),
        (Stage::Reserved, "reserved too"),
        (Stage::Sent, "sent"),
        (Stage::Cancelling, "cancelling"),
        (Stage::Confirmed, "confirmed"),
        (Stage::Settled, "settled"),
        (Stage::Released, "released"),
        (Stage::Rejected, "rejected"),
    ] {
        let p = bank.payment_at(stage, key).await;
        let decided_by = match stage {
            Stage::Accepted | Stage::Settled | Stage::Released | Stage::Rejected => continue,
            Stage::Reserved => DecidedBy::Bank,
            _ => DecidedBy::Switch,
        };
        let age = format!(
            "UPDATE holds SET opened_at = opened_at - interval '100 s' WHERE payment_id = '{}'",
            p.id
        );
        bank.damage(age).await;
        let sum = expected.entry((bank.state(&p).await, decided_by)).or_insert((0, 0));
        *sum = (sum.0 + 1, sum.1 + AMOUNT_MINOR);
    }
    let undecided = bank.payment_at(Stage::Differing, "undecided").await;
    bank.needs_operator(&undecided, OperatorReason::ConfirmationMismatch).await;
    expected.insert(("needs_operator".into(), DecidedBy::Switch), (1, AMOUNT_MINOR));

    let held = bank.ledger.held_by_state().await.unwrap();
    assert_eq!(held.len(), PaymentState::ALL.len() * DecidedBy::ALL.len() * 2);
    let non_empty: BTreeMap<_, _> = held
        .iter()
        .filter(|held| held.count > 0)
        .map(|held| {
            assert_eq!(held.currency, "EUR");
            assert!(held.state == PaymentState::NeedsOperator || held.oldest_s >= 100, "{held:?}");
            ((held.state.to_string(), held.decided_by), (held.count, held.amount_minor))
        })
        .collect();
    assert_eq!(non_empty, expected);

    // Open holds are on the holding account, debited amounts on escrow.
    let internal = bank.ledger.internal_balances().await.unwrap();
    let balance = |name: &str, currency: &str| {
        let found = internal.iter().find(|account| account.name == name && account.currency == currency);
        found.map(|account| account.balance_minor)
    };
    let sum: i64 = expected.values().map(|(_, minor)| minor).sum();
    assert_eq!(balance("holding", "EUR"), Some(sum));
    assert_eq!(balance("escrow", "EUR"), Some(AMOUNT_MINOR));
    assert_eq!(balance("holding", "USD"), Some(0));
    assert_eq!(internal.iter().filter(|account| account.currency == "EUR").count(), 5);
    bank.ledger.seal(payment_ledger::audit::seal::BatchSize::new(1_000)).await.unwrap();
    assert_eq!(bank.ledger.internal_balances().await.unwrap(), internal, "sealing changed a balance");
    let audited = bank.ledger.audit_holds(TOLERANCE).await.unwrap();
    assert_eq!((audited.payments, audited.findings), (7, vec![]), "expected no findings");
}

/// One inconsistency of each kind, seeded without triggers: the next audit finds it, once, and nothing else.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_15_the_hold_audit_finds_each_inconsistent_hold(pool: PgPool) {
    let bank = Bank::new(pool);
    for (stage, key) in [(Stage::Sent, "sound"), (Stage::Settled, "ended"), (Stage::Fenced, "fenced")] {
        bank.payment_at(stage, key).await;
    }
    assert_eq!(bank.new_findings().await, BTreeMap::new());

    // The amount is no longer on the holding account, so the sums differ, too.
    let ended = bank.payment_at(Stage::Released, "hold of an ended payment").await;
    bank.damage(format!(
        "UPDATE holds SET status = 'open', closed_at = NULL WHERE payment_id = '{}'",
        ended.id
    ))
    .await;
    let holding = "holding_differs:internal:holding:EUR".to_owned();
    let found = [(ended.id.to_string(), Drift::OrphanHold), (holding.clone(), Drift::JournalHashMismatch)];
    assert_eq!(bank.new_findings().await, BTreeMap::from(found));

    let unexplained = bank.payment_at(Stage::Reserved, "hold without an entry").await;
    bank.damage(format!("DELETE FROM journal WHERE payment_id = '{}'", unexplained.id)).await;
    assert_eq!(bank.new_findings().await, BTreeMap::from([(unexplained.id.to_string(), Drift::OrphanHold)]));

    for (stage, key, sql) in [
        (Stage::Sent, "sent without hold", "DELETE FROM holds WHERE payment_id = '{}'"),
        (
            Stage::Reserved,
            "reserved by its state alone",
            "DELETE FROM holds WHERE payment_id = '{}'; DELETE FROM journal WHERE payment_id = '{}'",
        ),
    ] {
        let p = bank.payment_at(stage, key).await;
        bank.damage(sql.replace("{}", p.id.as_str())).await;
        assert_eq!(
            bank.new_findings().await,
            BTreeMap::from([(p.id.to_string(), Drift::MissingHold)]),
            "{key}"
        );
    }

    let slow = bank.payment_at(Stage::Cancelling, "stays cancelling").await;
    let since = |age_s: i64| {
        let id = &slow.id;
        format!(
            "UPDATE payments SET cancelling_since = now() - interval '{age_s} s' WHERE payment_id = '{id}'"
        )
    };
    bank.sql(&since(3_500)).await;
    assert_eq!(bank.new_findings().await, BTreeMap::new(), "cancelling is within the tolerance");
    bank.sql(&since(3_601)).await;
    assert_eq!(bank.new_findings().await, BTreeMap::from([(slow.id.to_string(), Drift::StuckCancelling)]));

    let patient = bank.payment_at(Stage::Cancelling, "a switch whose cancels take two hours").await;
    bank.give_profile(&patient, &SwitchProfile { alert_after_ms: 7_200_000, ..profile() }).await;
    let since = |age_s: i64| {
        let id = &patient.id;
        format!(
            "UPDATE payments SET cancelling_since = now() - interval '{age_s} s' WHERE payment_id = '{id}'"
        )
    };
    bank.sql(&since(7_000)).await;
    assert_eq!(bank.new_findings().await, BTreeMap::new(), "cancelling is within the profile's time");
    bank.sql(&since(7_201)).await;
    assert_eq!(bank.new_findings().await, BTreeMap::from([(patient.id.to_string(), Drift::StuckCancelling)]));

    assert_eq!(bank.new_findings().await, BTreeMap::new(), "a known finding was opened again");
    let known = bank.ledger.audit_holds(TOLERANCE).await.unwrap().findings;
    assert_eq!(known.len(), 7, "{known:?}");
    let kinds = "SELECT kind || ' ' || count(*) FROM exceptions GROUP BY kind ORDER BY kind";
    let expected = ["journal_hash_mismatch 1", "missing_hold 2", "orphan_hold 2", "stuck_cancelling 2"];
    assert_eq!(bank.words(kinds).await, expected);
    let of_holding = format!("SELECT origin FROM exceptions WHERE origin = '{holding}'");
    assert_eq!(
        bank.words(&of_holding).await,
        [holding],
        "expected the origin that the ledger verification uses"
    );
}

/// A later release may have written a row that this one cannot read.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_payment_that_cannot_be_read_hides_no_other_hold(pool: PgPool) {
    let bank = Bank::new(pool);
    let unreadable = bank.payment_at(Stage::Sent, "unreadable").await;
    let without_hold = bank.payment_at(Stage::Sent, "without a hold").await;
    bank.damage(format!(
        "ALTER TABLE payments DROP CONSTRAINT payments_state_known;
         UPDATE payments SET state = 'a_later_state' WHERE payment_id = '{}';
         DELETE FROM holds WHERE payment_id = '{}'",
        unreadable.id, without_hold.id
    ))
    .await;
    let audited = bank.ledger.audit_holds(TOLERANCE).await.unwrap();
    let found: Vec<_> = audited.findings.iter().map(|(finding, _)| finding.drift).collect();
    assert_eq!(found, [Drift::MissingHold, Drift::JournalHashMismatch], "{audited:?}");
    let unread = audited.unreadable.expect("a payment was left out").to_string();
    assert!(unread.contains("a_later_state") && unread.contains(unreadable.id.as_str()), "{unread}");
}
