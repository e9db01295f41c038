//! R1: a process dies (abort, no destructor runs) at each boundary of a payment: before an effect, and between an effect and its report.
//! The payment ends as if nothing had happened, and the books agree. `crash_point::crash_point` marks the boundaries; those of
//! payment-worker's activities are before and after each activity, between the record of a request to the switch and the request, and between the
//! switch's answer and its record.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use futures::future::join_all;
use serde_json::{Value, json};
use testkit::process::Process;
use testkit::system::{API_KEY, AcceptedPayment, OPENING_MINOR, payment_request};
use testkit::temporal::EventType;
use testkit::wait::until;
use testkit::{System, SystemOptions};
use uuid::Uuid;

use crate::event_bank::EventBank;
use crate::outbound_webhooks::{Receiver, post};
use crate::reconciliation;

/// Time limit for a process to die at its point, and for a payment to reach its end.
pub(crate) const WITHIN: Duration = Duration::from_secs(120);
/// Banks with the ordinary profile. Each runs its cases one after the other, beside the other banks: a case mostly waits for Temporal's timeouts.
const ORDINARY_BANKS: usize = 4;
/// Environment variable of the point.
const VARIABLE: &str = crash_point::VARIABLE;

/// The process that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dies {
    Worker,
    Api,
    BackgroundWorker,
    Notifier,
    OperatorApi,
}

/// What leads a payment to the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// It settles.
    Settles,
    /// It settles at a bank whose database may lose commits: submit is an activity of its own.
    SettlesInSteps,
    /// It settles at a switch that takes one attempt: reserve is an activity of its own too.
    SettlesAtMostOnce,
    /// It settles at a switch without callbacks.
    IsPolled,
    /// The switch refuses the submit: it is cancelled there, and released.
    IsRefused,
    /// The account is frozen before the debit: the money is recalled.
    IsRecalled,
    /// The same, and the switch refuses the recall: operators are called.
    NeedsOperator,
    /// The same, and two operators decide that it is debited.
    IsDecided,
    /// The database refuses its debit for good: operators are called.
    IsNotDebited,
    /// The database refuses its debit, and takes it again when one operator has it repeated.
    IsRetried,
    /// Its workflow finds it invalid.
    IsInvalid,
    /// It settles, and a reconciliation run compares it.
    IsReconciled,
    /// It settles, and the tenant's webhook endpoint receives its events.
    IsSent,
    /// It settles at a switch without references: it waits for the lock of the account that is paid.
    IsLocked,
    /// The same; the worker may die once the transfer is accepted, so that the only attempt is not interrupted.
    HoldsLock,
    /// Its workflow is terminated: a recovery workflow carries it on.
    IsTerminated,
    /// The customer cancels it.
    IsCancelled,
    /// payments-api dies before it delivers the callback, so background-worker does.
    IsDeliveredLate,
}

/// What a bank's cases have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ordinary,
    /// Its database may lose commits.
    MayLoseCommits,
    /// Its switch takes one attempt.
    AtMostOnce,
    /// Its switch has no callbacks.
    WithoutCallbacks,
    /// Its switch has no references.
    WithoutReferences,
}

/// A boundary at which a process dies, and what leads a payment there.
type Case<'c> = (Dies, &'c str, Course);

