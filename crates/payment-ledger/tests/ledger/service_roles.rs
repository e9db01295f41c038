//! `access::service_roles`: each process has the rights that its code uses, and none can change history (R36).

use crate::support::{AMOUNT_MINOR, Bank, SWITCH, Sample, Stage, event, return_part, success};
use jiff::Timestamp;
use payment_ledger::access::service_roles::SERVICE_ROLES;
use payment_ledger::audit::reconcile::payments::Sources;
use payment_ledger::audit::seal::{BatchSize, SealOutcome};
use payment_ledger::switch::callbacks::Callback;
use payment_protocol::cause::{OperatorReason, ReserveRefusal};
use payment_protocol::decision::Action;
use payment_protocol::drift::Tolerance;
use payment_protocol::facts::RecallRecord;
use payment_protocol::ids::{ReturnId, SwitchName};
use payment_protocol::port::{DebitOutcome, ReserveOutcome};
use payment_protocol::report::{LineStatus, StatementLine};
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

/// SQLSTATE of a missing privilege.
const NOT_ALLOWED: &str = "42501";

/// The bank with the rights of one role only.
async fn bank_as(role: &str, connect: &PgConnectOptions) -> Bank {
    let connect = connect.clone().options([("role", role)]);
    Bank::new(PgPoolOptions::new().max_connections(4).connect_with(connect).await.unwrap())
}

/// Every step of a payment works with the rights of the process that makes it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_each_process_can_run_its_ledger_steps(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let api = bank_as("payments_api", &connect).await;
    let worker = bank_as("payment_worker", &connect).await;
    let background = bank_as("background_worker", &connect).await;
    for (n, end) in
        [Stage::Settled, Stage::Released, Stage::Recalled, Stage::Differing].into_iter().enumerate()
    {
        // The owner opens, funds and freezes accounts.
        let order = owner.order(&format!("k{n}"));
        owner.open(order.source_account.as_str(), crate::support::FUNDS_MINOR).await;
        let p = api.accept(&order).await;
        if end == Stage::Released {
            worker.advance(&p, end).await;
            continue;
        }
        worker.advance(&p, Stage::Sent).await;
        let confirms = success(&p, &event(&p, "confirms"));
        let differs = Callback { amount_minor: AMOUNT_MINOR + 1, ..confirms.clone() };
        let callback = if end == Stage::Differing { differs } else { confirms };
        api.ledger.store_callback(&callback).await.unwrap();
        if end == Stage::Recalled {
            owner.freeze(&p).await;
            assert!(matches!(worker.debit(&p).await, DebitOutcome::Refused { .. }));
            worker.ledger.record_recall(&p.id, RecallRecord::Recalled, "paid back").await.unwrap();
        }
        if end == Stage::Settled {
            assert_eq!(worker.debit(&p).await, DebitOutcome::Done);
            // A late callback, and a return of a part, which is paid to its bearer at once.
            api.ledger.store_callback(&success(&p, &event(&p, "again"))).await.unwrap();
            return_part(&api, &p, "r-1", 100).await;
        }
    }
    let order = owner.order("poor");
    owner.open(order.source_account.as_str(), 1).await;
    let poor = api.accept(&order).await;
    assert_eq!(worker.reserve(&poor).await, ReserveOutcome::Refused(ReserveRefusal::InsufficientFunds));
    assert!(matches!(background.ledger.seal(BatchSize::new(100)).await.unwrap(), SealOutcome::Batch { .. }));
    let sealed = background.ledger.seal_audit_log(BatchSize::new(100)).await.unwrap();
    assert!(matches!(sealed, SealOutcome::Batch { .. }));
    assert_eq!(worker.ledger.verify_journal().await.unwrap().findings, []);
    assert_eq!(owner.ledger.verify(None).await.unwrap().findings, []);
    owner.audit().await;
    for bank in [api, worker, background, owner] {
        bank.close().await;
    }
}

