//! `switch::rail_id`: an id of the rail is minted once for each payment, belongs to one payment, is minted again as it was after its
//! commit was lost, and leads from what a switch says to the payment (decision 0027).

use crate::support::{
    AMOUNT_MINOR, Bank, OTHER_SWITCH, SWITCH, SWITCH_NOW_MS, Sample, Stage, at, event, failure, first_run,
    returned, success,
};
use futures::future::join_all;
use payment_ledger::steps::accept::NewPayment;
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::SwitchProfile;
use payment_protocol::cancel::VoidReason;
use payment_protocol::cause::Cause;
use payment_protocol::ids::SwitchName;
use payment_protocol::port::SubmitProgress;
use payment_protocol::profile::IdScheme;
use payment_protocol::report::{LineStatus, StatementLine};
use payment_protocol::rules::{AttemptRuling, FinalStatusRuling};
use payment_protocol::submit::SendAnswer;
use sqlx::PgPool;

/// A payment through a switch with ids of this scheme.
fn order(bank: &Bank, key: &str, id_scheme: IdScheme, participant: &str) -> NewPayment {
    let mut order = bank.order(key);
    let profile = order.profile.clone();
    order.profile = SwitchProfile { id_scheme, participant: Some(participant.into()), ..profile };
    order
}

fn pix(bank: &Bank, key: &str) -> NewPayment {
    order(bank, key, IdScheme::Pix, "00000001")
}

async fn stored(bank: &Bank, p: &Sample) -> Option<String> {
    bank.column(p, "rail_id").await
}

/// The id that the payment gets after so many clashes.
async fn mint(bank: &Bank, p: &Sample, clash: u32) -> String {
    let profile = bank.payment(p).await.profile;
    let accepted_at =
        bank.column(p, "(accepted_at AT TIME ZONE 'UTC')").await.unwrap().replace(' ', "T") + "Z";
    profile.mint(&p.tx, accepted_at.parse().unwrap(), clash).unwrap().unwrap().to_string()
}

/// Gives an id to another payment.
async fn take(bank: &Bank, p: &Sample, id: &str) {
    bank.sql(&format!("UPDATE payments SET rail_id = '{id}' WHERE payment_id = '{}'", p.id)).await;
}

