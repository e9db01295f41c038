//! Admission: the kill switches and limits that a payment has to pass.

pub mod kill_switches;
pub mod limits;
