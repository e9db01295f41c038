//! Does today's workflow replay the histories of yesterday (R27)? And does every path stay small, and go on when the
//! worker keeps but one workflow in memory? See README.md here before you change the workflow.

mod groups;
mod histories;
mod live;
mod paths;
#[path = "../strategies/people.rs"]
#[allow(dead_code, reason = "shared with the tests of the strategies, which use all of it")]
mod people;
mod recorded;
#[path = "../strategies/shapes.rs"]
#[allow(dead_code, reason = "shared with the tests of the strategies, which use all of it")]
mod shapes;
