//! Returns by messages of their own, each of the whole amount.

use payment_protocol::Payment;
use payment_protocol::facts::FinalStatus;
use payment_protocol::ids::ReturnId;
use payment_protocol::returns::{self, Charge, Charged, ReturnReport, ReturnRuling};
use payment_protocol::rules;

use super::exceptions::Exception;
use super::record::Bank;

impl Bank {
    /// Stores the return with this id, and books it or keeps it until the debit. A stored return is not booked again.
    pub fn store_return(&mut self, payment: &Payment, id: u8) {
        let bit = 1 << id;
        let Ok(return_id) = ReturnId::new(format!("return-{id}")) else { return };
        if self.returns_stored & bit != 0 {
            return;
        }
        self.returns_stored |= bit;
        if !self.ended() && !rules::has_left(&self.facts_now()) {
            self.open_exception(Exception::SettledWithoutAttempt);
        }
        let report = ReturnReport {
            switch: payment.profile.switch.clone(),
            return_id,
            reference: payment.reference().to_string(),
            amount_minor: payment.money.amount_minor(),
            currency: payment.money.currency().code().to_owned(),
            reason: None,
        };
        let returned_minor = if self.journal.returns() > 0 { payment.money.amount_minor() } else { 0 };
        let charge = Charge {
            bearer: self.bearer(),
            is_open: !self.ended(),
            is_returned: self.final_status == Some(FinalStatus::Returned),
            returned_minor,
        };
        match returns::book(&charge, &payment.profile.switch, payment.money, &report) {
            ReturnRuling::Book(bearer) => self.book_return(bearer),
            ReturnRuling::Keep => self.has_unbooked_return = true,
            ReturnRuling::NothingOwed => {}
            ReturnRuling::Uncharged => {
                self.has_unbooked_return = true;
                self.open_exception(Exception::ReturnDiffers);
            }
            ReturnRuling::Differs(_) | ReturnRuling::Exceeds => self.open_exception(Exception::ReturnDiffers),
        }
    }

    /// Books the return that was kept until a debit. Two that were each kept alone are together more than was charged. One that found no
    /// attempt, or that no query confirmed, is for operators: the debit came although it is on record.
    pub(super) fn book_kept_return(&mut self) {
        if self.returned_unexpectedly || self.return_to_confirm {
            self.open_exception(Exception::ReturnedAfterDebit);
        }
        if self.has_unbooked_return
            && let Some(bearer) = self.bearer()
        {
            self.has_unbooked_return = false;
            let mut exceeding = self.returns_stored.count_ones();
            if self.journal.returns() == 0 {
                self.book_return(bearer);
                exceeding -= 1;
            }
            if exceeding > 0 {
                self.open_exception(Exception::ReturnDiffers);
            }
        }
    }

    /// A payment ends without a charge: money that came back of it without a return that is known is for operators.
    pub(super) fn close_kept_return(&mut self) {
        if self.has_unbooked_return && self.final_status != Some(FinalStatus::Returned) {
            self.open_exception(Exception::ReturnDiffers);
        }
    }

    /// The bearer of the amount; `None` while nothing is charged.
    fn bearer(&self) -> Option<Charged> {
        (self.journal.debits() > 0).then_some(match (self.claim_open, self.journal.write_off > 0) {
            (true, _) => Charged::Claim,
            (false, true) => Charged::Loss,
            (false, false) => Charged::Customer,
        })
    }

    fn book_return(&mut self, bearer: Charged) {
        match bearer {
            Charged::Customer => self.journal.returned += 1,
            Charged::Claim | Charged::Loss => {
                self.journal.returned_to_bank += 1;
                self.claim_open = false;
            }
        }
    }
}
