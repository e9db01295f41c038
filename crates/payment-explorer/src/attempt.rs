//! The activities: one attempt at the switch, with its calls of our ledger and of the switch.

use payment_protocol::Payment;
use payment_protocol::cancel::{
    self, CancelAnswer, CancelAttemptOutcome, CancelContext, CancelPort, SwitchResponse, VoidReason,
};
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::debit::{self, DebitPort};
use payment_protocol::decision::{self, Decision, DecisionOutcome, DecisionPort};
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{CompensationKey, Reference, StepKey};
use payment_protocol::poll::{self, PollOutcome};
use payment_protocol::port::{DebitOutcome, SubmitProgress};
use payment_protocol::recall::{self, RecallAnswer, RecallAttemptOutcome, RecallPort};
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{
    AskRuling, AttemptRuling, DebitByDecisionRuling, FinalStatusRuling, NotSent, ReleaseByDecisionRuling,
};
use payment_protocol::submit::{
    self, LoggedSubmission, QueryAnswer, SendAnswer, SubmitAttemptOutcome, SubmitPort,
};

use crate::bank::RunNumber;
use crate::replay::{Exchange, Index, Interner, Progress, Replay};

/// An activity that has attempts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Activity {
    /// Submit.
    Submit,
    /// The first submit attempt, recorded with the reserve.
    FirstSubmit,
    /// Cancel, for this cause, and how far submit got.
    Cancel(Cause, SubmitProgress),
    /// Recall.
    Recall,
    /// Poll a switch that does not call back, or whose callback a query must confirm.
    Poll,
    /// Debit, at a switch whose callbacks a query must confirm.
    Debit,
    /// Apply an operator decision, and how far submit got.
    ApplyDecision(Decision, OperatorReason, SubmitProgress),
}

/// An attempt of an activity that has not completed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ActiveAttempt {
    /// The activity, by its index in the model.
    pub activity: Index,
    /// The workflow run that started the activity.
    pub run: RunNumber,
    /// The exchanges so far.
    pub history: Vec<Index>,
}

/// A call of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttemptCall {
    /// Our ledger: read the submission log.
    Logged,
    /// Our ledger: record a submit attempt.
    RecordAttempt,
    /// Our ledger: record the answer to attempt `n`.
    RecordAnswer(u32, SendAnswer),
    /// Our ledger: record that the switch has the transfer.
    RecordFound,
    /// Our ledger: record a SUCCESS.
    RecordSettled(SettledReport),
    /// Our ledger: record a return.
    RecordReturned(SettledReport),
    /// Our ledger: begin to cancel, for the activity's cause.
    Begin,
    /// Our ledger: record that the transfer is void.
    RecordVoid(VoidReason),
    /// Our ledger: read the record under recall's key.
    RecallRecorded,
    /// Our ledger: record the answer to a recall.
    RecordRecall(RecallRecord),
    /// Our ledger: read the outcome of the decision.
    DecisionRecorded,
    /// Our ledger: debit by decision.
    DebitByDecision,
    /// Our ledger: release by decision.
    ReleaseByDecision,
    /// Our ledger: close the decision.
    CloseDecision(DecisionOutcome),
    /// Our ledger: count a query.
    BeginQuery,
    /// Our ledger: bound the deadline of an attempt without a record.
    BoundDeadline(i64),
    /// Our ledger: read whether the switch must be queried before the debit.
    NeedsQuery,
    /// Our ledger: debit, with the record of the SUCCESS that the switch answered.
    Debit(Option<SettledReport>),
    /// The switch: send the transfer.
    Send(Reference),
    /// The switch: cancel the transfer.
    Cancel(Reference, CompensationKey),
    /// The switch: query the transfer.
    Query(Reference),
    /// The switch: read the statement.
    Statement(Reference),
    /// The switch: recall the transfer.
    Recall(Reference, StepKey),
}

