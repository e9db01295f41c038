//! What the switch said about a payment, and what was sent to the switch.

pub mod final_status;
pub mod inbox;
pub mod submission_log;