/// `payctl reconcile` and `restore-check` have a role of their own: a run, what a statement lists, and the marks after lost commits.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_payctl_can_reconcile_without_the_rights_of_the_owner(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let settled = owner.payment_at(Stage::Settled, "settled").await;
    let recalled = owner.payment_at(Stage::DebitRefused, "recalled").await;
    let open = owner.payment_at(Stage::Sent, "open").await;
    let payctl = bank_as("payctl_reconcile", &connect).await;
    payctl.ledger.delete_old_reconciliation_lists().await.unwrap();
    payctl.ledger.reconciliation_baseline().await.unwrap();
    let (run, _) = payctl.ledger.begin_reconciliation_run(Some(3_600)).await.unwrap();
    payctl.ledger.record_running_workflows(run, &[settled.id.to_string()]).await.unwrap();
    let line = |p: &Sample, cursor: &str, status, return_id: Option<&str>, amount_minor| StatementLine {
        cursor: cursor.into(),
        transfer_id: format!("t-{}", p.id),
        reference: Some(format!("{}:submit", p.tx)),
        status,
        return_id: return_id.map(|id| ReturnId::new(id).unwrap()),
        amount_minor,
        currency: "EUR".into(),
        finished_at: Timestamp::now(),
    };
    // A part of a charged payment came back, and all of one whose debit was refused.
    let lines = [
        line(&settled, "1", LineStatus::Settled, None, AMOUNT_MINOR),
        line(&settled, "2", LineStatus::Returned, Some("part"), 400),
        line(&recalled, "3", LineStatus::Settled, None, AMOUNT_MINOR),
        line(&recalled, "4", LineStatus::Returned, None, AMOUNT_MINOR),
    ];
    let (switch, ids) = (SwitchName::new(SWITCH).unwrap(), [settled.id.clone(), recalled.id.clone()]);
    assert_eq!(payctl.ledger.statement_cursor(&switch).await.unwrap(), None);
    assert_eq!(payctl.ledger.store_lines(&switch, &lines).await.unwrap(), 4);
    // They are left to payment-worker's runs.
    assert_eq!(payctl.ledger.unrecorded_returns(&ids).await.unwrap().len(), 1);
    assert_eq!(payctl.ledger.unrecorded_parts(&ids).await.unwrap().len(), 1);
    assert!(payctl.ledger.record_listed_returns(&ids).await.unwrap_err().is_not_allowed());
    let sources = Sources { statements: vec![switch], workflows: Some(run) };
    let compared = payctl.ledger.compare(&sources, &ids).await.unwrap();
    let tolerance = Tolerance { grace_s: 0, cancelling_s: 0 };
    let findings: Vec<_> = compared.iter().flat_map(|payment| payment.findings(tolerance)).collect();
    assert!(!findings.is_empty());
    payctl.ledger.open_findings(&findings).await.unwrap();
    assert_eq!(payctl.ledger.verify_journal().await.unwrap().findings, []);
    assert_eq!(
        payctl.ledger.mark_open_payments(Timestamp::now()).await.unwrap(),
        2,
        "{} and {}",
        open.id,
        recalled.id
    );
    payctl.ledger.transfers_without_attempt(0, 10).await.unwrap();
    payctl.ledger.ended_workflows_without_payment(&[settled.id.to_string()]).await.unwrap();
    payctl.ledger.finish_reconciliation_run(run, &serde_json::json!({})).await.unwrap();
    owner.audit().await;
    payctl.close().await;
    owner.close().await;
}