/// The reply to a call of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttemptReply {
    /// The reply to a call without a result.
    Done,
    /// The reply to `Logged`.
    Logged(Option<LoggedSubmission>),
    /// The reply to `RecordAttempt`.
    RecordAttempt(AttemptRuling),
    /// The reply to `RecordFound`.
    RecordFound(Option<NotSent>),
    /// The reply to `RecordSettled`, `RecordReturned` and `RecordVoid`.
    FinalStatus(FinalStatusRuling),
    /// The reply to `Begin`.
    Begin(CancelContext),
    /// The reply to `BeginQuery`.
    BeginQuery(AskRuling),
    /// The reply to `NeedsQuery`.
    NeedsQuery(bool),
    /// The reply to `Debit`.
    Debit(DebitOutcome),
    /// The reply to `BoundDeadline`.
    Deadline(i64),
    /// The reply to `RecallRecorded` and `RecordRecall`.
    Recall(Option<RecallRecord>),
    /// The reply to `DecisionRecorded`.
    Decision(Option<DecisionOutcome>),
    /// The reply to `DebitByDecision`.
    DebitByDecision(DebitByDecisionRuling),
    /// The reply to `ReleaseByDecision`.
    ReleaseByDecision(ReleaseByDecisionRuling, Cause),
    /// The reply to `Send`.
    SendAnswer(SendAnswer),
    /// The reply to `Cancel`.
    CancelAnswer(SwitchResponse<CancelAnswer>),
    /// The reply to `Query` and `Statement`.
    QueryAnswer(SwitchResponse<QueryAnswer>),
    /// The reply to `Recall`.
    RecallAnswer(SwitchResponse<RecallAnswer>),
}

/// Outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AttemptOutcome {
    /// The outcome of submit.
    Submit(SubmitAttemptOutcome),
    /// The outcome of cancel.
    Cancel(CancelAttemptOutcome),
    /// The outcome of recall.
    Recall(RecallAttemptOutcome),
    /// The outcome of a poll.
    Poll(PollOutcome),
    /// The outcome of a debit.
    Debit(DebitOutcome),
    /// The outcome of applying a decision.
    ApplyDecision(DecisionOutcome),
}

/// All exchanges of attempts with ledger and switch.
pub type Exchanges = Interner<Exchange<AttemptCall, AttemptReply>>;

/// The simulated ledger always answers; an unanswered call is an attempt that is dropped.
type NoError = std::convert::Infallible;

struct ReplayedPort<'a>(Replay<'a, AttemptCall, AttemptReply>);

macro_rules! reply {
    ($port:expr, $call:expr, $form:ident) => {
        match $port.0.call($call).await {
            AttemptReply::$form(reply) => reply,
            _ => std::future::pending().await,
        }
    };
}

impl SubmitPort for ReplayedPort<'_> {
    type Error = NoError;

    async fn logged(&self) -> Result<Option<LoggedSubmission>, NoError> {
        Ok(reply!(self, AttemptCall::Logged, Logged))
    }

    async fn begin_query(&self) -> Result<AskRuling, NoError> {
        Ok(reply!(self, AttemptCall::BeginQuery, BeginQuery))
    }

    async fn query(&self, reference: &Reference) -> QueryAnswer {
        reply!(self, AttemptCall::Query(reference.clone()), QueryAnswer).answer
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, NoError> {
        Ok(reply!(self, AttemptCall::RecordAttempt, RecordAttempt))
    }

    async fn send(&self, reference: &Reference) -> SendAnswer {
        reply!(self, AttemptCall::Send(reference.clone()), SendAnswer)
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), NoError> {
        self.0.call(AttemptCall::RecordAnswer(n, answer.clone())).await;
        Ok(())
    }

    async fn record_found(&self) -> Result<Option<NotSent>, NoError> {
        Ok(reply!(self, AttemptCall::RecordFound, RecordFound))
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, NoError> {
        Ok(reply!(self, AttemptCall::RecordSettled(report.clone()), FinalStatus))
    }

    async fn record_returned(&self, report: &SettledReport) -> Result<FinalStatusRuling, NoError> {
        Ok(reply!(self, AttemptCall::RecordReturned(report.clone()), FinalStatus))
    }

    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, NoError> {
        Ok(reply!(self, AttemptCall::RecordVoid(reason), FinalStatus))
    }
}

impl CancelPort for ReplayedPort<'_> {
    type Error = NoError;

    async fn begin(&self) -> Result<CancelContext, NoError> {
        Ok(reply!(self, AttemptCall::Begin, Begin))
    }

    async fn bound_deadline(&self, latest_ms: i64) -> Result<i64, NoError> {
        Ok(reply!(self, AttemptCall::BoundDeadline(latest_ms), Deadline))
    }

    async fn cancel(
        &self,
        reference: &Reference,
        key: &CompensationKey,
    ) -> Result<SwitchResponse<CancelAnswer>, NoError> {
        Ok(reply!(self, AttemptCall::Cancel(reference.clone(), key.clone()), CancelAnswer))
    }

    async fn begin_query(&self) -> Result<AskRuling, NoError> {
        Ok(reply!(self, AttemptCall::BeginQuery, BeginQuery))
    }

    async fn query(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, NoError> {
        Ok(reply!(self, AttemptCall::Query(reference.clone()), QueryAnswer))
    }

    async fn statement(&self, reference: &Reference) -> Result<SwitchResponse<QueryAnswer>, NoError> {
        Ok(reply!(self, AttemptCall::Statement(reference.clone()), QueryAnswer))
    }

    async fn record_void(&self, reason: VoidReason) -> Result<FinalStatusRuling, NoError> {
        Ok(reply!(self, AttemptCall::RecordVoid(reason), FinalStatus))
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<FinalStatusRuling, NoError> {
        Ok(reply!(self, AttemptCall::RecordSettled(report.clone()), FinalStatus))
    }

    async fn record_returned(&self, report: &SettledReport) -> Result<FinalStatusRuling, NoError> {
        Ok(reply!(self, AttemptCall::RecordReturned(report.clone()), FinalStatus))
    }
}

impl DebitPort for ReplayedPort<'_> {
    type Error = NoError;

    async fn needs_query(&self) -> Result<bool, NoError> {
        Ok(reply!(self, AttemptCall::NeedsQuery, NeedsQuery))
    }

    async fn query(&self, reference: &Reference) -> Result<QueryAnswer, NoError> {
        Ok(reply!(self, AttemptCall::Query(reference.clone()), QueryAnswer).answer)
    }

    async fn debit(&self, confirmed: Option<&SettledReport>) -> Result<DebitOutcome, NoError> {
        Ok(reply!(self, AttemptCall::Debit(confirmed.cloned()), Debit))
    }
}

impl RecallPort for ReplayedPort<'_> {
    type Error = NoError;

    async fn recorded(&self) -> Result<Option<RecallRecord>, NoError> {
        Ok(reply!(self, AttemptCall::RecallRecorded, Recall))
    }

    async fn recall(
        &self,
        reference: &Reference,
        key: &StepKey,
    ) -> Result<SwitchResponse<RecallAnswer>, NoError> {
        Ok(reply!(self, AttemptCall::Recall(reference.clone(), key.clone()), RecallAnswer))
    }

    async fn record(&self, record: RecallRecord, _reason: &str) -> Result<RecallRecord, NoError> {
        Ok(reply!(self, AttemptCall::RecordRecall(record), Recall).unwrap_or(record))
    }
}

