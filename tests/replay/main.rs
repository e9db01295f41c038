//! The current workflow code replays the recorded histories (R27), every path stays small, and every path works with a worker
//! that caches one workflow. Read README.md in this folder before changing the workflow.

mod groups;
mod history_files;
mod live;
#[path = "../strategies/operators.rs"]
#[allow(dead_code, reason = "shared with the strategies tests, which use all of it")]
mod operators;
mod paths;
mod recorded;
#[path = "../strategies/switch_kinds.rs"]
#[allow(dead_code, reason = "shared with the strategies tests, which use all of it")]
mod switch_kinds;
