//! `access::operators`: logins, sessions and roles, and the database's own check that a decision's operator has the session.

use crate::support::{Bank, PASSWORD, Sample, Stage, event, failure, log_in, operator_api, success};
use payment_ledger::access::operators::{
    ChangeOperatorOutcome, LOGIN_ATTEMPTS_MAX, LoginOutcome, LoginRefusal, NewOperatorOutcome,
    OperatorIdentity, OperatorRole, Password, SessionToken,
};
use payment_ledger::operator::decisions::{
    ConfirmOutcome, DecideError, DecisionRefusedError, DecisionStatus,
};
use payment_ledger::{Ledger, LedgerError};
use payment_protocol::action::Correction;
use payment_protocol::cause::OperatorReason;
use payment_protocol::decision::Action;
use secrecy::SecretString;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgPool};

use OperatorRole::{Approver, Operator, Viewer};

async fn try_login(ledger: &Ledger, name: &str, password: &str) -> LoginOutcome {
    let token = SessionToken::generate().unwrap();
    ledger.log_operator_in(name, &SecretString::from(password), &token, Some("127.0.0.1")).await.unwrap()
}

async fn refusal(ledger: &Ledger, name: &str, password: &str) -> LoginRefusal {
    match try_login(ledger, name, password).await {
        LoginOutcome::Refused(reason) => reason,
        opened @ LoginOutcome::Opened(_) => panic!("{opened:?}"),
    }
}

