//! Malformed and malicious HTTP requests, generated from our own OpenAPI documents (`../faults.md`, R24).

mod hostile_operator_requests;
mod hostile_requests;
mod schemathesis;