/// Statements that no role has a right for.
const FORBIDDEN: &[&str] = &[
    "UPDATE journal SET amount_minor = 1",
    "DELETE FROM journal",
    "TRUNCATE journal",
    "ALTER TABLE journal DISABLE TRIGGER ALL",
    "DROP TRIGGER journal_append_only ON journal",
    "SET session_replication_role = replica",
    "CREATE RULE r AS ON INSERT TO journal DO INSTEAD NOTHING",
    "CREATE TABLE public.forged (n int)",
    "CREATE FUNCTION public.forged() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "UPDATE operations SET outcome = 'done'",
    "DELETE FROM operations",
    "UPDATE journal_seals SET hash = hash",
    "DELETE FROM journal_seals",
    "INSERT INTO audit_log (login, program, object, subject, action, after) VALUES ('l', 'p', 'limits', 's', 'insert', '{}')",
    "UPDATE audit_log SET operator = 'nobody'",
    "DELETE FROM audit_log",
    "INSERT INTO audit_log_unsealed VALUES (1)",
    "UPDATE audit_log_seals SET hash = hash",
    "DELETE FROM audit_log_seals",
    "CREATE TRIGGER forged AFTER INSERT ON journal FOR EACH ROW EXECUTE FUNCTION record_in_audit_log('kind')",
    // A trigger function with the owner's rights, on a table of one's own.
    "CREATE TEMP TABLE j (LIKE journal); CREATE TRIGGER t BEFORE INSERT ON j FOR EACH ROW EXECUTE FUNCTION public.move_balances()",
    "CREATE TEMP TABLE j (LIKE journal); CREATE TRIGGER t BEFORE INSERT ON j FOR EACH ROW EXECUTE FUNCTION public.move_holds()",
    "CREATE TEMP TABLE j (LIKE journal); CREATE TRIGGER t BEFORE INSERT ON j FOR EACH ROW EXECUTE FUNCTION public.move_claims()",
    "CREATE TEMP TABLE j (LIKE journal); CREATE TRIGGER t BEFORE INSERT ON j FOR EACH ROW EXECUTE FUNCTION public.move_returned()",
    "CREATE TEMP TABLE j (LIKE journal); CREATE TRIGGER t BEFORE INSERT ON j FOR EACH ROW EXECUTE FUNCTION public.queue_for_seal()",
    "UPDATE seal_batches SET hash = hash",
    "DELETE FROM seal_batches",
    "INSERT INTO journal_unsealed VALUES (1)",
    "TRUNCATE journal_unsealed",
    "DELETE FROM sealed_balances",
    "UPDATE accounts SET available_minor = available_minor + 1",
    "UPDATE accounts SET status = 'active'",
    "UPDATE accounts SET tenant_id = 'mine'",
    "INSERT INTO accounts (account_id, tenant_id, kind, currency, available_minor) VALUES ('mine', 't', 'customer', 'EUR', 0)",
    "DELETE FROM accounts",
    "UPDATE holds SET status = 'released', closed_at = now()",
    "INSERT INTO holds (payment_id, account_id, amount_minor, currency) SELECT payment_id, account_id, 1, currency FROM holds",
    "DELETE FROM holds",
    "UPDATE payments SET amount_minor = 1",
    "UPDATE payments SET destination_account = 'mine'",
    "DELETE FROM payments",
    "UPDATE temporal_namespaces SET namespace_id = 'mine'",
    "DELETE FROM temporal_namespaces",
    "UPDATE submissions SET recorded_at = now()",
    "DELETE FROM submissions",
    "UPDATE timeline SET detail = ''",
    "DELETE FROM timeline",
    "UPDATE switch_callbacks SET body = ''",
    "DELETE FROM switch_callbacks",
    "INSERT INTO decisions (decision_id, payment_id, action, reason, evidence, proposed_by) SELECT 'd', payment_id, 'release', 'r', 'e', 'mine' FROM payments",
    "UPDATE decisions SET proposed_by = 'nobody'",
    "UPDATE decisions SET status = 'confirmed', confirmed_by = 'mine', confirmed_at = now(), confirm_reason = 'r'",
    "DELETE FROM decisions",
    "UPDATE exceptions SET closed_at = now(), closed_by = 'mine'",
    "DELETE FROM exceptions",
    "INSERT INTO api_keys (id, key_hash, prefix, tenant_id, client_id, scopes) VALUES ('pk_000000000000', '', 'x', 't', 'c', '{pay}')",
    "UPDATE api_keys SET expires_at = NULL",
    "INSERT INTO limits (scope, scope_id, currency, set_by, reason) VALUES ('account', 'alice', 'EUR', 'mine', 'r')",
    "UPDATE kill_switches SET lifted_by = 'mine', lift_reason = 'r', lifted_at = now()",
    "UPDATE webhook_endpoints SET tenant_id = 'mine'",
    "UPDATE webhook_deliveries SET body = '{}'",
    "UPDATE webhook_deliveries SET event_id = 'forged'",
    "UPDATE webhook_attempts SET response_status = 200",
    "UPDATE outbox SET body = '{}'",
    "INSERT INTO journal (operation_key, kind, debit_account, credit_account, amount_minor, currency)
     VALUES ('theft', 'fund', 'internal:funding:EUR', 'mine', 1, 'EUR')",
];

