//! The activities' side: one attempt at a switch, and its questions to ledger and switch.

use payment_protocol::Payment;
use payment_protocol::cancel::{
    self, CancelAnswer, CancelAttemptOutcome, CancelContext, CancelPort, SwitchResponse, VoidReason,
};
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{self, Decision, DecisionOutcome, DecisionPort};
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{CompensationKey, Reference, StepKey};
use payment_protocol::poll::{self, PollOutcome};
use payment_protocol::recall::{self, RecallAnswer, RecallAttemptOutcome, RecallPort};
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{
    AttemptRuling, DebitByDecisionRuling, FinalStatusRuling, NotSent, ReleaseByDecisionRuling,
};
use payment_protocol::submit::{
    self, LoggedSubmission, QueryAnswer, SendAnswer, SubmitAttemptOutcome, SubmitPort,
};

use crate::script::{Came, Exchange, Interned, Number, Script};

/// Which activity an attempt is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// Submit.
    Submit,
    /// Ask to cancel.
    Cancel(Cause),
    /// Recall.
    Recall,
    /// Look at a switch that does not call back.
    Poll,
    /// Carry out a decision.
    CarryOut(Decision, OperatorReason),
}

/// A question of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// Our log.
    Logged,
    /// Our ledger: let an attempt out.
    RecordAttempt,
    /// Our ledger: what attempt `n` brought.
    RecordAnswer(u32, SendAnswer),
    /// Our ledger: the switch has it.
    RecordFound,
    /// Our ledger: a SUCCESS.
    RecordSettled(SettledReport),
    /// Our ledger: begin to cancel, for the job's cause.
    Begin,
    /// Our ledger: it is dead.
    RecordVoid(VoidReason),
    /// Our ledger: what is recorded under recall's key.
    Recalled,
    /// Our ledger: record a recall's answer.
    RecordRecall(RecallRecord),
    /// Our ledger: what came of the decision.
    DecisionRecorded,
    /// Our ledger: debit by decision.
    DebitByDecision,
    /// Our ledger: release by decision.
    ReleaseByDecision,
    /// Our ledger: close the decision.
    CloseDecision(DecisionOutcome),
    /// The switch: take the transfer.
    Send(Reference),
    /// The switch: cancel it.
    Cancel(Reference, CompensationKey),
    /// The switch: where is it?
    Query(Reference),
    /// The switch: its statement.
    Statement(Reference),
    /// The switch: give it back.
    Recall(Reference, StepKey),
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Done.
    Done,
    /// To Logged.
    Logged(Option<LoggedSubmission>),
    /// To RecordAttempt.
    RecordAttempt(AttemptRuling),
    /// To RecordFound.
    Found(Option<NotSent>),
    /// To RecordSettled and RecordDead.
    FinalStatus(FinalStatusRuling),
    /// To Begin.
    Begin(CancelContext),
    /// To Recalled and RecordRecall.
    Recall(Option<RecallRecord>),
    /// To DecisionRecorded.
    Decision(Option<DecisionOutcome>),
    /// To SettleByDecision.
    DebitByDecision(DebitByDecisionRuling),
    /// To ReleaseByDecision.
    ReleaseByDecision(ReleaseByDecisionRuling, Cause),
    /// To Send.
    SendAnswer(SendAnswer),
    /// To Cancel.
    CancelAnswer(SwitchResponse<CancelAnswer>),
    /// To Query and Statement.
    QueryAnswer(SwitchResponse<QueryAnswer>),
    /// To Recall.
    RecallAnswer(SwitchResponse<RecallAnswer>),
}

/// Outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Of submit.
    Submit(SubmitAttemptOutcome),
    /// Of ask to cancel.
    Cancel(CancelAttemptOutcome),
    /// Of recall.
    Recall(RecallAttemptOutcome),
    /// Of poll.
    Poll(PollOutcome),
    /// Of carry out.
    ApplyDecision(DecisionOutcome),
}

/// All exchanges of attempts that were met.
pub type Exchanges = Interned<Exchange<Call, Reply>>;

/// The ledger of a simulation answers.
type Never = std::convert::Infallible;

struct ScriptedPort<'a>(Script<'a, Call, Reply>);

macro_rules! reply {
    ($port:expr, $call:expr, $form:ident) => {
        match $port.0.ask($call).await {
            Reply::$form(said) => said,
            _ => std::future::pending().await,
        }
    };
}