/// A payment whose cancel was inconclusive.
async fn undecided(bank: &Bank, key: &str) -> Sample {
    let p = bank.payment_at(Stage::Cancelling, key).await;
    bank.needs_operator(&p, OperatorReason::NotFoundIsInconclusive).await;
    p
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_login_is_refused_without_the_password_and_locked_after_five_attempts(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.create_operator("ann", &[Operator]).await;
    assert_eq!(refusal(&bank.ledger, "nobody", PASSWORD).await, LoginRefusal::Unknown);
    assert_eq!(refusal(&bank.ledger, "an\0", PASSWORD).await, LoginRefusal::Unknown);
    for _ in 1..LOGIN_ATTEMPTS_MAX {
        assert_eq!(refusal(&bank.ledger, "ann", "another password").await, LoginRefusal::WrongPassword);
    }
    // A login that succeeds forgets them.
    log_in(&bank.ledger, "ann").await;
    for _ in 0..LOGIN_ATTEMPTS_MAX {
        assert_eq!(refusal(&bank.ledger, "ann", "another password").await, LoginRefusal::WrongPassword);
    }
    assert_eq!(refusal(&bank.ledger, "ann", PASSWORD).await, LoginRefusal::Locked);
    assert!(bank.ledger.operators().await.unwrap()[0].locked_until.is_some());
    // After the lockout an attempt counts from one again.
    bank.sql("UPDATE operators SET locked_until = clock_timestamp() - interval '1 second'").await;
    assert_eq!(refusal(&bank.ledger, "ann", "another password").await, LoginRefusal::WrongPassword);
    log_in(&bank.ledger, "ann").await;

    bank.ledger.disable_operator("ann").await.unwrap();
    assert_eq!(refusal(&bank.ledger, "ann", PASSWORD).await, LoginRefusal::Disabled);
    assert_eq!(bank.ledger.disable_operator("nobody").await.unwrap(), ChangeOperatorOutcome::Unknown);
}

/// Attempts at the same moment are counted before a password is compared.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn concurrent_logins_compare_no_more_passwords_than_the_limit(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.create_operator("ann", &[Operator]).await;
    let attempts = (0..12).map(|_| refusal(&bank.ledger, "ann", "another password"));
    let outcomes = futures::future::join_all(attempts).await;
    let compared = outcomes.iter().filter(|reason| **reason == LoginRefusal::WrongPassword).count();
    assert_eq!(compared, LOGIN_ATTEMPTS_MAX, "{outcomes:?}");
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_session_ends_by_logout_by_time_and_when_its_operator_changes(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.create_operator("ann", &[Operator]).await;
    let operator = async |token: &SessionToken| {
        bank.ledger.operator_session(token).await.unwrap().map(|session| session.operator)
    };
    assert_eq!(operator(&SessionToken::generate().unwrap()).await, None);

    let token = log_in(&bank.ledger, "ann").await;
    assert_eq!(operator(&token).await.unwrap().roles, [Operator]);
    assert_eq!(
        bank.ledger.set_operator_roles("ann", &[Approver, Viewer]).await.unwrap(),
        ChangeOperatorOutcome::Changed
    );
    assert_eq!(operator(&token).await.unwrap().roles, [Viewer, Approver]);
    bank.ledger.end_operator_session(&token).await.unwrap();
    assert_eq!(operator(&token).await, None);

    // Not used for half an hour; used in time.
    let (idle, used) = (log_in(&bank.ledger, "ann").await, log_in(&bank.ledger, "ann").await);
    bank.sql("UPDATE operator_sessions SET last_used_at = clock_timestamp() - interval '29 minutes' WHERE ended_at IS NULL").await;
    assert!(operator(&used).await.is_some(), "the use prolongs it");
    bank.sql("UPDATE operator_sessions SET last_used_at = last_used_at - interval '2 minutes' WHERE ended_at IS NULL").await;
    assert_eq!(operator(&idle).await, None);
    assert!(operator(&used).await.is_some());

    // A new password and a disabled operator end all sessions.
    let hash = Password::new("another long password".into()).unwrap().to_stored().unwrap();
    bank.ledger.set_operator_login("ann", &hash.into()).await.unwrap();
    assert_eq!(operator(&used).await, None);
    assert!(matches!(try_login(&bank.ledger, "ann", "another long password").await, LoginOutcome::Opened(_)));
    bank.ledger.disable_operator("ann").await.unwrap();
    assert_eq!(bank.ledger.operators().await.unwrap()[0].open_sessions, 0);
}

/// A session never becomes another's or longer, and no operator is renamed or deleted, also by the database's owner.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_database_protects_operators_and_sessions(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.create_operator("ann", &[Operator]).await;
    bank.create_operator("bob", &[Approver]).await;
    log_in(&bank.ledger, "ann").await;
    for sql in [
        "UPDATE operators SET name = 'carl' WHERE name = 'bob'",
        "DELETE FROM operators WHERE name = 'bob'",
        "TRUNCATE operators CASCADE",
        "UPDATE operator_sessions SET operator = 'bob'",
        "UPDATE operator_sessions SET expires_at = expires_at + interval '1 hour'",
        "UPDATE operator_sessions SET id_token_hash = sha256('')",
        "DELETE FROM operator_sessions",
    ] {
        assert_eq!(bank.refused(sql).await.0, "23001", "{sql}");
    }
    // Another spelling would be a second pair of eyes.
    let login = Password::new(PASSWORD.into()).unwrap().to_stored().unwrap().into();
    for name in ["Ann", "a.n.n", "ANN-"] {
        let outcome = bank.ledger.create_operator(name, &[Approver], &login).await.unwrap();
        assert_eq!(outcome, NewOperatorOutcome::Exists("ann".into()), "{name}");
    }
    for name in ["", "a n n", "-ann", "an\u{fc}"] {
        let refused = bank.ledger.create_operator(name, &[Approver], &login).await;
        assert!(matches!(refused, Err(LedgerError::Refused(_))), "{name}");
    }
}

/// Without a secret, or without an ID token, nobody is logged in, and the attempt counts.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_missing_secret_opens_no_session(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::new(options.connect_with(connect.clone()).await.unwrap());
    bank.create_operator("ann", &[Operator]).await;
    bank.ledger.create_operator("bob", &[Approver], &identity("u-1").into()).await.unwrap();
    let api = operator_api(&connect).await;
    let forged =
        "SELECT coalesce(refusal, 'opened') FROM open_operator_session('ann', NULL, repeat('0', 64), NULL)";
    assert_eq!(api.words(forged).await, ["wrong_password"]);
    let forged = "SELECT open_operator_session_of_identity('https://login.example', 'u-1', NULL, repeat('0', 64), NULL)";
    assert_eq!(api.refused(forged).await.0, "22023");
    assert_eq!(bank.number("SELECT count(*) FROM operator_sessions").await, 0);
    assert_eq!(bank.number("SELECT failed_logins::bigint FROM operators WHERE name = 'ann'").await, 1);
}