/// Statements of one process that another one must not run, beside [`FORBIDDEN`].
const FORBIDDEN_TO: &[(&str, &[&str])] = &[
    (
        "payments_api",
        &[
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT tx_id || ':debit', payment_id, 'debit', 'internal:holding:EUR', 'internal:escrow:EUR', amount_minor, 'EUR' FROM payments",
            "INSERT INTO submissions (payment_id, attempt) SELECT payment_id, 9 FROM payments",
            "UPDATE submissions SET outcome = 'refused'",
            "UPDATE payments SET run_id = 'mine'",
            "UPDATE payments SET attempts = 0",
            "UPDATE payments SET operator_reason = NULL",
            "UPDATE decisions SET status = 'refused', closed_at = now()",
            "INSERT INTO notifications (payment_id, event_id, kind, message) SELECT payment_id, 'e', 'transfer_sent', 'call this number' FROM payments",
            "DELETE FROM outbox",
            "DELETE FROM journal_unsealed",
            "INSERT INTO journal_seals (position, entry_id, hash) VALUES (99, 99, '')",
            "INSERT INTO statement_lines (switch) VALUES ('mine')",
            "INSERT INTO recalls (payment_id) SELECT payment_id FROM payments",
            "UPDATE limit_days SET used_minor = 0",
            "SELECT * FROM limits",
        ],
    ),
    (
        "payment_worker",
        &[
            "SELECT * FROM api_keys",
            "SELECT * FROM webhook_endpoints",
            "SELECT * FROM notifications",
            "INSERT INTO payments (payment_id) VALUES ('mine')",
            "INSERT INTO switch_callbacks (switch, event_id, reference, status, amount_minor, currency, body)
             VALUES ('sw', 'forged', 'r', 'SUCCESS', 100, 'EUR', '')",
            "UPDATE payments SET money_reported_at = now()",
            "INSERT INTO temporal_namespaces (number, namespace_id, accepted_by, reason) VALUES (2, 'mine', 'ann', 'r')",
            "DELETE FROM outbox",
            "UPDATE outbox SET published_at = now()",
            "DELETE FROM journal_unsealed",
            "INSERT INTO journal_seals (position, entry_id, hash) VALUES (99, 99, '')",
        ],
    ),
    (
        "background_worker",
        &[
            "SELECT * FROM api_keys",
            "SELECT * FROM webhook_endpoints",
            "SELECT * FROM notifications",
            "INSERT INTO payments (payment_id) VALUES ('mine')",
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT tx_id || ':debit', payment_id, 'debit', 'internal:holding:EUR', 'internal:escrow:EUR', amount_minor, 'EUR' FROM payments",
            "INSERT INTO submissions (payment_id, attempt) SELECT payment_id, 9 FROM payments",
            "INSERT INTO switch_callbacks (switch, event_id, reference, status, amount_minor, currency, body)
             VALUES ('sw', 'forged', 'r', 'SUCCESS', 100, 'EUR', '')",
            "UPDATE payments SET final_status = 'settled', final_status_source = 'callback'",
            "INSERT INTO returns (switch) VALUES ('mine')",
            "INSERT INTO reconciliation_runs DEFAULT VALUES",
        ],
    ),
    (
        "notifier",
        &[
            "SELECT * FROM payments",
            "SELECT * FROM accounts",
            "SELECT * FROM journal",
            "SELECT * FROM api_keys",
            "SELECT body FROM outbox",
            "SELECT * FROM notifications",
            "INSERT INTO payments (payment_id) VALUES ('mine')",
            "INSERT INTO journal (operation_key) VALUES ('mine')",
            "INSERT INTO inbox (payment_id, kind) VALUES ('p', 'cancel')",
            "INSERT INTO outbox (event_id) VALUES ('forged')",
            "DELETE FROM outbox",
            "UPDATE webhook_endpoints SET url = 'https://thief.example'",
            "UPDATE webhook_endpoints SET secret_version = 1",
        ],
    ),
    (
        "operator_api",
        &[
            "SELECT * FROM api_keys",
            "SELECT * FROM webhook_endpoints",
            "INSERT INTO payments (payment_id) VALUES ('mine')",
            "SELECT * FROM operators",
            "SELECT FROM operators FOR UPDATE",
            "INSERT INTO operators (name, roles, password_salt, password_version, password_proof) VALUES ('mine', '{approver}', '', 1, '')",
            "UPDATE operators SET password_proof = sha256('')",
            "UPDATE operators SET roles = '{operator,approver}'",
            "UPDATE operators SET failed_logins = 0, locked_until = NULL",
            "SELECT * FROM operator_sessions",
            "INSERT INTO operator_sessions (operator, proof_hash, expires_at) VALUES ('ann', sha256(''), now() + interval '1 hour')",
            "UPDATE operator_sessions SET proof_hash = sha256('')",
            "UPDATE operator_sessions SET expires_at = 'infinity'",
            "DELETE FROM operator_sessions",
            "UPDATE payments SET updated_at = 'infinity'",
            "UPDATE payments SET has_unbooked_return = false",
            "UPDATE inbox SET delivered_at = now()",
            "INSERT INTO inbox (payment_id, kind) SELECT payment_id, 'cancel' FROM payments",
            "INSERT INTO inbox (payment_id, kind, decision_id) SELECT payment_id, 'decision', decision_id FROM decisions",
            "INSERT INTO timeline (payment_id, state, detail) SELECT payment_id, state, 'bob confirmed debit' FROM payments",
            "UPDATE payments SET state = 'cancelled', ended_at = now()",
            "UPDATE payments SET final_status = 'settled', final_status_source = 'callback'",
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT tx_id || ':debit', payment_id, 'debit', 'internal:holding:EUR', 'internal:escrow:EUR', amount_minor, 'EUR' FROM payments",
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT tx_id || ':x', payment_id, 'return_credit', 'internal:escrow:EUR', source_account, amount_minor, 'EUR' FROM payments",
            "INSERT INTO operations (operation_key, payment_id, outcome) SELECT tx_id || ':x', payment_id, 'done' FROM payments",
            "UPDATE decisions SET status = 'withdrawn', withdrawn_by = 'ann', closed_at = now()",
            "UPDATE decisions SET status = 'refused', closed_at = now()",
            "INSERT INTO exceptions (payment_id, kind, origin, detail) SELECT payment_id, 'opened_by_operator', payment_id, 'mine' FROM payments",
            "INSERT INTO submissions (payment_id, attempt) SELECT payment_id, 9 FROM payments",
            "INSERT INTO outbox (event_id) VALUES ('forged')",
            "DELETE FROM outbox",
            "UPDATE limits SET per_day_minor = NULL",
        ],
    ),
    (
        "payctl",
        &[
            "SELECT key_hash FROM api_keys",
            "SELECT * FROM operators",
            "SELECT * FROM operator_sessions",
            "SELECT secret_check FROM webhook_endpoints",
            "INSERT INTO decisions (decision_id, payment_id) SELECT 'dec_x', payment_id FROM payments",
            "INSERT INTO exceptions (payment_id, kind, origin, detail) SELECT payment_id, 'opened_by_operator', payment_id, 'mine' FROM payments",
            "INSERT INTO inbox (payment_id, kind) SELECT payment_id, 'cancel' FROM payments",
            "INSERT INTO timeline (payment_id, state, detail) SELECT payment_id, state, 'forged' FROM payments",
            "INSERT INTO operations (operation_key, payment_id, outcome) SELECT tx_id || ':x', payment_id, 'done' FROM payments",
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT tx_id || ':debit', payment_id, 'debit', 'internal:holding:EUR', 'internal:escrow:EUR', amount_minor, 'EUR' FROM payments",
            "UPDATE payments SET updated_at = now()",
            "UPDATE accounts SET opened_at = now()",
            "UPDATE outbox SET published_at = NULL",
            "DELETE FROM parked_deliveries",
            "SELECT payment_id FROM payments FOR UPDATE",
        ],
    ),
    (
        "payctl_reconcile",
        &[
            "SELECT key_hash FROM api_keys",
            "SELECT * FROM operators",
            "SELECT * FROM operator_sessions",
            "SELECT * FROM webhook_endpoints",
            "INSERT INTO payments (payment_id) VALUES ('mine')",
            "INSERT INTO decisions (decision_id, payment_id) SELECT 'dec_x', payment_id FROM payments",
            "INSERT INTO submissions (payment_id, attempt) SELECT payment_id, 9 FROM payments",
            "INSERT INTO switch_callbacks (switch, event_id, reference, status, amount_minor, currency, body)
             VALUES ('sw', 'forged', 'r', 'SUCCESS', 100, 'EUR', '')",
            "INSERT INTO operations (operation_key, payment_id, outcome) SELECT tx_id || ':x', payment_id, 'done' FROM payments",
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT tx_id || ':debit', payment_id, 'debit', 'internal:holding:EUR', 'internal:escrow:EUR', amount_minor, 'EUR' FROM payments",
            "UPDATE payments SET run_id = 'mine'",
            "UPDATE payments SET attempts = 0",
            "UPDATE payments SET money_reported_at = now()",
            "DELETE FROM outbox",
            "DELETE FROM reconciliation_runs",
            "SELECT * FROM limits",
            "SELECT * FROM temporal_namespaces",
            "UPDATE recalls SET status = 'closed'",
            // No return, whatever a statement lists.
            "INSERT INTO returns (switch, return_id, payment_id, amount_minor, currency) SELECT switch, payment_id, payment_id, 1, currency FROM payments",
            "INSERT INTO operations (operation_key, payment_id, outcome) SELECT tx_id || ':return:forged', payment_id, 'done' FROM payments",
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             SELECT tx_id || ':return:forged', payment_id, 'return', 'internal:escrow:EUR', source_account, 1, 'EUR' FROM payments",
            "UPDATE returns SET booked_at = now()",
            "UPDATE payments SET final_status = 'returned', final_status_source = 'statement'",
            "UPDATE payments SET state = 'settled', ended_at = now() WHERE ended_at IS NULL",
            "UPDATE payments SET has_unbooked_return = true",
            "UPDATE payments SET updated_at = 'infinity'",
            "INSERT INTO inbox (payment_id, kind) SELECT payment_id, 'final_status' FROM payments",
            "INSERT INTO outbox (event_id) VALUES ('forged')",
            "UPDATE outbox_keys SET last_sequence = 0",
            // Marks.
            "UPDATE payments SET attempts_uncertain = false WHERE attempts_uncertain",
            "UPDATE payments SET attempts_uncertain = true WHERE ended_at IS NOT NULL",
            "UPDATE payments SET rail_id = 'forged' || payment_id WHERE NOT attempts_uncertain",
            "UPDATE payments SET rail_id = 'forged' WHERE attempts_uncertain",
            "UPDATE payments SET attempts_uncertain = true, rail_id = tx_id || ':submit' WHERE ended_at IS NULL",
            // What operators and customers read.
            "INSERT INTO exceptions (payment_id, kind, origin, detail) SELECT payment_id, 'opened_by_operator', payment_id, 'mine' FROM payments",
            "INSERT INTO exceptions (payment_id, kind, origin, detail) SELECT payment_id, 'settled_without_attempt', payment_id, 'mine' FROM payments",
            "INSERT INTO exceptions (payment_id, kind, origin, detail, closed_at, closed_by)
             SELECT payment_id, 'orphan_hold', payment_id, 'mine', now(), (SELECT decision_id FROM decisions LIMIT 1) FROM payments",
            "INSERT INTO timeline (payment_id, state, detail) SELECT payment_id, state, 'call this number' FROM payments",
            "INSERT INTO timeline (entry_id, payment_id, state, detail, is_internal) OVERRIDING SYSTEM VALUE SELECT 9, payment_id, state, 'd', true FROM payments",
            "INSERT INTO statement_lines (switch, cursor, transfer_id, status, amount_minor, currency, finished_at, read_at)
             VALUES ('sw', '9', 't', 'SETTLED', 1, 'EUR', now(), '-infinity')",
        ],
    ),
];

