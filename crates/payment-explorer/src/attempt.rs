//! The activities' side: one attempt at a switch, and its questions to ledger and switch.

use payment_protocol::Payment;
use payment_protocol::cancel::{self, Asking, Begun, CancelAnswer, CancelDoor, Death, Heard};
use payment_protocol::cause::{Cause, OperatorReason};
use payment_protocol::decision::{self, CarriedOut, Decision, DecisionDoor};
use payment_protocol::facts::RecallRecord;
use payment_protocol::keys::{Reference, StepKey, UndoKey};
use payment_protocol::poll::{self, Polled};
use payment_protocol::recall::{self, RecallAnswer, RecallDoor, Recalling};
use payment_protocol::report::SettledReport;
use payment_protocol::rules::{
    AttemptRuling, NotSent, ReleaseByDecisionRuling, SettleByDecisionRuling, VerdictRuling,
};
use payment_protocol::submit::{self, Attempt, Logged, QueryAnswer, SendAnswer, SubmitDoor};

use crate::script::{Came, Exchange, Interned, Number, Script};

/// Which activity an attempt is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Job {
    /// Submit.
    Submit,
    /// Ask to cancel.
    AskToCancel(Cause),
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
    RecordDead(Death),
    /// Our ledger: what is recorded under recall's key.
    Recalled,
    /// Our ledger: record a recall's answer.
    RecordRecall(RecallRecord),
    /// Our ledger: what came of the decision.
    DecisionRecorded,
    /// Our ledger: debit by decision.
    SettleByDecision,
    /// Our ledger: release by decision.
    ReleaseByDecision,
    /// Our ledger: close the decision.
    CloseDecision(CarriedOut),
    /// The switch: take the transfer.
    Send(Reference),
    /// The switch: cancel it.
    Cancel(Reference, UndoKey),
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
    Logged(Option<Logged>),
    /// To RecordAttempt.
    Attempt(AttemptRuling),
    /// To RecordFound.
    Found(Option<NotSent>),
    /// To RecordSettled and RecordDead.
    Verdict(VerdictRuling),
    /// To Begin.
    Begun(Begun),
    /// To Recalled and RecordRecall.
    Recall(Option<RecallRecord>),
    /// To DecisionRecorded.
    Decision(Option<CarriedOut>),
    /// To SettleByDecision.
    SettleByDecision(SettleByDecisionRuling),
    /// To ReleaseByDecision.
    ReleaseByDecision(ReleaseByDecisionRuling, Cause),
    /// To Send.
    Sent(SendAnswer),
    /// To Cancel.
    Cancelled(Heard<CancelAnswer>),
    /// To Query and Statement.
    Seen(Heard<QueryAnswer>),
    /// To Recall.
    GivenBack(Heard<RecallAnswer>),
}

/// Outcome of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Of submit.
    Submit(Attempt),
    /// Of ask to cancel.
    Asking(Asking),
    /// Of recall.
    Recalling(Recalling),
    /// Of poll.
    Polled(Polled),
    /// Of carry out.
    CarriedOut(CarriedOut),
}

/// All exchanges of attempts that were met.
pub type Exchanges = Interned<Exchange<Call, Reply>>;

/// The ledger of a simulation answers.
type Never = std::convert::Infallible;

struct Door<'a>(Script<'a, Call, Reply>);

macro_rules! reply {
    ($door:expr, $call:expr, $form:ident) => {
        match $door.0.ask($call).await {
            Reply::$form(said) => said,
            _ => std::future::pending().await,
        }
    };
}

impl SubmitDoor for Door<'_> {
    type Error = Never;

    async fn logged(&self) -> Result<Option<Logged>, Never> {
        Ok(reply!(self, Call::Logged, Logged))
    }

    async fn query(&self, reference: &Reference) -> QueryAnswer {
        reply!(self, Call::Query(reference.clone()), Seen).answer
    }

    async fn record_attempt(&self) -> Result<AttemptRuling, Never> {
        Ok(reply!(self, Call::RecordAttempt, Attempt))
    }

    async fn send(&self, reference: &Reference) -> SendAnswer {
        reply!(self, Call::Send(reference.clone()), Sent)
    }

    async fn record_answer(&self, n: u32, answer: &SendAnswer) -> Result<(), Never> {
        self.0.ask(Call::RecordAnswer(n, answer.clone())).await;
        Ok(())
    }

    async fn record_found(&self) -> Result<Option<NotSent>, Never> {
        Ok(reply!(self, Call::RecordFound, Found))
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, Never> {
        Ok(reply!(self, Call::RecordSettled(report.clone()), Verdict))
    }
}