fn identity(subject: &str) -> OperatorIdentity {
    OperatorIdentity::new("https://login.example", subject).unwrap()
}

async fn log_identity_in(ledger: &Ledger, identity: &OperatorIdentity, id_token: &str) -> LoginOutcome {
    let token = SessionToken::generate().unwrap();
    ledger.log_identity_in(identity, &id_token.into(), &token, Some("127.0.0.1")).await.unwrap()
}

/// An operator with an identity has no password, and each ID token opens one session.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_identity_opens_one_session_for_each_id_token(options: PgPoolOptions, connect: PgConnectOptions) {
    let bank = Bank::new(options.connect_with(connect.clone()).await.unwrap());
    let operator_api = operator_api(&connect).await;
    let forged = "SELECT insert_operator_session('ann', repeat('0', 64), NULL, NULL)";
    assert_eq!(operator_api.refused(forged).await.0, "42501", "a session has one of its logins");
    let api = operator_api.ledger;
    let ann = bank.ledger.create_operator("ann", &[Operator], &identity("u-1").into()).await.unwrap();
    assert_eq!(ann, NewOperatorOutcome::Created);
    let LoginOutcome::Opened(session) =
        log_identity_in(&api, &identity("u-1"), "header.claims.signature").await
    else {
        panic!("the identity opens no session")
    };
    assert_eq!((session.operator.name.as_str(), session.operator.roles), ("ann", vec![Operator]));
    let refused =
        async |subject: &str, id_token: &str| match log_identity_in(&api, &identity(subject), id_token).await
        {
            LoginOutcome::Refused(reason) => reason,
            opened @ LoginOutcome::Opened(_) => panic!("{opened:?}"),
        };
    // Also with the other signature that signs the same.
    for used in ["header.claims.signature", "header.claims.another"] {
        assert_eq!(refused("u-1", used).await, LoginRefusal::TokenUsed);
    }
    assert_eq!(refused("u-2", "token 2").await, LoginRefusal::Unknown);
    assert_eq!(refusal(&api, "ann", PASSWORD).await, LoginRefusal::Unknown);
    assert_eq!(bank.ledger.operators().await.unwrap()[0].locked_until, None);

    // One identity is one operator.
    let taken = bank.ledger.create_operator("carl", &[Approver], &identity("u-1").into()).await.unwrap();
    assert_eq!(taken, NewOperatorOutcome::Exists("ann".into()));
    bank.create_operator("bob", &[Approver]).await;
    let taken = bank.ledger.set_operator_login("bob", &identity("u-1").into()).await.unwrap();
    assert_eq!(taken, ChangeOperatorOutcome::IdentityOf("ann".into()));

    // A password in its place, and back; either ends the sessions.
    let password = Password::new(PASSWORD.into()).unwrap().to_stored().unwrap();
    for (login, open) in [(password.into(), "u-2"), (identity("u-2").into(), "u-1")] {
        bank.ledger.set_operator_login("ann", &login).await.unwrap();
        assert_eq!(bank.ledger.operators().await.unwrap()[0].open_sessions, 0);
        assert_eq!(refused(open, "token 3").await, LoginRefusal::Unknown);
    }
    assert!(matches!(log_identity_in(&api, &identity("u-2"), "token 4").await, LoginOutcome::Opened(_)));
    bank.ledger.disable_operator("ann").await.unwrap();
    assert_eq!(refused("u-2", "token 5").await, LoginRefusal::Disabled);
}

fn not_allowed<T: std::fmt::Debug>(outcome: Result<T, DecideError>) {
    match outcome {
        Err(DecideError::Ledger(error)) => assert!(error.is_not_allowed(), "{error:?}"),
        other => panic!("{other:?}"),
    }
}

