//! The model: what each operation returns and changes according to the design.

use payment_protocol::cause::Cause;

use crate::support::AMOUNT_MINOR;

/// A payment of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Modelled {
    run: Option<usize>,
    refused: Option<&'static str>,
    pub(crate) hold: Option<&'static str>,
    attempts: u32,
    reported_without_attempt: bool,
    cause: Option<Cause>,
    pub(crate) final_status: Option<&'static str>,
    has_mismatch: bool,
    pub(crate) debit_refused: bool,
    pub(crate) recall: Option<bool>,
    pub(crate) cancel_requested: bool,
    pub(crate) end: Option<&'static str>,
}

/// An account of the model: the available balance, and whether it is frozen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelledAccount {
    pub(crate) available_minor: i64,
    pub(crate) is_frozen: bool,
}

impl Modelled {
    fn refuse(&mut self, refusal: &'static str, end: &'static str) -> String {
        (self.refused, self.end) = (Some(refusal), Some(end));
        format!("Refused({refusal})")
    }

    pub(crate) fn reserve(&mut self, run: usize, account: &mut ModelledAccount) -> String {
        if let Some(refusal) = self.refused {
            return format!("Refused({refusal})");
        }
        if let Some(end) = self.end {
            return format!("Ended({end})");
        }
        if self.run.is_some_and(|first| first != run) {
            return "AnotherRun".into();
        }
        if self.hold.is_some() {
            return "Held".into();
        }
        if self.cause.is_some() {
            return "AnotherRun".into();
        }
        self.run = Some(run);
        if self.cancel_requested {
            return self.refuse("CustomerCancel", "Cancelled");
        }
        if account.is_frozen {
            return self.refuse("FrozenAccount", "Rejected");
        }
        if account.available_minor < AMOUNT_MINOR {
            return self.refuse("InsufficientFunds", "Rejected");
        }
        account.available_minor -= AMOUNT_MINOR;
        self.hold = Some("open");
        "Held".into()
    }

    pub(crate) fn fence(&mut self) -> String {
        if let Some(end) = self.end {
            return format!("Ended({end})");
        }
        if self.hold.is_none() {
            self.refused.get_or_insert("Fenced");
        }
        format!("Open({:?})", self.cause)
    }

    pub(crate) fn attempt(&mut self, run: usize) -> String {
        if self.final_status == Some("Settled") {
            return "Settled".into();
        }
        let fence = if self.run != Some(run) {
            "AnotherRun"
        } else if self.hold != Some("open") {
            "NoOpenHold"
        } else if self.cause.is_none() && self.final_status == Some("Void") {
            "Rejected"
        } else if self.cause.is_some() || self.final_status.is_some() {
            "CancelStarted"
        } else if self.cancel_requested {
            "CustomerCancel"
        } else if self.attempts == 0 && self.reported_without_attempt {
            "ReportedWithoutAttempt"
        } else {
            self.attempts += 1;
            return format!("Send({})", self.attempts);
        };
        format!("NotSent({fence})")
    }

    pub(crate) fn begin_cancel(&mut self, cause: &Cause) -> String {
        if self.end.is_none() && matches!(self.final_status, None | Some("Void")) {
            self.cause.get_or_insert_with(|| cause.clone());
        }
        format!("{:?} {:?} {}", self.end, self.final_status, self.never_sent())
    }

    fn never_sent(&self) -> bool {
        self.attempts == 0 && !self.reported_without_attempt
    }

    /// Applies a SUCCESS; returns whether the workflow is notified.
    pub(crate) fn success(&mut self) -> bool {
        self.reported_without_attempt |= self.attempts == 0;
        let is_accepted = self.attempts > 0 && self.final_status != Some("Void");
        if is_accepted {
            assert!(
                self.final_status.is_some() || self.end.is_none(),
                "a payment ended without a final status: {self:?}"
            );
            if self.final_status != Some("Returned") {
                self.final_status = Some("Settled");
            }
        }
        is_accepted && self.end.is_none()
    }

    /// Applies a RETURNED; returns whether the workflow is notified.
    pub(crate) fn returned(&mut self) -> bool {
        self.reported_without_attempt |= self.attempts == 0;
        if self.attempts > 0 {
            self.final_status = Some("Returned");
        }
        self.attempts > 0 && self.end.is_none()
    }

    /// Applies the answer to a recall; returns whether the money came back by the recorded answer.
    pub(crate) fn record_recall(&mut self, yes: bool) -> bool {
        if self.recall.is_none() && yes {
            self.final_status = Some("Returned");
        }
        *self.recall.get_or_insert(yes)
    }

    /// Applies a SUCCESS with another amount; returns whether the workflow is notified.
    pub(crate) fn amount_mismatch(&mut self) -> bool {
        self.has_mismatch |= self.attempts > 0;
        self.reported_without_attempt |= self.attempts == 0;
        self.attempts > 0 && self.end.is_none()
    }

    pub(crate) fn void(&mut self) -> &'static str {
        match self.final_status.replace("Void") {
            None => "First",
            Some("Void") => "Same",
            first => {
                self.final_status = first;
                "Contradicts"
            }
        }
    }

    pub(crate) fn debit(&mut self, account: &ModelledAccount) -> &'static str {
        match (self.hold, self.final_status) {
            (Some("debited"), _) => "Done",
            (Some("open"), Some("Settled")) if self.debit_refused || account.is_frozen => {
                self.debit_refused = true;
                "Refused"
            }
            (Some("open"), Some("Settled")) => {
                (self.hold, self.end) = (Some("debited"), Some("Settled"));
                "Done"
            }
            (_, Some("Returned")) => "Returned",
            (_, None) if self.has_mismatch => "Differs",
            _ => "NotConfirmed",
        }
    }

    pub(crate) fn release(&mut self, cause: &Cause, account: &mut ModelledAccount) -> String {
        let first = self.cause.clone().unwrap_or_else(|| cause.clone());
        if self.hold == Some("debited") {
            return "Refused(HoldDebited)".into();
        }
        match self.end {
            Some(end) if self.cause.is_none() && self.hold.is_none() => return format!("Ended({end})"),
            Some(_) => return format!("Done({first:?})"),
            None => {}
        }
        if !self.never_sent() && !matches!(self.final_status, Some("Void" | "Returned")) {
            return "Refused(MayStillSettle)".into();
        }
        match self.hold {
            Some(_) => {
                account.available_minor += AMOUNT_MINOR;
                self.hold = Some("released");
            }
            None => {
                self.refused.get_or_insert("Fenced");
            }
        }
        self.end = Some(match first {
            Cause::SlaExpired => "TimedOut",
            Cause::CustomerCancel => "Cancelled",
            _ => "Failed",
        });
        self.cause = Some(first.clone());
        format!("Done({first:?})")
    }
}
