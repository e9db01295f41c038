//! Payments that need an operator: alerts, and the decisions of operators. The Temporal namespace that operators accepted.

pub mod alerts;
pub mod decisions;
pub mod temporal_namespace;