/// With the rights of operator-api, the database accepts a decision only in the session of the operator whom it names, with the role.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_decision_is_bound_to_the_session_of_its_operator(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    for (name, roles) in
        [("ann", &[Operator][..]), ("bob", &[Approver]), ("eve", &[Viewer]), ("max", &[Operator, Approver])]
    {
        owner.create_operator(name, roles).await;
    }
    let p = undecided(&owner, "one").await;
    let api = operator_api(&connect).await;
    let [ann, bob, eve, max] = [
        log_in(&api.ledger, "ann").await,
        log_in(&api.ledger, "bob").await,
        log_in(&api.ledger, "eve").await,
        log_in(&api.ledger, "max").await,
    ];
    let acting = |token: &SessionToken| api.ledger.acting_in(token.clone());
    let evidence = Some("letter 7");

    // Without a session, in another's, in that of an operator without the role, with a token that nobody was given.
    not_allowed(api.ledger.propose(&p.id, Action::Debit, "ann", "it left", evidence).await);
    not_allowed(acting(&max).propose(&p.id, Action::Debit, "ann", "it left", evidence).await);
    not_allowed(acting(&bob).propose(&p.id, Action::Debit, "bob", "it left", evidence).await);
    not_allowed(acting(&eve).propose(&p.id, Action::Debit, "eve", "it left", evidence).await);
    let forged = SessionToken::generate().unwrap();
    not_allowed(acting(&forged).propose(&p.id, Action::Debit, "ann", "it left", evidence).await);

    let proposed =
        acting(&max).propose(&p.id, Action::Debit, "max", "it left", evidence).await.unwrap().decision_id;
    // Two roles do not make two operators.
    let same = acting(&max).confirm(&proposed, "max", "so it did").await;
    assert!(matches!(same, Err(DecideError::Refused(DecisionRefusedError::SameOperator(_)))), "{same:?}");
    not_allowed(acting(&max).confirm(&proposed, "bob", "so it did").await);
    not_allowed(acting(&ann).confirm(&proposed, "ann", "so it did").await);
    not_allowed(api.ledger.withdraw(&proposed, "bob", "no").await);
    let confirmed = acting(&bob).confirm(&proposed, "bob", "so it did").await.unwrap();
    let ConfirmOutcome::ToApply(message) = confirmed else { panic!("{confirmed:?}") };
    api.ledger.mark_delivered(message.inbox_id).await.unwrap();
    let decision = api.ledger.decision(&proposed).await.unwrap().unwrap();
    assert_eq!((decision.status, decision.confirmed_by.as_deref()), (DecisionStatus::Confirmed, Some("bob")));

    // The time of a proposal is the database's.
    let early = undecided(&owner, "early").await;
    let forged = format!(
        "SELECT set_config('payments.operator_session', encode(sha256('{}'), 'hex'), true);
         INSERT INTO decisions (decision_id, payment_id, action, reason, evidence, proposed_by, proposed_at)
         VALUES ('dec_00000000000000000000', '{}', 'release', 'r', 'e', 'max', now() + interval '10 years')",
        max.expose(),
        early.id
    );
    api.sql(&forged).await;
    let proposed_early = "SELECT count(*) FROM decisions WHERE proposed_at > clock_timestamp()";
    assert_eq!(owner.number(proposed_early).await, 0);

    // A session that has ended decides nothing.
    let other = undecided(&owner, "two").await;
    api.ledger.end_operator_session(&ann).await.unwrap();
    not_allowed(acting(&ann).propose(&other.id, Action::RetryCancel, "ann", "again", None).await);
    let ann = log_in(&api.ledger, "ann").await;
    // What moves no money, and a withdrawal.
    acting(&ann).propose(&other.id, Action::RetryCancel, "ann", "again", None).await.unwrap();
    let third = undecided(&owner, "three").await;
    let withdrawn =
        acting(&ann).propose(&third.id, Action::Release, "ann", "void", evidence).await.unwrap().decision_id;
    acting(&bob).withdraw(&withdrawn, "bob", "not yet").await.unwrap();
    api.close().await;
    owner.close().await;
}