impl SubmitPort for ScriptedPort<'_> {
    type Error = Never;

    async fn logged(&self) -> Result<Option<LoggedSubmission>, Never> {
        Ok(reply!(self, Call::Logged, Logged))
    }

    async fn query(&self, reference: &Reference) -> QueryAnswer {
        reply!(self, Call::Query(reference.clone()), QueryAnswer).answer
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, Never> {
        Ok(reply!(self, Call::RecordAttempt, RecordAttempt))
    }

    async fn send(&self, reference: &Reference) -> SendAnswer {
        reply!(self, Call::Send(reference.clone()), SendAnswer)
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), Never> {
        self.0.ask(Call::RecordAnswer(n, answer.clone())).await;
        Ok(())
    }

    async fn record_found(&self) -> Result<Option<NotSent>, Never> {
        Ok(reply!(self, Call::RecordFound, Found))
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, Never> {
        Ok(reply!(self, Call::RecordSettled(report.clone()), FinalStatus))
    }
}

impl CancelPort for ScriptedPort<'_> {
    type Error = Never;

    async fn begin(&self) -> Result<CancelContext, Never> {
        Ok(reply!(self, Call::Begin, Begin))
    }

    async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, Never> {
        Ok(reply!(self, Call::Cancel(reference.clone(), key.clone()), CancelAnswer))
    }

    async fn query(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Never> {
        Ok(reply!(self, Call::Query(reference.clone()), QueryAnswer))
    }

    async fn statement(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, Never> {
        Ok(reply!(self, Call::Statement(reference.clone()), QueryAnswer))
    }

    async fn record_void(&self, death: VoidReason) -> Result<FinalStatusRuling, Never> {
        Ok(reply!(self, Call::RecordVoid(death), FinalStatus))
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, Never> {
        Ok(reply!(self, Call::RecordSettled(report.clone()), FinalStatus))
    }
}

impl RecallPort for ScriptedPort<'_> {
    type Error = Never;

    async fn recorded(&self) -> Result<Option<RecallRecord>, Never> {
        Ok(reply!(self, Call::Recalled, Recall))
    }

    async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchResponse<RecallAnswer>, Never> {
        Ok(reply!(self, Call::Recall(reference.clone(), key.clone()), RecallAnswer))
    }

    async fn record(&self, record: RecallRecord, _reason: &str) -> Result<RecallRecord, Never> {
        Ok(reply!(self, Call::RecordRecall(record), Recall).unwrap_or(record))
    }
}

impl DecisionPort for ScriptedPort<'_> {
    async fn recorded(&self) -> Result<Option<DecisionOutcome>, Never> {
        Ok(reply!(self, Call::DecisionRecorded, Decision))
    }

    async fn debit_by_decision(&self) -> Result<DebitByDecisionRuling, Never> {
        Ok(reply!(self, Call::DebitByDecision, DebitByDecision))
    }

    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), Never> {
        match self.0.ask(Call::ReleaseByDecision).await {
            Reply::ReleaseByDecision(ruling, cause) => Ok((ruling, cause)),
            _ => std::future::pending().await,
        }
    }

    async fn close(&self, came: &DecisionOutcome, _detail: &str) -> Result<(), Never> {
        self.0.ask(Call::CloseDecision(came.clone())).await;
        Ok(())
    }
}

/// Where an attempt stands after these replies.
#[must_use]
pub fn advance(known: &Exchanges, past: &[Number], payment: &Payment, job: &Job) -> Came<Call, Outcome> {
    let door = ScriptedPort(Script::new(known, past));
    // The simulation's ledger never fails: a failing one is an attempt that is dropped.
    let (door, script) = (&door, &door.0);
    script.run(async move {
        match job {
            Job::Submit => submit::attempt(door, payment).await.map(Outcome::Submit),
            Job::Cancel(_) => cancel::ask(door, payment).await.map(Outcome::Cancel),
            Job::Recall => recall::ask(door, payment).await.map(Outcome::Recall),
            Job::Poll => poll::poll(door, payment).await.map(Outcome::Poll),
            Job::CarryOut(decision, reason) => {
                decision::apply_decision(door, payment, decision, *reason).await.map(Outcome::ApplyDecision)
            }
        }
        .unwrap_or_else(|never| match never {})
    })
}