/// A failover lost the commit of the attempt, and with it the id.
async fn lose_the_attempt(bank: &Bank, p: &Sample) {
    bank.damage(format!("DELETE FROM submissions WHERE payment_id = '{}'", p.id)).await;
    bank.damage(format!(
        "UPDATE payments SET attempts = 0, first_attempt_at = NULL, submit_deadline = NULL, rail_id = NULL WHERE payment_id = '{}'",
        p.id
    ))
    .await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_4_an_id_is_minted_with_the_first_attempt_and_never_changes(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.order_at(Stage::Reserved, pix(&bank, "k")).await;
    assert_eq!(stored(&bank, &p).await, None);
    for n in 1..=3 {
        let (ruling, transfer) =
            bank.ledger.record_attempt(&p.id, &first_run(), at(SWITCH_NOW_MS), false, None).await.unwrap();
        assert_eq!(ruling, AttemptRuling::Send(n));
        assert_eq!(transfer.unwrap().name.on_wire(), mint(&bank, &p, 0).await);
    }
    let name = bank.ledger.transfer_name(&bank.payment(&p).await).await.unwrap();
    assert_eq!(Some(name.on_wire().to_owned()), stored(&bank, &p).await);
    for change in ["'other'", "NULL"] {
        let sql = format!("UPDATE payments SET rail_id = {change} WHERE payment_id = '{}'", p.id);
        let (code, reason) = bank.refused(&sql).await;
        assert_eq!(code, "23001", "{reason}");
    }
    let plain = bank.payment_at(Stage::Sent, "plain").await;
    assert_eq!(stored(&bank, &plain).await, None);
    bank.audit().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s2_1_after_a_clash_another_id_is_minted_and_the_first_owner_keeps_its_own(pool: PgPool) {
    let bank = Bank::new(pool);
    let owners = join_all(
        (0..8).map(async |n| bank.order_at(Stage::Reserved, pix(&bank, &format!("owner {n}"))).await),
    )
    .await;
    let p = bank.order_at(Stage::Reserved, pix(&bank, "k")).await;
    for (clash, owner) in (0_u32..).zip(&owners[..2]) {
        take(&bank, owner, &mint(&bank, &p, clash).await).await;
    }
    // An id that is free by a query counts as one that is free by an attempt.
    let name = bank.ledger.transfer_name(&bank.payment(&p).await).await.unwrap();
    assert_eq!(name.on_wire(), mint(&bank, &p, 2).await);
    assert_eq!(bank.attempt(&p).await, AttemptRuling::Send(1));
    assert_eq!(stored(&bank, &p).await, Some(mint(&bank, &p, 2).await));
    assert_eq!(stored(&bank, &owners[0]).await, Some(mint(&bank, &p, 0).await));

    // In a group the clash is only seen by the index: the step runs alone.
    let late = bank.order_at(Stage::Reserved, pix(&bank, "late")).await;
    take(&bank, &owners[2], &mint(&bank, &late, 0).await).await;
    assert_eq!(bank.attempt(&late).await, AttemptRuling::Send(1));
    assert_eq!(stored(&bank, &late).await, Some(mint(&bank, &late, 1).await));

    // Without an end in sight nothing is sent.
    let last = bank.order_at(Stage::Reserved, pix(&bank, "last")).await;
    let spare = join_all(
        (0..8).map(async |n| bank.order_at(Stage::Reserved, pix(&bank, &format!("spare {n}"))).await),
    )
    .await;
    for (clash, owner) in (0_u32..).zip(&spare) {
        take(&bank, owner, &mint(&bank, &last, clash).await).await;
    }
    let attempt = bank.ledger.record_attempt(&last.id, &first_run(), at(SWITCH_NOW_MS), false, None).await;
    assert!(attempt.unwrap_err().to_string().contains("every id that can be minted"));
    assert_eq!(bank.column(&last, "attempts").await.unwrap(), "0");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_id_is_unique_at_its_switch_and_free_at_another(pool: PgPool) {
    let bank = Bank::new(pool);
    let one = bank.order_at(Stage::Sent, pix(&bank, "one")).await;
    let two = bank.order_at(Stage::Reserved, pix(&bank, "two")).await;
    let mut elsewhere = pix(&bank, "elsewhere");
    elsewhere.profile.switch = SwitchName::new(OTHER_SWITCH).unwrap();
    let elsewhere = bank.order_at(Stage::Reserved, elsewhere).await;
    let id = stored(&bank, &one).await.unwrap();
    let sql = |p: &Sample| format!("UPDATE payments SET rail_id = '{id}' WHERE payment_id = '{}'", p.id);
    assert_eq!(bank.refused(&sql(&two)).await, ("23505".into(), "payments_by_rail_id".into()));
    bank.sql(&sql(&elsewhere)).await;
    // A name leads to the payment of the switch that said it.
    for (switch, p) in [(SWITCH, &one), (OTHER_SWITCH, &elsewhere)] {
        let switch = SwitchName::new(switch).unwrap();
        assert_eq!(bank.ledger.named_transaction(&switch, &id).await.unwrap().as_ref(), Some(&p.tx));
    }
}

/// The transfer is out, and the database that goes on has neither the attempt nor the id.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r30b_a_lost_id_is_minted_again_and_finds_the_transfer(pool: PgPool) {
    let bank = Bank::new(pool);
    for (key, scheme, participant) in [
        ("pix", IdScheme::Pix, "00000001"),
        ("fednow", IdScheme::FedNow, "DEMO00001"),
        ("rtp", IdScheme::Rtp, "DEMO0000001"),
        ("upi", IdScheme::Upi, "DEM"),
        ("sct", IdScheme::SctInst, "DEMODEFF"),
    ] {
        let p = bank.order_at(Stage::Sent, order(&bank, key, scheme, participant)).await;
        let sent = stored(&bank, &p).await.unwrap();
        // By our own query or cancel.
        lose_the_attempt(&bank, &p).await;
        bank.ledger.begin_cancel(&p.id, &Cause::SlaExpired, SubmitProgress::Scheduled).await.unwrap();
        let name = bank.ledger.transfer_name(&bank.payment(&p).await).await.unwrap();
        assert_eq!(name.on_wire(), sent, "{key}");
        // By the answer that the switch gives to the lost attempt.
        lose_the_attempt(&bank, &p).await;
        bank.ledger.record_answer(&p.id, 1, &SendAnswer::Accepted, None, at(SWITCH_NOW_MS)).await.unwrap();
        assert_eq!(stored(&bank, &p).await.as_ref(), Some(&sent), "{key}");
        // By the mark of an operator: the statement and a callback lead to the payment again.
        lose_the_attempt(&bank, &p).await;
        bank.sql(&format!("UPDATE payments SET attempts_uncertain = false WHERE payment_id = '{}'", p.id))
            .await;
        bank.ledger.mark_open_payments(at(SWITCH_NOW_MS)).await.unwrap();
        assert_eq!(stored(&bank, &p).await.as_ref(), Some(&sent), "{key}");
        let callback = Callback { reference: sent, ..success(&p, &event(&p, "late")) };
        bank.ledger.store_callback(&callback).await.unwrap();
        let exceptions = bank.exceptions(&p).await;
        assert_eq!(exceptions, ["attempt_record_lost", "settled_without_attempt"], "{key}");
    }
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn s0_6_a_callback_with_the_rails_id_acts_as_one_with_our_reference(pool: PgPool) {
    let bank = Bank::new(pool);
    let id_of = async |p: &Sample| stored(&bank, p).await.unwrap();
    let settled = bank.order_at(Stage::Sent, pix(&bank, "settled")).await;
    let callback = Callback { reference: id_of(&settled).await, ..success(&settled, &event(&settled, "s")) };
    bank.ledger.store_callback(&callback).await.unwrap();
    assert_eq!(bank.column(&settled, "final_status").await.as_deref(), Some("settled"));
    // As the switch wrote it.
    let written = bank.words("SELECT reference FROM switch_callbacks").await;
    assert_eq!(written, [id_of(&settled).await]);

    // After a FAILURE, the same report is stored without a group.
    let alone = bank.order_at(Stage::Sent, pix(&bank, "alone")).await;
    let id = id_of(&alone).await;
    let first = Callback { reference: id.clone(), ..failure(&alone, &event(&alone, "f")) };
    bank.ledger.store_callback(&first).await.unwrap();
    let second = Callback { reference: id.clone(), ..success(&alone, &event(&alone, "s")) };
    bank.ledger.store_callback(&second).await.unwrap();
    assert_eq!(bank.column(&alone, "final_status").await.as_deref(), Some("settled"));

    // Another switch that names the id moves nothing.
    let held = bank.order_at(Stage::Sent, pix(&bank, "held")).await;
    let id = id_of(&held).await;
    for callback in [
        success(&held, &event(&held, "s")),
        failure(&held, &event(&held, "f")),
        returned(&held, &event(&held, "r")),
    ] {
        let switch = SwitchName::new(OTHER_SWITCH).unwrap();
        bank.ledger.store_callback(&Callback { switch, reference: id.clone(), ..callback }).await.unwrap();
    }
    assert_eq!(bank.exceptions(&held).await, ["callback_from_other_switch"; 3]);
    assert_eq!(bank.column(&held, "final_status").await, None);

    // An id that was never minted belongs to no payment, whatever its form.
    let unknown = ["E0000000120260101000000000000000", "E\0", "é", &"E".repeat(200)];
    for (n, unknown) in unknown.into_iter().enumerate() {
        let name = event(&held, &format!("u{n}"));
        let callback = Callback { reference: unknown.to_owned(), ..success(&held, &name) };
        bank.ledger.store_callback(&callback).await.unwrap();
    }
    let unmatched =
        bank.number("SELECT count(*) FROM exceptions WHERE kind = 'callback_for_unknown_payment'");
    assert_eq!(unmatched.await, 4);
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_statement_line_with_the_rails_id_belongs_to_its_payment(pool: PgPool) {
    let bank = Bank::new(pool);
    let p = bank.order_at(Stage::Sent, pix(&bank, "k")).await;
    let line = |reference: &str, n: i64, status| StatementLine {
        cursor: format!("{n}"),
        transfer_id: format!("t{n}"),
        reference: Some(reference.to_owned()),
        status,
        amount_minor: AMOUNT_MINOR,
        currency: "EUR".into(),
        return_id: None,
        finished_at: at(SWITCH_NOW_MS),
    };
    let id = stored(&bank, &p).await.unwrap();
    assert!(!bank.ledger.lists_return(&p.id).await.unwrap());
    let lines = [
        line(&id, 1, LineStatus::Settled),
        line(&id, 2, LineStatus::Returned),
        line("E0000000120260101000000000000000", 3, LineStatus::Settled),
    ];
    bank.ledger.store_lines(&SwitchName::new(SWITCH).unwrap(), &lines).await.unwrap();
    let unmatched = bank.ledger.unmatched_statement_lines(0, 10).await.unwrap();
    let origins: Vec<_> = unmatched.findings.iter().map(|finding| finding.origin.clone()).collect();
    assert_eq!(origins, [format!("{SWITCH}:t3:E0000000120260101000000000000000")]);
    // The return is reported under our own reference.
    let returns = bank.ledger.unrecorded_returns(std::slice::from_ref(&p.id)).await.unwrap();
    assert_eq!(returns.len(), 1);
    assert_eq!(returns[0].1.reference, format!("{}:submit", p.tx));
    assert!(bank.ledger.lists_return(&p.id).await.unwrap());

    lose_the_attempt(&bank, &p).await;
    take(&bank, &p, &id).await;
    let found = bank.ledger.transfers_without_attempt(0, 10).await.unwrap();
    assert!(found.transfers.iter().all(|transfer| transfer.payment_id == p.id.as_str()));
    assert!(!found.transfers.is_empty());
}

/// The row of a recovered payment may be a second acceptance: an id with its time is then not the id of the lost attempt, so absence
/// proves nothing, and the payment is not started from the beginning. An id without a time is the same one.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r30b_absence_is_not_believed_where_an_id_of_another_time_may_be_out(pool: PgPool) {
    let bank = Bank::new(pool);
    for (key, scheme, participant, has_time) in
        [("fednow", IdScheme::FedNow, "DEMO00001", true), ("upi", IdScheme::Upi, "DEM", false)]
    {
        let unreserved =
            bank.order_at(Stage::Accepted, order(&bank, &format!("{key}-new"), scheme, participant)).await;
        let resumed = bank.ledger.resume(&unreserved.id, unreserved.id.as_str()).await.unwrap().unwrap();
        assert_eq!(resumed.payment.resume == 0, !has_time, "{key}: starts from the beginning");

        let p = bank.order_at(Stage::Reserved, order(&bank, key, scheme, participant)).await;
        let resumed = bank.ledger.resume(&p.id, p.id.as_str()).await.unwrap().unwrap();
        assert_eq!(resumed.payment.resume, 1);
        let begun =
            bank.ledger.begin_cancel(&p.id, &Cause::Interrupted, SubmitProgress::Scheduled).await.unwrap();
        assert_eq!(begun.may_have_other_id, has_time, "{key}");
        let ruling = bank.ledger.record_void(&p.id, VoidReason::DeadlinePassed).await.unwrap();
        let expected = if has_time { FinalStatusRuling::NoAttempt } else { FinalStatusRuling::First };
        assert_eq!(ruling, expected, "{key}");
    }
}
