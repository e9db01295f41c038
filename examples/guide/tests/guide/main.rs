//! Every step of the guide, on a real Temporal server.

mod bank;
mod step_7_replay;
mod step_8_crash;
mod steps;
