//! Payments that need an operator: alerts, and the decisions of operators.

pub mod alerts;
pub mod decisions;
