//! Operators who log in, and the bank with the rights of operator-api.

use payment_ledger::Ledger;
use payment_ledger::access::operators::{
    LoginOutcome, NewOperatorOutcome, OperatorRole, Password, SessionToken,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::Bank;

/// The password of every operator.
pub(crate) const PASSWORD: &str = "correct horse battery";

impl Bank {
    /// Creates an operator.
    pub(crate) async fn create_operator(&self, name: &str, roles: &[OperatorRole]) {
        let stored = Password::new(PASSWORD.into()).unwrap().to_stored().unwrap();
        let outcome = self.ledger.create_operator(name, roles, &stored.into()).await.unwrap();
        assert_eq!(outcome, NewOperatorOutcome::Created);
    }
}

/// Logs an operator in.
pub(crate) async fn log_in(ledger: &Ledger, name: &str) -> SessionToken {
    let token = SessionToken::generate().unwrap();
    let outcome = ledger.log_operator_in(name, &PASSWORD.into(), &token, None).await.unwrap();
    let LoginOutcome::Opened(session) = outcome else { panic!("{outcome:?}") };
    assert_eq!(session.operator.name, name);
    token
}

/// The bank with the rights of operator-api only.
pub(crate) async fn operator_api(connect: &PgConnectOptions) -> Bank {
    let connect = connect.clone().options([("role", "operator_api")]);
    Bank::new(PgPoolOptions::new().max_connections(4).connect_with(connect).await.unwrap())
}
