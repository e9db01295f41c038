//! Which outcomes and branches of the protocol an exploration has reached, compared with the list of all.
//!
//! A branch is one reply that the code may get to one call, or one outcome of an attempt: each is an arm of a
//! `match` in the protocol. Exhaustive matches create the names, so a new variant cannot be forgotten. The
//! exploration checks that each name is in the list, and that each name of the list is reached.
//!
//! | file | content |
//! |---|---|
//! | `expected.rs` | the lists |
//! | `names.rs` | the names of calls and replies |
//! | `reached.rs` | the outcomes and branches that an exploration reached |

mod expected;
mod names;
mod reached;

pub use expected::{BRANCHES, DEEP_BRANCHES, OUTCOMES};
pub use reached::{branches, outcome};