/// A proposal is confirmed within 7 days, and while who proposed it may propose; another operator can withdraw it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn an_old_proposal_and_that_of_a_barred_operator_are_not_confirmed(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    for (name, roles) in
        [("ann", &[Operator][..]), ("bob", &[Approver]), ("eve", &[Operator]), ("max", &[Operator, Approver])]
    {
        owner.create_operator(name, roles).await;
    }
    let api = operator_api(&connect).await;
    let acting = async |name| api.ledger.acting_in(log_in(&api.ledger, name).await);
    let (ann, eve, max) = (acting("ann").await, acting("eve").await, acting("max").await);
    let session = log_in(&api.ledger, "bob").await;
    let bob = api.ledger.acting_in(session.clone());
    let mut proposed = Vec::new();
    for (name, ledger) in [("ann", &ann), ("eve", &eve), ("max", &max)] {
        let p = undecided(&owner, name).await;
        let decision = ledger.propose(&p.id, Action::Release, name, "void", Some("letter 7")).await.unwrap();
        proposed.push(decision.decision_id);
    }
    let [old, disabled, without_role] = proposed.as_slice() else { panic!("{proposed:?}") };
    owner
        .sql(&format!(
            "BEGIN; SET LOCAL session_replication_role = replica;
             UPDATE decisions SET proposed_at = proposed_at - interval '7 days' WHERE decision_id = '{old}'; COMMIT"
        ))
        .await;
    owner.ledger.disable_operator("eve").await.unwrap();
    owner.sql("UPDATE operators SET roles = '{approver}' WHERE name = 'max'").await;

    for (decision, refusal) in [
        (old, DecisionRefusedError::TooOld),
        (disabled, DecisionRefusedError::ProposerBarred("eve".into())),
        (without_role, DecisionRefusedError::ProposerBarred("max".into())),
    ] {
        let refused = bob.confirm(decision, "bob", "so it is").await;
        assert!(matches!(&refused, Err(DecideError::Refused(found)) if *found == refusal), "{refused:?}");
        // The database refuses it whatever the process checks.
        let confirm = format!(
            "SELECT set_config('payments.operator_session', encode(sha256('{}'), 'hex'), true);
             UPDATE decisions SET status = 'confirmed', confirmed_by = 'bob', confirmed_at = now(), confirm_reason = 'r'
             WHERE decision_id = '{decision}'",
            session.expose()
        );
        let (code, message) = api.refused(&confirm).await;
        assert!(code == "42501" && message.contains("confirm an old proposal"), "{code} {message}");
        bob.withdraw(decision, "bob", "propose it again").await.unwrap();
    }
    api.close().await;
    owner.close().await;
}

/// operator-api posts corrections, each behind the decision of two operators, and nothing else.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn operator_api_posts_corrections_of_two_operators_only(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    owner.create_operator("ann", &[Operator]).await;
    owner.create_operator("bob", &[Approver]).await;
    let late = owner.payment_at(Stage::Released, "late").await;
    owner.ledger.store_callback(&success(&late, &event(&late, "late"))).await.unwrap();
    let settled = owner.payment_at(Stage::Settled, "settled").await;
    let exception = owner.open_exception(&late).await;
    let api = operator_api(&connect).await;
    let (ann, bob) = (log_in(&api.ledger, "ann").await, log_in(&api.ledger, "bob").await);
    let (ann, bob) = (api.ledger.acting_in(ann), api.ledger.acting_in(bob));

    let proposed = ann
        .propose_correction(exception, Correction::LateDebit, "ann", "it left", Some("line 3"))
        .await
        .unwrap();
    // A proposal is no decision: neither money nor the exception moves by it.
    let theft = format!(
        "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
         VALUES ('x', '{}', 'late_debit', '{}', 'internal:escrow:EUR', 1, 'EUR')",
        late.id, late.account
    );
    assert_eq!(api.refused(&theft).await.0, "42501");
    let operation = format!(
        "INSERT INTO operations (operation_key, payment_id, outcome) VALUES ('x', '{}', 'done')",
        late.id
    );
    assert_eq!(api.refused(&operation).await.0, "42501");
    let close = format!("UPDATE exceptions SET closed_at = now(), closed_by = '{}'", proposed.decision_id);
    assert_eq!(api.refused(&close).await.0, "42501");
    let confirm = "UPDATE decisions SET status = 'confirmed', confirmed_by = 'bob', confirmed_at = now(), confirm_reason = 'r'";
    assert_eq!(api.refused(confirm).await.0, "42501");

    let corrected = bob.confirm(&proposed.decision_id, "bob", "so it did").await.unwrap();
    assert!(matches!(corrected, ConfirmOutcome::Corrected { .. }), "{corrected:?}");
    // An exception of an operator, its correction, and one that is closed.
    let opened = ann.open_exception_by_operator(&settled.id, "ann", "the payee sent it back").await.unwrap();
    let credit = ann
        .propose_correction(opened, Correction::ReturnCredit, "ann", "it came back", Some("line 4"))
        .await
        .unwrap();
    bob.confirm(&credit.decision_id, "bob", "so it did").await.unwrap();
    let again = ann.open_exception_by_operator(&settled.id, "ann", "by mistake").await.unwrap();
    ann.close_exception(again, "ann", "nothing to correct").await.unwrap();
    assert_eq!(owner.ledger.verify_journal().await.unwrap().findings, []);
    owner.audit().await;
    api.close().await;
    owner.close().await;
}