/// Every point with a path to it.
const CASES: &[Case<'_>] = &[
    (Dies::Worker, "before setting up Temporal", Course::Settles),
    (Dies::Worker, "before starting a workflow", Course::Settles),
    (Dies::Worker, "after starting a workflow", Course::Settles),
    (Dies::Worker, "before reserve_and_submit", Course::Settles),
    (Dies::Worker, "after reserve_and_submit", Course::Settles),
    (Dies::Worker, "before reserve", Course::SettlesAtMostOnce),
    (Dies::Worker, "after reserve", Course::SettlesAtMostOnce),
    (Dies::Worker, "before submit", Course::SettlesInSteps),
    (Dies::Worker, "after submit", Course::SettlesInSteps),
    (Dies::Worker, "before debit", Course::Settles),
    (Dies::Worker, "after debit", Course::Settles),
    (Dies::Worker, "before poll", Course::IsPolled),
    (Dies::Worker, "after poll", Course::IsPolled),
    (Dies::Worker, "before cancel", Course::IsRefused),
    (Dies::Worker, "after cancel", Course::IsRefused),
    (Dies::Worker, "before release", Course::IsRefused),
    (Dies::Worker, "after release", Course::IsRefused),
    (Dies::Worker, "before recall", Course::IsRecalled),
    (Dies::Worker, "after recall", Course::IsRecalled),
    (Dies::Worker, "before needs_operator", Course::NeedsOperator),
    (Dies::Worker, "after needs_operator", Course::NeedsOperator),
    (Dies::Worker, "before apply_decision", Course::IsDecided),
    (Dies::Worker, "after apply_decision", Course::IsDecided),
    (Dies::Worker, "before alert", Course::IsNotDebited),
    (Dies::Worker, "after alert", Course::IsNotDebited),
    (Dies::Worker, "before reject", Course::IsInvalid),
    (Dies::Worker, "after reject", Course::IsInvalid),
    (Dies::Worker, "before run_reconciliation", Course::IsReconciled),
    (Dies::Worker, "after run_reconciliation", Course::IsReconciled),
    (Dies::Worker, "before get_lock", Course::IsLocked),
    (Dies::Worker, "after get_lock", Course::IsLocked),
    (Dies::Worker, "before check_lock_holder", Course::HoldsLock),
    (Dies::Worker, "after check_lock_holder", Course::HoldsLock),
    (Dies::Worker, "before release_lock", Course::IsLocked),
    (Dies::Worker, "after release_lock", Course::IsLocked),
    (Dies::Worker, "before fence_reserve", Course::IsTerminated),
    (Dies::Worker, "after fence_reserve", Course::IsTerminated),
    (Dies::Worker, "before sending a submit", Course::Settles),
    (Dies::Worker, "before sending a cancel", Course::IsRefused),
    (Dies::Worker, "before sending a recall", Course::IsRecalled),
    (Dies::Worker, "after the answer to a submit", Course::Settles),
    (Dies::Worker, "after the answer to a query", Course::IsPolled),
    (Dies::Worker, "after the answer to a cancel", Course::IsRefused),
    (Dies::Worker, "after the answer to a recall", Course::IsRecalled),
    (Dies::Api, "before accepting a payment", Course::Settles),
    (Dies::Api, "after accepting a payment", Course::Settles),
    (Dies::Api, "before storing a callback", Course::Settles),
    (Dies::Api, "after storing a callback", Course::Settles),
    (Dies::Api, "after signalling a workflow", Course::Settles),
    (Dies::Api, "after storing a cancel", Course::IsCancelled),
    (Dies::BackgroundWorker, "before delivering a message", Course::IsDeliveredLate),
    (Dies::BackgroundWorker, "after delivering a message", Course::IsDeliveredLate),
    (Dies::BackgroundWorker, "before publishing an event", Course::Settles),
    (Dies::BackgroundWorker, "after publishing an event", Course::Settles),
    (Dies::BackgroundWorker, "after recording published events", Course::Settles),
    (Dies::Notifier, "before consuming events", Course::Settles),
    (Dies::Notifier, "after consuming events", Course::Settles),
    (Dies::Notifier, "before sending a webhook", Course::IsSent),
    (Dies::Notifier, "after sending a webhook", Course::IsSent),
    (Dies::OperatorApi, "after storing a decision", Course::IsDecided),
    (Dies::OperatorApi, "after storing a decision of one operator", Course::IsRetried),
    (Dies::OperatorApi, "after updating a workflow", Course::IsDecided),
];

/// What compensates, where the worker dies after the effect and before the report: it is repeated.
const COMPENSATIONS: &[(&str, Course)] = &[
    ("after the answer to a cancel", Course::IsRefused),
    ("after the answer to a recall", Course::IsRecalled),
    ("after cancel", Course::IsRefused),
    ("after release", Course::IsRefused),
    ("after recall", Course::IsRecalled),
    ("after needs_operator", Course::NeedsOperator),
    ("after fence_reserve", Course::IsTerminated),
];

/// Points that no payment of the banks here comes to, each with the test that ends the process there.
const CASES_ELSEWHERE: &[(&str, &str)] = &[
    ("before sending a recall after the end", RECALLS_AFTER_END),
    ("after the answer to a recall after the end", RECALLS_AFTER_END),
];
/// In `tests/rails/recalls.rs`.
const RECALLS_AFTER_END: &str =
    "r1_a_recall_whose_worker_dies_is_sent_again_only_where_the_rail_takes_a_second";