impl CancelDoor for Door<'_> {
    type Error = Never;

    async fn begin(&self) -> Result<Begun, Never> {
        Ok(reply!(self, Call::Begin, Begun))
    }

    async fn cancel(&self, reference: &Reference, key: &UndoKey) -> Result<Heard<CancelAnswer>, Never> {
        Ok(reply!(self, Call::Cancel(reference.clone(), key.clone()), Cancelled))
    }

    async fn query(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, Never> {
        Ok(reply!(self, Call::Query(reference.clone()), Seen))
    }

    async fn statement(&self, reference: &Reference) -> Result<Heard<QueryAnswer>, Never> {
        Ok(reply!(self, Call::Statement(reference.clone()), Seen))
    }

    async fn record_dead(&self, death: Death) -> Result<VerdictRuling, Never> {
        Ok(reply!(self, Call::RecordDead(death), Verdict))
    }

    async fn record_settled(&self, report: &SettledReport) -> Result<VerdictRuling, Never> {
        Ok(reply!(self, Call::RecordSettled(report.clone()), Verdict))
    }
}

impl RecallDoor for Door<'_> {
    type Error = Never;

    async fn recorded(&self) -> Result<Option<RecallRecord>, Never> {
        Ok(reply!(self, Call::Recalled, Recall))
    }

    async fn recall(&self, reference: &Reference, key: &StepKey) -> Result<Heard<RecallAnswer>, Never> {
        Ok(reply!(self, Call::Recall(reference.clone(), key.clone()), GivenBack))
    }

    async fn record(&self, record: RecallRecord, _reason: &str) -> Result<RecallRecord, Never> {
        Ok(reply!(self, Call::RecordRecall(record), Recall).unwrap_or(record))
    }
}

impl DecisionDoor for Door<'_> {
    async fn recorded(&self) -> Result<Option<CarriedOut>, Never> {
        Ok(reply!(self, Call::DecisionRecorded, Decision))
    }

    async fn settle_by_decision(&self) -> Result<SettleByDecisionRuling, Never> {
        Ok(reply!(self, Call::SettleByDecision, SettleByDecision))
    }

    async fn release_by_decision(&self) -> Result<(ReleaseByDecisionRuling, Cause), Never> {
        match self.0.ask(Call::ReleaseByDecision).await {
            Reply::ReleaseByDecision(ruling, cause) => Ok((ruling, cause)),
            _ => std::future::pending().await,
        }
    }

    async fn close(&self, came: &CarriedOut, _detail: &str) -> Result<(), Never> {
        self.0.ask(Call::CloseDecision(came.clone())).await;
        Ok(())
    }
}

/// Where an attempt stands after these replies.
#[must_use]
pub fn advance(known: &Exchanges, past: &[Number], payment: &Payment, job: &Job) -> Came<Call, Outcome> {
    let door = Door(Script::new(known, past));
    // The simulation's ledger never fails: a failing one is an attempt that is dropped.
    let (door, script) = (&door, &door.0);
    script.run(async move {
        match job {
            Job::Submit => submit::attempt(door, payment).await.map(Outcome::Submit),
            Job::AskToCancel(_) => cancel::ask(door, payment).await.map(Outcome::Asking),
            Job::Recall => recall::ask(door, payment).await.map(Outcome::Recalling),
            Job::Poll => poll::poll(door, payment).await.map(Outcome::Polled),
            Job::CarryOut(decision, reason) => {
                decision::carry_out(door, payment, decision, *reason).await.map(Outcome::CarriedOut)
            }
        }
        .unwrap_or_else(|never| match never {})
    })
}