/// A process that is taken over, with the sessions of two operators who have decided: it posts nothing but what they decided.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn a_confirmed_correction_is_good_for_its_own_posting_only(
    _: PgPoolOptions,
    connect: PgConnectOptions,
) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    owner.create_operator("ann", &[Operator]).await;
    owner.create_operator("bob", &[Approver]).await;
    let late = owner.payment_at(Stage::Released, "late").await;
    owner.ledger.store_callback(&success(&late, &event(&late, "late"))).await.unwrap();
    let other = owner.payment_at(Stage::Settled, "other").await;
    let exception = owner.open_exception(&late).await;
    let api = operator_api(&connect).await;
    let (ann, bob) = (log_in(&api.ledger, "ann").await, log_in(&api.ledger, "bob").await);
    let ann = api.ledger.acting_in(ann);
    let decision = ann
        .propose_correction(exception, Correction::LateDebit, "ann", "it left", Some("line 3"))
        .await
        .unwrap();
    let id = decision.decision_id;
    let confirmed = format!(
        "SELECT set_config('payments.operator_session', encode(sha256(convert_to('{}', 'UTF8')), 'hex'), true);
         UPDATE decisions SET status = 'confirmed', confirmed_by = 'bob', confirmed_at = '2020-01-01', confirm_reason = 'r' WHERE decision_id = '{id}';",
        bob.expose()
    );
    let (tx, source, victim) = (&late.tx, &late.account, &other.account);
    let operation = |key: &str, payment: &Sample, outcome: &str| {
        format!(
            "INSERT INTO operations (operation_key, payment_id, outcome) VALUES ('{key}', '{}', '{outcome}');",
            payment.id
        )
    };
    let entry = |key: &str, kind: &str, debit: &str, credit: &str, minor: i64| {
        format!(
            "INSERT INTO journal (operation_key, payment_id, kind, debit_account, credit_account, amount_minor, currency)
             VALUES ('{key}', '{}', '{kind}', '{debit}', '{credit}', {minor}, 'EUR');",
            late.id
        )
    };
    let own = format!("{tx}:correct:{id}");
    let done = operation(&own, &late, "done");
    let (escrow, minor) = ("internal:escrow:EUR", crate::support::AMOUNT_MINOR);
    let event_of = |payment: &Sample, about: &Sample, kind: &str, minor: i64| {
        format!(
            r#"INSERT INTO outbox (event_id, kind, version, subject_key, sequence, body)
               VALUES ('{about}:{kind}', '{kind}', 1, '{}', 9, '{{"payment_id": "{}", "charged_minor": {minor}}}')"#,
            payment.id,
            payment.id,
            about = about.id,
        )
    };
    let posted = done.clone() + &entry(&own, "late_debit", source.as_str(), escrow, minor);
    let attacks = [
        // Another account, amount, kind, direction, key or payment.
        done.clone() + &entry(&own, "late_debit", victim.as_str(), escrow, minor),
        done.clone() + &entry(&own, "late_debit", source.as_str(), victim.as_str(), minor),
        done.clone() + &entry(&own, "late_debit", source.as_str(), escrow, minor + 1),
        done.clone() + &entry(&own, "return_credit", escrow, source.as_str(), minor),
        done.clone() + &entry(&own, "return", escrow, source.as_str(), minor),
        operation("x", &late, "done"),
        operation(&format!("{tx}:return:r-1"), &late, "done"),
        operation(&own, &late, "refused"),
        operation(&format!("{}:debit", other.tx), &other, "done"),
        // The outcome and the exception without the posting.
        format!("UPDATE decisions SET status = 'done', closed_at = now() WHERE decision_id = '{id}'"),
        format!("UPDATE decisions SET status = 'proposed' WHERE decision_id = '{id}'"),
        format!(
            "UPDATE decisions SET status = 'withdrawn', withdrawn_by = 'bob', closed_at = now() WHERE decision_id = '{id}'"
        ),
        format!(
            "UPDATE exceptions SET closed_at = now(), closed_by = '{id}' WHERE exception_id = {exception}"
        ),
        format!("UPDATE payments SET final_status = 'settled' WHERE payment_id = '{}'", late.id),
        // Events: of another kind, without the posting, of another payment, under another id, and with another amount.
        posted.clone() + &event_of(&late, &late, "transfer_sent", minor),
        event_of(&late, &late, "transfer_charged", minor),
        posted.clone() + &event_of(&other, &other, "transfer_charged", minor),
        posted.clone() + &event_of(&late, &other, "transfer_charged", minor),
        posted.clone() + &event_of(&late, &late, "transfer_charged", minor + 1),
    ];
    for attack in attacks {
        let refused = api.refused(&format!("{confirmed}{attack}")).await;
        // Another payer is refused by the journal, to every role.
        assert!(["42501", "23001"].contains(&refused.0.as_str()), "{attack}: {refused:?}");
    }
    // In a snapshot the end of a session would not be seen.
    let mut session = api.pool.acquire().await.unwrap();
    let snapshot = format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {confirmed}");
    let refused = sqlx::raw_sql(AssertSqlSafe(snapshot)).execute(&mut *session).await.unwrap_err();
    assert_eq!(refused.as_database_error().and_then(|error| error.code()).as_deref(), Some("42501"));
    sqlx::raw_sql("ROLLBACK").execute(&mut *session).await.unwrap();
    // The confirmation and its own posting are not what was refused.
    let posting = entry(&own, "late_debit", source.as_str(), escrow, minor);
    let event = event_of(&late, &late, "transfer_charged", minor);
    let right = format!("BEGIN; {confirmed}{done}{posting}{event}; ROLLBACK");
    sqlx::raw_sql(AssertSqlSafe(right)).execute(&mut *session).await.unwrap();
    drop(session);
    // What was decided passes, at the time of the database's clock.
    api.ledger.acting_in(bob).confirm(&id, "bob", "so it did").await.unwrap();
    let confirmed_at = "SELECT (confirmed_at > now() - interval '1 hour')::int::bigint FROM decisions";
    assert_eq!(owner.number(confirmed_at).await, 1);
    owner.audit().await;
    api.close().await;
    owner.close().await;
}

