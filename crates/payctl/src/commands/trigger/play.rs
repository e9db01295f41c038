//! Makes the payment of a case, acts on it, and follows it to its end.

use std::time::Duration;

use anyhow::Context as _;
use idempotency::IdempotencyKey;
use payment_ledger::Ledger;
use payment_protocol::PaymentState;
use payment_protocol::ids::{AccountId, PaymentId};
use payment_protocol::money::{format_major, parse_currency};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::time::{Instant, sleep, timeout};

use super::cases::{Action, Case};
use super::compare::Comparison;
use super::operators::DemoOperators;
use crate::api::{ApiClient, PaymentDocument, PaymentRequest};
use crate::commands::demo::OPERATORS;
use crate::commands::{new_key, worker};
use crate::config::Config;
use crate::explain;
use crate::operator_api::may_have_acted;
use crate::outcome::CommandOutcome;
use crate::output::{Output, escape_control};
use crate::watch::Watch;

/// Name of the process that carries payments.
const WORKER: &str = "payment-worker";
/// Time for `ps`.
const PS_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after the end of a payment for its workflow to complete and its exceptions to be recorded.
const RECORDS_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause between two reads of the records.
const RECORDS_INTERVAL: Duration = Duration::from_millis(500);

/// One run of a case.
pub(super) struct Play<'a> {
    case: &'static Case,
    config: &'a Config,
    ledger: &'a Ledger,
    api: &'a ApiClient,
    /// Logged in where the case acts as operators.
    operators: Option<&'a DemoOperators>,
    from: &'a AccountId,
    to: &'a AccountId,
    deadline: Instant,
    /// The actions that have not happened yet.
    waiting: Vec<Action>,
    /// The tenant of the account, if this run froze it.
    frozen: Option<String>,
}

impl<'a> Play<'a> {
    pub(super) fn new(
        case: &'static Case,
        config: &'a Config,
        ledger: &'a Ledger,
        api: &'a ApiClient,
        operators: Option<&'a DemoOperators>,
        (from, to): (&'a AccountId, &'a AccountId),
        deadline: Instant,
    ) -> Self {
        let waiting = case.actions.to_vec();
        Self { case, config, ledger, api, operators, from, to, deadline, waiting, frozen: None }
    }

    /// Runs the case to its end and writes what happens and how it compares.
    ///
    /// # Errors
    /// The payment was not accepted, or an action or a read failed.
    pub(super) async fn run(&mut self, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
        let case = self.case;
        out.write_line(format_args!("{} ({}): {}", case.name, case.source, case.text))?;
        let account = self.api.account(self.from.as_str()).await?.document;
        let amount = format_major(case.amount_minor, parse_currency(&account.currency)?);
        let payment = PaymentRequest {
            amount: &amount,
            currency: &account.currency,
            source_account: self.from.as_str(),
            destination_account: self.to.as_str(),
        };
        let key = new_key()?;
        let accepted = self.api.pay(&payment, &key).await.context("the case has not begun")?;
        let id = accepted.document.payment_id;
        out.write_line(format_args!(
            "payment {id}: {amount} {} from {} to {}\n",
            account.currency, self.from, self.to
        ))?;
        if self.take(Action::RepeatRequest) {
            self.repeat(&payment, &key, &accepted.body, out).await?;
        }

        let (api, deadline) = (self.api, self.deadline);
        let mut watch = Watch::new(api, &id, deadline);
        let mut sla_noted = !case.takes_sla;
        loop {
            let Some(response) = watch.read(0, Some(&mut *out)).await? else {
                out.write_line(format_args!(
                    "\npayment {id} is still open; not ended, not failed; next: payctl show {id}"
                ))?;
                return Ok(CommandOutcome::Unknown);
            };
            let payment = response.document;
            if payment.status.end().is_some() {
                break;
            }
            if !sla_noted && payment.status == PaymentState::Submitted {
                sla_noted = true;
                let sla_ms = explain::read_ledger(self.ledger, &id).await?.payment.profile.sla_ms;
                note(out, &format!("now the SLA of the switch has to expire: {} s", sla_ms / 1_000))?;
            }
            self.act(&payment, out).await?;
        }
        self.unfreeze().await?;
        let late: Vec<_> = self.waiting.iter().map(|action| format!("{action:?}")).collect();
        anyhow::ensure!(
            late.is_empty(),
            "the payment ended before the case could act on it ({}); run the case again",
            late.join(", ")
        );
        self.compare(&id, out).await
    }

    /// Unfreezes the account if this run froze it.
    ///
    /// # Errors
    /// operator-api refuses or does not answer.
    pub(super) async fn unfreeze(&mut self) -> anyhow::Result<()> {
        if let Some(tenant) = &self.frozen {
            self.operators()?.unfreeze(tenant, self.from).await.with_context(|| {
                format!(
                    "account {0} may still be frozen; see payctl accounts show {0} --tenant {tenant}, and unfreeze it with payctl accounts unfreeze",
                    self.from
                )
            })?;
            self.frozen = None;
        }
        Ok(())
    }