/// R36: no role can change history, nor do what is another process's or an operator's.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_no_role_can_change_ledger_history_or_act_for_another_process(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    owner.payment_at(Stage::Settled, "k").await;
    owner.payment_at(Stage::Reserved, "open").await;
    // A decision that waits, and an exception: a trigger refuses a change of them only where there is one.
    let waits = owner.payment_at(Stage::Cancelling, "waits").await;
    owner.needs_operator(&waits, OperatorReason::NotFoundIsInconclusive).await;
    owner.propose(&waits, Action::Release).await;
    owner.payment_at(Stage::Differing, "differs").await;
    // A mark of lost commits.
    owner
        .sql(&format!("UPDATE payments SET attempts_uncertain = true WHERE payment_id = '{}'", waits.id))
        .await;
    assert_eq!(owner.number("SELECT count(*) FROM exceptions").await, 1);
    assert!(matches!(owner.ledger.seal(BatchSize::new(4)).await.unwrap(), SealOutcome::Batch { .. }));
    assert_eq!(FORBIDDEN_TO.iter().map(|(role, _)| *role).collect::<Vec<_>>(), SERVICE_ROLES);
    for (role, own) in FORBIDDEN_TO {
        let service = bank_as(role, &connect).await;
        for sql in FORBIDDEN.iter().chain(*own) {
            assert_eq!(service.refused(sql).await.0, NOT_ALLOWED, "{role}: {sql}");
        }
        service.close().await;
    }
    let background = bank_as("background_worker", &connect).await;
    // The role may delete from the queue of unsealed entries, but the trigger refuses it, whatever a temporary table says.
    assert_eq!(background.refused("DELETE FROM journal_unsealed").await.0, "23001");
    let mut session = background.pool.begin().await.unwrap();
    let forged = "CREATE TEMP TABLE journal_seals AS SELECT entry_id FROM public.journal_unsealed";
    sqlx::raw_sql(forged).execute(&mut *session).await.unwrap();
    let refused =
        sqlx::raw_sql("DELETE FROM public.journal_unsealed").execute(&mut *session).await.unwrap_err();
    assert_eq!(refused.as_database_error().and_then(|error| error.code()).as_deref(), Some("23001"));
    session.rollback().await.unwrap();
    background.close().await;
    owner.close().await;
}