/// Activities without a case, and why.
const NOT_COVERED: &[(&str, &str)] = &[
    ("reconcile", "writes nothing"),
    (
        "close_decision",
        "of a decision that comes at the instant at which the payment ends, which no test can hold; its repeat keeps the first outcome (r2_every_step_of_a_payment_that_runs_twice_has_one_effect_and_one_answer)",
    ),
];

impl Kind {
    const ALL: [Self; 5] = [
        Self::Ordinary,
        Self::MayLoseCommits,
        Self::AtMostOnce,
        Self::WithoutCallbacks,
        Self::WithoutReferences,
    ];

    fn options(self) -> SystemOptions {
        let options = SystemOptions {
            sandbox_amounts: true,
            commits_may_be_lost: self == Self::MayLoseCommits,
            ..SystemOptions::default()
        };
        // A dead worker's tasks come back after ten seconds and more: no time of the payment may be over by then.
        let options = options
            .with_profile("sla_ms", 300_000)
            .with_profile("submit_budget_ms", 120_000)
            .with_profile("submit_deadline_ms", 150_000);
        match self {
            Self::Ordinary | Self::MayLoseCommits => options,
            Self::WithoutCallbacks => SystemOptions {
                shape: json!({"callback": false}),
                ..options.with_profile("has_callback", false)
            },
            Self::WithoutReferences => SystemOptions {
                shape: json!({"keys": false, "dedup": false, "tombstone": false, "callback": false}),
                ..options
                    .with_profile("strategy", "validate")
                    .with_profile("deduplicates", false)
                    .with_profile("tombstones", false)
                    .with_profile("has_callback", false)
            },
            Self::AtMostOnce => SystemOptions {
                shape: json!({"dedup": false, "query": false}),
                ..options
                    .with_profile("strategy", "at_most_once")
                    .with_profile("deduplicates", false)
                    .with_profile("has_query", false)
            },
        }
    }

    /// Into how many banks its cases are divided.
    fn banks(self) -> usize {
        if self == Self::Ordinary { ORDINARY_BANKS } else { 1 }
    }
}

impl Course {
    fn kind(self) -> Kind {
        match self {
            Self::SettlesInSteps => Kind::MayLoseCommits,
            Self::SettlesAtMostOnce => Kind::AtMostOnce,
            Self::IsPolled => Kind::WithoutCallbacks,
            Self::IsLocked | Self::HoldsLock => Kind::WithoutReferences,
            _ => Kind::Ordinary,
        }
    }

    fn freezes(self) -> bool {
        matches!(self, Self::IsRecalled | Self::NeedsOperator | Self::IsDecided)
    }

    fn amount(self) -> &'static str {
        match self {
            Self::IsRefused => "90.06",
            // Never settles by itself; can be cancelled.
            Self::IsTerminated | Self::IsCancelled | Self::HoldsLock => "90.04",
            Self::IsNotDebited => "5.01",
            Self::IsRetried => "5.02",
            _ => "5.00",
        }
    }

    fn end(self) -> &'static str {
        match self {
            Self::IsRefused | Self::IsRecalled | Self::IsTerminated => "failed",
            Self::IsInvalid => "rejected",
            Self::NeedsOperator | Self::IsNotDebited => "needs_operator",
            Self::IsCancelled => "cancelled",
            _ => "settled",
        }
    }
}

/// The process of a bank that dies. operator-api is not among them: it runs only while operators decide ([`decide`]).
fn process(bank: &mut EventBank, dies: Dies) -> anyhow::Result<&mut Process> {
    Ok(match dies {
        Dies::Worker => &mut bank.system.worker,
        Dies::Api => &mut bank.system.api,
        Dies::BackgroundWorker => &mut bank.system.background_worker,
        Dies::Notifier => &mut bank.notifier,
        Dies::OperatorApi => bail!("operator-api does not run"),
    })
}

fn request(system: &System, amount: &str) -> Value {
    let mut body = payment_request(amount);
    body["source_account"] = system.account().into();
    body
}

