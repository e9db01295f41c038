//! Payments that need an operator: alerts, and the decisions of operators. What operators change, and the erasures that they began. The
//! Temporal namespace that they accepted.

pub mod alerts;
pub mod changes;
pub mod decisions;
pub mod erasure;
pub mod temporal_namespace;