/// R36, I30: what payments-api may post pays the payer what was charged, and nobody else.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_return_pays_the_payer_of_a_charged_payment_only(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let charged = owner.payment_at(Stage::Settled, "charged").await;
    let released = owner.payment_at(Stage::Released, "released").await;
    let api = bank_as("payments_api", &connect).await;
    let post = |payment: &str, account: &str, key: &str| {
        format!(
            "WITH operation AS (INSERT INTO operations (operation_key, payment_id, outcome) VALUES ('{key}', '{payment}', 'done'))
             INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('{key}', '{payment}', 'return', 'internal:escrow:EUR', '{account}', 1, 'EUR')"
        )
    };
    let (payer, other) = (charged.account.as_str(), released.account.as_str());
    for (payment, account) in [(&released, other), (&charged, other), (&released, "internal:claims:EUR")] {
        let refused = api.refused(&post(payment.id.as_str(), account, "x:return:1")).await;
        assert_eq!(refused.0, "23001", "{account}: {}", refused.1);
    }
    sqlx::raw_sql(AssertSqlSafe(post(charged.id.as_str(), payer, "x:return:2")))
        .execute(&api.pool)
        .await
        .unwrap();
    // An operation of another step would be taken for its outcome.
    let forged = "INSERT INTO operations (operation_key, payment_id, outcome) SELECT tx_id || ':debit', payment_id, 'done' FROM payments";
    assert_eq!(api.refused(forged).await.0, NOT_ALLOWED);
    api.close().await;
    owner.close().await;
}

