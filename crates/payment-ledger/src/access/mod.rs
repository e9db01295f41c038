//! Access to the service: API keys of clients, logins of operators, and the database rights of the processes.

pub mod api_keys;
pub mod operators;
pub mod service_roles;
