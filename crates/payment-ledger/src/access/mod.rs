//! Access to the service: API keys of clients, and the database rights of the processes.

pub mod api_keys;
pub mod service_roles;