/// A late debit that the customer cannot pay, one of a payment of which a return was kept, and a credit: everything that follows from it.
#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn operator_api_posts_all_that_a_correction_causes(_: PgPoolOptions, connect: PgConnectOptions) {
    let owner = Bank::with_connections(PgPoolOptions::new(), connect.clone(), 2).await;
    owner.create_operator("ann", &[Operator]).await;
    owner.create_operator("bob", &[Approver]).await;
    let api = operator_api(&connect).await;
    let (ann, bob) = (log_in(&api.ledger, "ann").await, log_in(&api.ledger, "bob").await);
    let (ann, bob) = (api.ledger.acting_in(ann), api.ledger.acting_in(bob));
    for (name, stage, correction) in [
        ("poor", Stage::Released, Correction::LateDebit),
        ("returned", Stage::Released, Correction::LateDebit),
        ("credited", Stage::Settled, Correction::ReturnCredit),
    ] {
        let p = owner.payment_at(stage, name).await;
        let event = event(&p, name);
        let callback = if name == "credited" { failure(&p, &event) } else { success(&p, &event) };
        owner.ledger.store_callback(&callback).await.unwrap();
        match name {
            "poor" => owner.freeze(&p).await,
            "returned" => crate::support::return_part(&owner, &p, "r-1", 100).await,
            _ => {}
        }
        let exception = owner
            .number(&format!(
                "SELECT min(exception_id) FROM exceptions WHERE payment_id = '{}' AND closed_at IS NULL",
                p.id
            ))
            .await;
        let proposed = ann.propose_correction(exception, correction, "ann", "so it is", Some("line 3")).await;
        let corrected = bob.confirm(&proposed.unwrap().decision_id, "bob", "so it did").await;
        assert!(matches!(corrected, Ok(ConfirmOutcome::Corrected { .. })), "{name}: {corrected:?}");
    }
    assert_eq!(owner.number("SELECT count(*) FROM exceptions WHERE kind = 'debited_to_claims'").await, 1);
    assert_eq!(owner.number("SELECT count(*) FROM returns WHERE booked_at IS NOT NULL").await, 1);
    let events =
        "SELECT kind FROM outbox WHERE kind IN ('transfer_charged', 'transfer_returned') ORDER BY position";
    assert_eq!(owner.words(events).await, ["transfer_charged", "transfer_returned", "transfer_returned"]);
    owner.audit().await;
    api.close().await;
    owner.close().await;
}