/// Orders the payment under this key until it is accepted, whatever happens to payments-api.
async fn order(system: &System, key: &str, amount: &str) -> anyhow::Result<AcceptedPayment> {
    let body = request(system, amount);
    until("the payment is accepted", WITHIN, || async {
        let response = system.post_payment(key, &body).await;
        let Some(response) = response.ok().filter(|response| response.status().is_success()) else {
            return Ok(None);
        };
        let accepted: Value = response.json().await?;
        let text = |field: &str| accepted[field].as_str().map(str::to_owned).context("a field is missing");
        Ok(Some(AcceptedPayment {
            payment_id: text("payment_id")?,
            reference: format!("{}:submit", text("transaction_id")?),
            key: key.to_owned(),
        }))
    })
    .await
}

/// Starts a process again as one that dies at the point. A payment-worker may die before it is ready.
pub(crate) async fn doom(process: &mut Process, point: &str) -> anyhow::Result<()> {
    process.kill().await?;
    process.set_variable(VARIABLE, point);
    if process.name() == "payment-worker" { process.spawn() } else { process.restart().await }
}

/// Waits until a process has died at the point `deaths` times, and starts it again each time, at last as one that lives.
pub(crate) async fn die(process: &mut Process, point: &str, deaths: u32) -> anyhow::Result<()> {
    for left in (0..deaths).rev() {
        until(&format!("{} dies {point}", process.name()), WITHIN, || {
            let exited = process.has_exited();
            async move { Ok(exited?.then_some(())) }
        })
        .await
        .with_context(|| process.log_tail())?;
        ensure!(process.has_logged(&format!("crash point: {point}"))?, "{}", process.log_tail());
        if left > 0 {
            process.spawn()?;
        } else {
            process.remove_variable(VARIABLE);
            process.restart().await?;
        }
    }
    Ok(())
}

/// A payment that its workflow finds invalid, as if payments-api had not checked it: over its switch's limit. No worker runs.
async fn make_invalid(system: &System, id: &str) -> anyhow::Result<()> {
    let over_limit = "WITH small AS (
             SELECT profile || '{\"amount_limit_minor\": 1}' AS profile FROM switch_profiles
             WHERE profile_hash = (SELECT profile_hash FROM payments WHERE payment_id = $1)),
         stored AS (
             INSERT INTO switch_profiles (profile_hash, profile) SELECT switch_profile_hash(profile), profile FROM small
             ON CONFLICT DO NOTHING)
         UPDATE payments SET profile_hash = (SELECT switch_profile_hash(profile) FROM small) WHERE payment_id = $1";
    sqlx::query(over_limit).bind(id).execute(&system.database.pool).await?;
    Ok(())
}

/// Operators decide that a payment is debited, or that its debit is repeated; operator-api dies meanwhile if it is its turn.
async fn decide(system: &System, id: &str, (dies, point, path): Case<'_>, deaths: u32) -> anyhow::Result<()> {
    system.wait_for_state(id, "needs_operator").await?;
    system.set_account_status(system.account(), "active").await?;
    // A bank may have several such cases, and a name is an operator's for ever.
    let staff = ["ann", "ben"].map(|name| format!("{name}-{}", Uuid::new_v4().simple()));
    let staff = [staff[0].as_str(), staff[1].as_str()];
    let mut operators = system.operators(&staff).await?;
    if dies == Dies::OperatorApi {
        doom(&mut operators.api, point).await?;
    }
    let decided = match path {
        Course::IsRetried => {
            // A report of the switch, too, has the debit repeated.
            system.worker.pause()?;
            let retry =
                ["decide", id, "retry-cancel", "--reason", "the database takes it again", "--wait", "0"];
            let decided = operators.run(system, staff[0], &retry).await.map(drop);
            let accept = "ALTER TABLE journal DROP CONSTRAINT no_debit_yet";
            sqlx::raw_sql(accept).execute(&system.database.pool).await?;
            system.worker.resume()?;
            decided
        }
        _ => operators.decide_debit(system, staff, id).await,
    };
    if dies != Dies::OperatorApi {
        return decided;
    }
    // It may have died before it answered.
    die(&mut operators.api, point, deaths).await.with_context(|| format!("the operators: {decided:?}"))
}

/// Creates a webhook endpoint of the tenant, and the system that receives its events.
async fn create_endpoint(system: &System) -> anyhow::Result<Endpoint> {
    let receiver = Receiver::start().await?;
    let endpoints = format!("{}/api/v1/webhook-endpoints", system.api.url());
    let created = post(&endpoints, &json!({"url": receiver.hook()})).await?;
    let text = |field: &str| created[field].as_str().map(str::to_owned).context(created.to_string());
    receiver.set_secrets(&[&text("secret")?]).await?;
    Ok(Endpoint { id: text("endpoint_id")?, receiver })
}

