//! Does today's workflow replay the histories of yesterday (R27)? And does every path stay small, and go on when the
//! worker keeps but one workflow in memory? See README.md here before you change the workflow.

mod histories;
mod live;
mod paths;
mod recorded;