    /// Does the actions whose moment has come.
    async fn act(&mut self, payment: &PaymentDocument, out: &mut Output<'_>) -> anyhow::Result<()> {
        let has_been =
            |state: PaymentState| payment.timeline.iter().any(|step| step.status == state.as_str());
        for state in [PaymentState::Reserved, PaymentState::Submitted] {
            if has_been(state) && self.take(Action::KillWorker(state)) {
                self.kill_worker(payment, out).await?;
            }
        }
        if has_been(PaymentState::Submitted) && self.take(Action::Cancel) {
            self.api.cancel(&payment.payment_id, &new_key()?).await.context("the cancel was not accepted")?;
            note(out, "the customer cancels the payment")?;
        }
        if has_been(PaymentState::Reserved) && self.take(Action::FreezeAccount) {
            let tenant = explain::read_ledger(self.ledger, &payment.payment_id).await?.payment.tenant_id;
            let frozen = self.operators()?.freeze(&tenant, self.from).await;
            // Also if the answer is missing.
            if frozen.as_ref().map_or_else(|error| error.downcast_ref().is_none_or(may_have_acted), |()| true)
            {
                self.frozen = Some(tenant);
            }
            frozen?;
            note(out, &format!("{} freezes account {}", OPERATORS[0], self.from))?;
        }
        if payment.status == PaymentState::NeedsOperator && self.take(Action::DecideDebit) {
            if self.frozen.is_some() {
                self.unfreeze().await?;
                let [proposer, approver] = OPERATORS;
                note(out, &format!("{proposer} and {approver} unfreeze account {}", self.from))?;
            }
            let decision = self.operators()?.decide_debit(&payment.payment_id).await?;
            let [proposer, approver] = OPERATORS;
            note(
                out,
                &format!("decision {decision}: debit, proposed by {proposer}, confirmed by {approver}"),
            )?;
        }
        Ok(())
    }

    fn operators(&self) -> anyhow::Result<&'a DemoOperators> {
        self.operators.context("the case acts as operators, and none is logged in")
    }

    /// Whether the action was still to do; it is not any more.
    fn take(&mut self, action: Action) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|waiting| *waiting != action);
        self.waiting.len() < before
    }

    async fn repeat(
        &self,
        payment: &PaymentRequest<'_>,
        key: &IdempotencyKey,
        first: &str,
        out: &mut Output<'_>,
    ) -> anyhow::Result<()> {
        let repeated = self.api.pay(payment, key).await.context("the repeated request was not answered")?;
        anyhow::ensure!(
            repeated.body == first,
            "the repeated request got another answer: {} after {}",
            escape_control(&repeated.body),
            escape_control(first)
        );
        note(
            out,
            &format!("the same request again, under Idempotency-Key {key}: the same answer, byte for byte"),
        )
    }

    async fn kill_worker(&self, payment: &PaymentDocument, out: &mut Output<'_>) -> anyhow::Result<()> {
        // A payment that is not resumed has its own id as workflow id (S0.1).
        let identity = explain::carrying_worker(self.config, payment.payment_id.as_str()).await?;
        let identity = identity.context("Temporal names no worker that carries the payment")?;
        let id = worker::process_id(&identity)
            .with_context(|| format!("the identity of the worker names no process: {identity}"))?;
        let pid = Pid::from_raw(id).with_context(|| format!("{id} is not a process id"))?;
        // The process id may be another machine's, or another process's by now.
        let ps = Command::new("ps").args(["-o", "comm=", "-p", &id.to_string()]).output();
        let ps =
            timeout(PS_TIMEOUT, ps).await.context("ps gave no answer")?.context("ps cannot be started")?;
        let command = String::from_utf8_lossy(&ps.stdout);
        anyhow::ensure!(
            command.trim().ends_with(WORKER),
            "{identity} is not a process of this machine; payctl trigger kills only payment-workers beside it"
        );
        kill_process(pid, Signal::KILL).with_context(|| format!("process {id} cannot be killed"))?;
        note(out, &format!("kill -9 {id}: {identity}; another worker goes on within about 10 s"))
    }

    /// Reads the three books until they show what is expected, for a bounded time.
    async fn compare(&self, id: &PaymentId, out: &mut Output<'_>) -> anyhow::Result<CommandOutcome> {
        let until = Instant::now() + RECORDS_TIMEOUT;
        let comparison = loop {
            let explanation = explain::explain_payment(self.config, self.ledger, id).await?;
            let comparison = Comparison::of(self.case, &explanation);
            if comparison.outcome() == CommandOutcome::Success || Instant::now() >= until {
                break comparison;
            }
            sleep(RECORDS_INTERVAL).await;
        };
        out.write_line(format_args!("\n{}", comparison.table()))?;
        out.write_line(format_args!("\n{}", comparison.summary(self.case, id)))?;
        Ok(comparison.outcome())
    }
}

/// Writes what payctl does to the payment between the lines of its timeline.
fn note(out: &mut Output<'_>, text: &str) -> anyhow::Result<()> {
    Ok(out.write_line(format_args!("               {}", escape_control(text)))?)
}