/// A webhook endpoint, and the system of the tenant that receives its events.
struct Endpoint {
    id: String,
    receiver: Receiver,
}

impl Endpoint {
    /// Waits until both events of a payment are recorded as delivered, and deletes the endpoint. Every copy of an event has one id, which the
    /// tenant knows it by.
    async fn finish(self, system: &System, payment_id: &str, point: &str) -> anyhow::Result<()> {
        let pool = &system.database.pool;
        until("both events are delivered", WITHIN, || async {
            let delivered =
                "SELECT count(*) FROM webhook_deliveries WHERE endpoint_id = $1 AND state = 'delivered'";
            let delivered: i64 = sqlx::query_scalar(delivered).bind(&self.id).fetch_one(pool).await?;
            Ok((delivered == 2).then_some(()))
        })
        .await?;
        let received = self.receiver.received().await?;
        ensure!(received.iter().all(|one| one["verified"] == true), "a signature is invalid: {received:?}");
        let ids: BTreeSet<&str> = received.iter().filter_map(|one| one["id"].as_str()).collect();
        let events = ["transfer_pending", "transfer_sent"].map(|kind| format!("{payment_id}:{kind}"));
        ensure!(ids == events.iter().map(String::as_str).collect(), "{ids:?}");
        // What was sent, and not recorded, is sent again.
        ensure!(point != "after sending a webhook" || received.len() > events.len(), "{received:?}");
        let endpoint = format!("{}/api/v1/webhook-endpoints/{}", system.api.url(), self.id);
        let delete = testkit::http().delete(endpoint).bearer_auth(API_KEY);
        delete.header("Idempotency-Key", Uuid::new_v4().to_string()).send().await?.error_for_status()?;
        Ok(())
    }
}

