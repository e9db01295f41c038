//! Durable payments in Rust on Temporal, in eight steps. README.md in this folder is the guide; each step is one file.
//!
//! | step | file |
//! |---|---|
//! | 1 start a workflow | `step_1_start` |
//! | 2 an activity with a key | `step_2_activity` |
//! | 3 a signal | `step_3_signal` |
//! | 4 a timer | `step_4_timer` |
//! | 5 compensation | `step_5_compensation` |
//! | 6 a lock | `step_6_lock` |
//! | 7 a replay test, 8 a crash test | `tests/` |

pub mod books;
pub mod order;
pub mod step_1_start;
pub mod step_2_activity;
pub mod step_3_signal;
pub mod step_4_timer;
pub mod step_5_compensation;
pub mod step_6_lock;
pub mod worker;