#[sqlx::test(migrator = "payment_ledger::MIGRATOR")]
async fn the_audit_log_has_logins_lockouts_and_roles_and_no_secret(pool: PgPool) {
    let bank = Bank::new(pool);
    bank.create_operator("ann", &[Operator]).await;
    let token = log_in(&bank.ledger, "ann").await;
    let session = bank.ledger.operator_session(&token).await.unwrap().unwrap();
    bank.ledger.end_operator_session(&token).await.unwrap();
    bank.ledger.set_operator_roles("ann", &[Approver]).await.unwrap();
    let hash = Password::new("another long password".into()).unwrap().to_stored().unwrap();
    bank.ledger.set_operator_login("ann", &hash.into()).await.unwrap();
    for _ in 0..LOGIN_ATTEMPTS_MAX {
        refusal(&bank.ledger, "ann", "a wrong password").await;
    }
    let entries = bank
        .words(
            "SELECT concat_ws(' ', object, subject, action, before, after) FROM audit_log ORDER BY entry_id",
        )
        .await;
    let objects: Vec<_> =
        entries.iter().map(|entry| entry.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect();
    let session = format!("operator_sessions ann/{}", session.session_id);
    let expected = [
        "operators ann insert".to_owned(),
        format!("{session} insert"),
        format!("{session} update"),
        "operators ann update".to_owned(),
        "operators ann update".to_owned(),
        "operators ann update".to_owned(),
    ];
    assert_eq!(objects, expected);
    let of = ["approver", "login_set_at", "locked_until"];
    assert!(entries[3..].iter().zip(of).all(|(entry, column)| entry.contains(column)), "{entries:?}");
    let by = bank.words("SELECT DISTINCT operator FROM audit_log WHERE object = 'operator_sessions' AND action = 'insert'").await;
    assert_eq!(by, ["ann"]);
    // By a logout the operator ended it, and by a new password the owner.
    let by = bank.words("SELECT coalesce(operator, login) FROM audit_log WHERE object = 'operator_sessions' AND action = 'update'").await;
    assert_eq!(by, ["ann"]);
    let all = entries.join("\n");
    assert!(
        !all.contains("argon2id") && !all.contains("token_hash") && !all.contains("failed_logins"),
        "{all}"
    );
}
