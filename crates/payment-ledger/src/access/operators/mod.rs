//! Operators: people with a login of their own, their roles, and their sessions.
//!
//! Functions of the database open, use and end sessions: the role of operator-api has no other way. What an operator decides is bound to
//! the operator's session by the database, too: [`Ledger::acting_in`].
//!
//! | file | question |
//! |---|---|
//! | `manage` | Who is an operator, with which roles? |
//! | `identity` | As which identity of an OpenID provider does an operator log in? |
//! | `login` | How does a password or an identity open a session? |
//! | `session` | Whose session is a token? |
//! | `password` | What is stored of a password? |
//! | `token` | What is a session's token? |

mod identity;
mod login;
mod manage;
mod password;
mod session;
mod token;

use payment_protocol::text_enum;

use crate::{Ledger, LedgerError};

pub use identity::{IDENTITY_CHARS_MAX, IdentityError, OperatorIdentity};
pub use login::{LOGIN_ATTEMPTS_MAX, LoginOutcome, LoginRefusal};
pub use manage::{ChangeOperatorOutcome, NewOperatorOutcome, OperatorLogin, OperatorView};
pub use password::{PASSWORD_CHARS_MAX, PASSWORD_CHARS_MIN, Password, PasswordError, StoredPassword};
pub use session::OperatorSession;
pub use token::SessionToken;

text_enum!(
    /// What an operator may do. A person may have several roles; no role lets one person be two.
    OperatorRole {
        /// Read.
        Viewer = "viewer",
        /// Propose, withdraw, and decide what moves no money.
        Operator = "operator",
        /// Confirm what another operator proposed.
        Approver = "approver",
        /// Manage operators.
        Administrator = "administrator",
    }
);

/// An operator who is logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The name under which decisions and the audit log record the operator.
    pub name: String,
    /// The roles, in the order of [`OperatorRole::ALL`].
    pub roles: Vec<OperatorRole>,
}

impl Operator {
    /// Whether the operator has the role.
    #[must_use]
    pub fn has(&self, role: OperatorRole) -> bool {
        self.roles.contains(&role)
    }
}

impl Ledger {
    /// The same ledger, whose decisions are made in an operator's session. For the role of operator-api the database refuses a decision of
    /// anybody else.
    #[must_use]
    pub fn acting_in(&self, session: SessionToken) -> Self {
        Self { operator_session: Some(session), ..self.clone() }
    }
}

/// The roles of a row.
fn roles(name: &str, stored: &[String]) -> Result<Vec<OperatorRole>, LedgerError> {
    let unreadable =
        || LedgerError::Unreadable { id: name.to_owned(), column: "roles", value: stored.join(",") };
    let parsed: Option<Vec<_>> = stored.iter().map(|role| OperatorRole::parse(role)).collect();
    let parsed = parsed.ok_or_else(unreadable)?;
    Ok(OperatorRole::ALL.iter().copied().filter(|role| parsed.contains(role)).collect())
}

/// The columns of roles.
fn columns(roles: &[OperatorRole]) -> Vec<String> {
    OperatorRole::ALL
        .iter()
        .filter(|role| roles.contains(role))
        .map(|role| role.as_str().to_owned())
        .collect()
}
