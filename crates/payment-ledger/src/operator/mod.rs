//! Payments that need an operator: alerts, and the decisions of operators. What operators change in accounts, limits, kill switches and API
//! keys. The Temporal namespace that operators accepted.

pub mod alerts;
pub mod changes;
pub mod decisions;
pub mod temporal_namespace;