impl DecisionPort for ReplayedPort<'_> {
    async fn recorded(&self) -> Result<Option<DecisionOutcome>, NoError> {
        Ok(reply!(self, AttemptCall::DecisionRecorded, Decision))
    }

    async fn record_recall(&self, answer: RecallRecord) -> Result<(), NoError> {
        self.0.call(AttemptCall::RecordRecall(answer)).await;
        Ok(())
    }

    async fn debit_by_decision(&self) -> Result<DebitByDecisionRuling, NoError> {
        Ok(reply!(self, AttemptCall::DebitByDecision, DebitByDecision))
    }

    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), NoError> {
        match self.0.call(AttemptCall::ReleaseByDecision).await {
            AttemptReply::ReleaseByDecision(ruling, cause) => Ok((ruling, cause)),
            _ => std::future::pending().await,
        }
    }

    async fn close(&self, outcome: &DecisionOutcome, _detail: &str) -> Result<(), NoError> {
        self.0.call(AttemptCall::CloseDecision(outcome.clone())).await;
        Ok(())
    }
}

/// The position of an attempt after this history.
#[must_use]
pub fn advance(
    exchanges: &Exchanges,
    history: &[Index],
    payment: &Payment,
    activity: &Activity,
) -> Progress<AttemptCall, AttemptOutcome> {
    let port = &ReplayedPort(Replay::new(exchanges, history));
    port.0.run(async move {
        match activity {
            Activity::Submit => submit::attempt(port, payment).await.map(AttemptOutcome::Submit),
            Activity::FirstSubmit => submit::first_attempt(port, payment).await.map(AttemptOutcome::Submit),
            Activity::Cancel(..) => cancel::attempt(port, payment).await.map(AttemptOutcome::Cancel),
            Activity::Recall => recall::attempt(port, payment).await.map(AttemptOutcome::Recall),
            Activity::Debit => debit::attempt(port, payment).await.map(AttemptOutcome::Debit),
            Activity::Poll => poll::poll(port, payment).await.map(AttemptOutcome::Poll),
            Activity::ApplyDecision(decision, reason, _) => {
                let applied = decision::apply_decision(port, payment, decision, *reason).await;
                applied.map(AttemptOutcome::ApplyDecision)
            }
        }
        .unwrap_or_else(|no_error| match no_error {})
    })
}