/// R36: what payment-worker may post charges the payer of the payment, the bank for a payment that exists, and no more than its amount. An
/// exception is open when a process opens it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_no_process_charges_anybody_but_the_payer(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let own = owner.payment_at(Stage::Accepted, "own").await;
    let ended = owner.payment_at(Stage::Released, "ended").await;
    let victim = owner.payment_at(Stage::Settled, "victim").await;
    let worker = bank_as("payment_worker", &connect).await;
    let post = |payment: &str, kind: &str, debit: &str, credit: &str, minor: i64| {
        format!(
            "WITH operation AS (INSERT INTO operations (operation_key, payment_id, outcome) VALUES ('x:{kind}', '{payment}', 'done'))
             INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('x:{kind}', '{payment}', '{kind}', '{debit}', 'internal:{credit}:EUR', {minor}, 'EUR')"
        )
    };
    let (own, ended) = (own.id.as_str(), ended.id.as_str());
    for (payment, kind, debit, credit, minor) in [
        (own, "reserve", victim.account.as_str(), "holding", 1),
        (ended, "late_debit", victim.account.as_str(), "escrow", 1),
        (ended, "collect", victim.account.as_str(), "claims", 1),
        (own, "reserve", "from-own", "holding", AMOUNT_MINOR + 1),
        (ended, "late_debit", "internal:claims:EUR", "escrow", AMOUNT_MINOR + 1),
        ("pay_nobody", "late_debit", "internal:claims:EUR", "escrow", 1),
    ] {
        let refused = worker.refused(&post(payment, kind, debit, credit, minor)).await;
        assert_eq!(refused.0, "23001", "{kind} of {debit}: {}", refused.1);
    }
    let reserve = post(own, "reserve", "from-own", "holding", AMOUNT_MINOR);
    sqlx::raw_sql(AssertSqlSafe(reserve)).execute(&worker.pool).await.unwrap();
    worker.close().await;
    for role in ["payments_api", "payment_worker", "background_worker"] {
        let service = bank_as(role, &connect).await;
        let closed = "INSERT INTO exceptions (kind, origin, detail, closed_at) VALUES ('orphan_hold', 'x', 'x', now())";
        assert_eq!(service.refused(closed).await.0, NOT_ALLOWED, "{role}");
        service.close().await;
    }
    owner.close().await;
}

