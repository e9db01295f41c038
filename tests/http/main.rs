//! Malformed and malicious HTTP requests, generated from our own OpenAPI document (`../faults.md`, R24).

mod hostile_requests;