/// Runs one case; afterwards, every process lives and the payment has ended, or waits for an operator.
async fn run(bank: &mut EventBank, case: Case<'_>, deaths: u32) -> anyhow::Result<()> {
    let (dies, point, path) = case;
    match (dies, path) {
        // They are doomed later.
        (Dies::OperatorApi, _) | (_, Course::HoldsLock) => {}
        (_, Course::IsInvalid) => bank.system.worker.kill().await?,
        _ => doom(process(bank, dies)?, point).await?,
    }
    if path == Course::IsDeliveredLate {
        bank.system.api.kill().await?;
        bank.system.api.set_variable(VARIABLE, "after storing a callback");
        bank.system.api.restart().await?;
    }
    let endpoint = if path == Course::IsSent { Some(create_endpoint(&bank.system).await?) } else { None };
    let pool = bank.system.database.pool.clone();
    if path == Course::IsNotDebited {
        // For good: once the database took the debit, the payment would not wait for operators any more.
        let refuse = "ALTER TABLE journal DROP CONSTRAINT IF EXISTS no_debit,
             ADD CONSTRAINT no_debit CHECK (kind <> 'debit' OR amount_minor <> 501)";
        sqlx::raw_sql(refuse).execute(&pool).await?;
    }
    if path == Course::IsRetried {
        let refuse =
            "ALTER TABLE journal ADD CONSTRAINT no_debit_yet CHECK (kind <> 'debit' OR amount_minor <> 502)";
        sqlx::raw_sql(refuse).execute(&pool).await?;
    }

    if path.freezes() {
        // It settles when the account is frozen.
        let mut behaviour = json!({"outcome": "hold"});
        if path != Course::IsRecalled {
            behaviour["recall"] = json!([{"fault": "refuse", "times": "always"}]);
        }
        bank.system.switch.set_default_behaviour(behaviour).await?;
    }
    let key = Uuid::new_v4().to_string();
    // payments-api may die with the request in hand: the customer repeats it.
    let payment = if dies == Dies::Api && point.ends_with("accepting a payment") {
        let refused = bank.system.post_payment(&key, &request(&bank.system, path.amount())).await;
        ensure!(refused.is_err(), "payments-api answered: {refused:?}");
        die(process(bank, dies)?, point, deaths).await?;
        order(&bank.system, &key, path.amount()).await?
    } else {
        order(&bank.system, &key, path.amount()).await?
    };
    let id = &payment.payment_id;
    if path.freezes() || matches!(path, Course::IsTerminated | Course::IsCancelled) {
        bank.system.wait_for_state(id, "submitted").await?;
    }
    if path.freezes() {
        bank.system.set_account_status(bank.system.account(), "frozen").await?;
        bank.system.switch.finish_transfer(&payment.reference, "settle").await?;
    }
    let mut reconciling = None;
    match path {
        Course::IsInvalid => {
            make_invalid(&bank.system, id).await?;
            bank.system.worker.set_variable(VARIABLE, point);
            bank.system.worker.spawn()?;
        }
        Course::IsReconciled => {
            bank.system.wait_for_state(id, "settled").await?;
            let run = reconciliation::start(&bank.system, id).await?;
            die(process(bank, dies)?, point, deaths).await?;
            reconciliation::give_up_attempt(&bank.system, &run, 1).await?;
            reconciling = Some(run);
        }
        Course::IsTerminated => {
            bank.system.terminate_workflow(id).await?;
        }
        // payments-api may die before it answers.
        Course::IsCancelled => drop(bank.system.cancel(id).await),
        Course::IsDeliveredLate => die(&mut bank.system.api, "after storing a callback", 1).await?,
        Course::HoldsLock => {
            bank.system.wait_for_state(id, "submitted").await?;
            doom(process(bank, dies)?, point).await?;
            // It reports nothing before the payment has ended.
            if point == "after check_lock_holder" {
                bank.system.switch.finish_transfer(&payment.reference, "settle").await?;
            }
        }
        Course::IsDecided | Course::IsRetried => decide(&bank.system, id, case, deaths).await?,
        _ => {}
    }
    let has_died =
        dies == Dies::OperatorApi || path == Course::IsReconciled || point.ends_with("accepting a payment");
    if !has_died {
        die(process(bank, dies)?, point, deaths).await?;
    }
    if point == "before check_lock_holder" {
        bank.system.switch.finish_transfer(&payment.reference, "settle").await?;
    }
    bank.system.wait_for_state(id, path.end()).await?;
    let audit = bank.system.audit().await?;
    ensure!(audit.debited == usize::from(path.end() == "settled"), "{audit:?}");
    if !matches!(path.end(), "settled" | "needs_operator") {
        ensure!(
            bank.system.available().await? == OPENING_MINOR,
            "a payment that was not charged cost something"
        );
    }
    if path == Course::IsNotDebited {
        let alerts = "SELECT count(*) FROM alerts WHERE payment_id = $1 AND kind = 'debit_failed'";
        let alerts: i64 = sqlx::query_scalar(alerts).bind(id).fetch_one(&pool).await?;
        ensure!(alerts == 1, "{alerts} alerts of one debit");
    }
    if let Some(run) = reconciling {
        bank.system.wait_for_event(&run, EventType::WorkflowExecutionCompleted).await?;
        let found = "SELECT count(*) FROM exceptions WHERE payment_id = $1";
        let found: i64 = sqlx::query_scalar(found).bind(id).fetch_one(&pool).await?;
        ensure!(found == 0, "{found} exceptions of a sound payment");
        // A run that was done, and not reported, is done again.
        let open = "SELECT count(*) FROM reconciliation_runs WHERE finished_at IS NULL";
        let open: i64 = sqlx::query_scalar(open).fetch_one(&pool).await?;
        ensure!(open == 0, "{open} reconciliation runs did not finish");
    }
    // A payment that was decided has another event than one that settles.
    if path.end() == "settled" && !matches!(path, Course::IsDecided | Course::IsRetried) {
        bank.wait_for_notifications(std::slice::from_ref(id)).await?;
    }
    if let Some(endpoint) = endpoint {
        endpoint.finish(&bank.system, id, point).await?;
    }
    // No step is left that could bring a process to its point in the bank's next case.
    bank.system.wait_until_inbox_delivered(id).await?;
    bank.wait_until_published().await?;
    let last = if path == Course::IsTerminated { format!("{id}:resume:1") } else { id.clone() };
    match path.end() {
        "needs_operator" => {}
        "settled" => {
            bank.system.wait_for_event(&last, EventType::WorkflowExecutionCompleted).await?;
        }
        _ => {
            bank.system.wait_for_event(&last, EventType::WorkflowExecutionFailed).await?;
        }
    }
    Ok(())
}

