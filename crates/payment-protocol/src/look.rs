//! Reads how a transfer stands: by query, as often as the switch allows, and then in the statement.
//!
//! At most switches a query changes nothing. Where the query is a repeat of the recorded submit (`query_is_repeat`), the switch
//! answers with the first outcome, or takes the transfer now if it never received it: that, too, is an answer.

use crate::cancel::{CancelPort, SwitchResponse};
use crate::payment::Payment;
use crate::rules::AskRuling;
use crate::submit::QueryAnswer;

/// What the switch said when it was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The answer to the query; `None` if none was sent.
    pub asked: Option<SwitchResponse<QueryAnswer>>,
    /// Why no query was sent; `None` if one was, or the switch offers none.
    pub not_asked: Option<AskRuling>,
    /// The content of the statement; `None` if it was not read.
    pub listed: Option<SwitchResponse<QueryAnswer>>,
}

impl Look {
    /// The answer that says most: how the transfer ended, else the answer to the query, else the statement's. `None` if the switch
    /// offers neither, or no further query.
    #[must_use]
    pub fn answer(self) -> Option<SwitchResponse<QueryAnswer>> {
        match (self.listed, self.asked) {
            (Some(listed), _) if ends_the_transfer(&listed.answer) => Some(listed),
            (_, Some(asked)) => Some(asked),
            (listed, None) => match self.not_asked {
                Some(AskRuling::TooEarly { wait_ms }) => Some(SwitchResponse {
                    answer: QueryAnswer::NoAnswer {
                        detail: format!(
                            "no query was sent: the switch allows one in {} s",
                            wait_ms.div_ceil(1_000)
                        ),
                    },
                    switch_now_ms: None,
                    // The switch will answer: until then its silence proves nothing, as of a young transfer.
                    first_attempt_age_ms: Some(0),
                }),
                Some(AskRuling::Ask | AskRuling::Spent) | None => listed,
            },
        }
    }
}

/// Looks at the transfer once.
///
/// # Errors
/// The port's own error.
pub async fn look<P: CancelPort>(port: &P, payment: &Payment) -> Result<Look, P::Error> {
    let (profile, reference) = (&payment.profile, payment.reference());
    let read = |response: SwitchResponse<QueryAnswer>| SwitchResponse {
        answer: profile.read_query_answer(response.answer),
        ..response
    };
    let mut look = Look { asked: None, not_asked: None, listed: None };
    if profile.has_query {
        let ruling = if profile.limits_queries() { port.begin_query().await? } else { AskRuling::Ask };
        if ruling == AskRuling::Ask {
            look.asked = Some(read(port.query(&reference).await?));
        } else {
            look.not_asked = Some(ruling);
        }
    }
    let is_decided = match (&look.asked, look.not_asked) {
        (Some(asked), _) => ends_the_transfer(&asked.answer) || knows_the_transfer(&asked.answer),
        // Nothing is in the statement so soon.
        (None, Some(AskRuling::TooEarly { .. })) => true,
        (None, _) => false,
    };
    // Without references a statement's entry is ours only by the switch's id, which a query that found nothing does not give.
    if profile.has_statement && !is_decided && !profile.needs_account_lock() {
        look.listed = Some(read(port.statement(&reference).await?));
    }
    Ok(look)
}

fn ends_the_transfer(answer: &QueryAnswer) -> bool {
    matches!(answer, QueryAnswer::Settled(_) | QueryAnswer::Returned(_) | QueryAnswer::Void { .. })
}

/// Whether the switch has the transfer, so that a statement of finished transfers cannot say more.
fn knows_the_transfer(answer: &QueryAnswer) -> bool {
    matches!(answer, QueryAnswer::Pending | QueryAnswer::Ambiguous { .. })
}
