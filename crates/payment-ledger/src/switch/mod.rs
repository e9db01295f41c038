//! Records about the switch: its reports, its final status, and the transfers sent to it.

pub mod callbacks;
pub mod final_status;
pub mod inbox;
pub mod rail_id;
pub mod recalls;
pub mod returns;
pub mod submission_log;