/// Runs the cases of one bank, one after the other, until one fails; returns the failure.
async fn run_bank(kind: Kind, cases: Vec<Case<'_>>, deaths: u32) -> Option<String> {
    let mut bank = match EventBank::start_with("crash", kind.options()).await {
        Ok(bank) => bank,
        Err(error) => return Some(format!("the bank {kind:?} does not start: {error:#}")),
    };
    for (n, case) in cases.iter().enumerate() {
        let outcome = async {
            if n > 0 {
                bank.system.next_case().await?;
            }
            run(&mut bank, *case, deaths).await
        };
        if let Err(error) = outcome.await {
            return Some(format!(
                "{case:?}, and the {} cases after it did not run: {error:#}",
                cases.len() - n - 1
            ));
        }
    }
    None
}

/// Runs cases. Those of a kind are dealt to its banks, all of which run at once.
async fn run_all(
    cases: impl DoubleEndedIterator<Item = Case<'_>> + Clone,
    deaths: u32,
) -> anyhow::Result<()> {
    let mut banks: Vec<(Kind, Vec<Case<'_>>)> = Vec::new();
    for kind in Kind::ALL {
        let mut dealt = vec![Vec::new(); kind.banks()];
        // From the last to the first: where a process that handles events dies, no event of an earlier payment may be on its way.
        for (n, case) in cases.clone().rev().filter(|(_, _, path)| path.kind() == kind).enumerate() {
            dealt[n % kind.banks()].push(case);
        }
        banks.extend(dealt.into_iter().filter(|cases| !cases.is_empty()).map(|cases| (kind, cases)));
    }
    let outcomes = join_all(banks.into_iter().map(|(kind, cases)| run_bank(kind, cases, deaths))).await;
    let failed: Vec<String> = outcomes.into_iter().flatten().collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n\n"));
    Ok(())
}

#[tokio::test]
async fn r1_a_process_that_dies_at_any_boundary_leaves_one_effect() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    run_all(CASES.iter().copied(), 1).await
}

/// The first death repeats a compensation ([`r1_a_process_that_dies_at_any_boundary_leaves_one_effect`]), the second one repeats it again.
#[tokio::test]
async fn r5_a_compensation_that_runs_three_times_has_one_effect() -> anyhow::Result<()> {
    let _alone = crate::ALONE.lock().await;
    run_all(COMPENSATIONS.iter().map(|(point, path)| (Dies::Worker, *point, *path)), 2).await
}

/// Every Rust source in a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The texts between `begin` and the next quotation mark.
fn quoted<'a>(text: &'a str, begin: &str) -> Vec<&'a str> {
    text.split(begin).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn r1_every_crash_point_has_a_case() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in ["crates", "webhook", "workers", "operator-api"] {
        sources(&root.join(folder), &mut files)?;
    }
    let mut not_covered: BTreeSet<&str> = NOT_COVERED.iter().map(|(activity, _)| *activity).collect();
    let mut points = BTreeSet::new();
    for file in files {
        let text = std::fs::read_to_string(file)?;
        for point in quoted(&text, "crash_point(\"") {
            ensure!(points.insert(point.to_owned()), "two places are the crash point {point}");
        }
        for activity in quoted(&text, "#[activity(name = \"") {
            let is_covered = NOT_COVERED.iter().all(|(not_covered, _)| *not_covered != activity);
            not_covered.remove(activity);
            if is_covered {
                points.extend([format!("before {activity}"), format!("after {activity}")]);
            }
        }
    }
    let elsewhere = CASES_ELSEWHERE.iter().map(|(point, _)| *point);
    let cases: BTreeSet<String> =
        CASES.iter().map(|(_, point, _)| *point).chain(elsewhere).map(str::to_owned).collect();
    assert_eq!(points, cases);
    let recalls = std::fs::read_to_string(root.join("tests/rails/recalls.rs"))?;
    for (point, test) in CASES_ELSEWHERE {
        ensure!(
            recalls.contains(&format!("fn {test}(")) && recalls.contains(point),
            "no test {test} of {point}"
        );
    }
    assert!(not_covered.is_empty(), "activities that do not exist: {not_covered:?}");
    Ok(())
}