/// R36: operators of a session's own schema have no effect, since the functions of triggers have a fixed search path.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_schema_of_a_role_deceives_no_trigger(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let ended = owner.payment_at(Stage::Released, "ended").await;
    let schema = "CREATE SCHEMA trap AUTHORIZATION background_worker; SET ROLE background_worker;
        CREATE FUNCTION trap.never(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
        CREATE FUNCTION trap.never(bigint, bigint) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
        CREATE OPERATOR trap.<> (LEFTARG = text, RIGHTARG = text, FUNCTION = trap.never);
        CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.never); RESET ROLE";
    sqlx::raw_sql(schema).execute(&owner.pool).await.unwrap();
    let background = bank_as("background_worker", &connect).await;
    for (sql, code) in [
        (
            format!(
                "UPDATE public.payments SET state = 'confirmed', ended_at = NULL WHERE payment_id = '{}'",
                ended.id
            ),
            "23001",
        ),
        ("DELETE FROM public.journal_unsealed".to_owned(), "23001"),
    ] {
        let deceived = format!("SET search_path = trap, pg_catalog, public; {sql}");
        let refused = background.refused(&deceived).await;
        assert_eq!(refused.0, code, "{sql}: {}", refused.1);
    }
    background.close().await;
    owner.close().await;
}

/// A temporary table that shadows ours has no effect, since the triggers use qualified names.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn r36_a_temporary_table_moves_no_balance(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    let forged = owner.payment_at(Stage::Accepted, "forged").await;
    let worker = bank_as("payment_worker", &connect).await;
    let mut session = worker.pool.begin().await.unwrap();
    sqlx::raw_sql("CREATE TEMP TABLE accounts AS TABLE public.accounts; CREATE TEMP TABLE journal_unsealed (entry_id bigint)")
        .execute(&mut *session)
        .await
        .unwrap();
    let post = "INSERT INTO public.operations (operation_key, payment_id, outcome) SELECT payment_id || ':reserve', payment_id, 'done'
                FROM public.payments WHERE payment_id = $1";
    sqlx::query(post).bind(forged.id.as_str()).execute(&mut *session).await.unwrap();
    let post = "INSERT INTO public.journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
                SELECT payment_id || ':reserve', payment_id, 'reserve', source_account, 'internal:holding:EUR', amount_minor, currency
                FROM public.payments WHERE payment_id = $1";
    sqlx::query(post).bind(forged.id.as_str()).execute(&mut *session).await.unwrap();
    session.commit().await.unwrap();
    assert_eq!(owner.available(&forged).await, crate::support::FUNDS_MINOR - crate::support::AMOUNT_MINOR);
    assert_eq!(owner.ledger.verify(None).await.unwrap().findings, []);
    worker.close().await;
    owner.close().await;
}
