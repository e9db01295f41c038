//! What an accepted payment has to pass before money is held: kill switches and limits.

pub mod kill_switches;
pub mod limits;
