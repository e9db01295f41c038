//! The switch profile: what a switch offers, and how long we wait for it. A new switch needs a profile, not code.
//!
//! The profile is copied into the payment at acceptance and is workflow input, so a configuration change never
//! affects a payment in flight. Secrets and addresses are not part of it; the client reads them by the switch's
//! name. The profile belongs to the protocol, not to the client, because the protocol branches on it.
//!
//! | file | content |
//! |---|---|
//! | `strategy.rs` | the submit strategies |
//! | `settings.rs` | the profile's fields, their defaults, and what follows from them |
//! | `check.rs` | whether a profile is safe |
//! | `id_scheme.rs` | the patterns of the ids by which rails know a transfer |
//! | `rail.rs`, `rails/` | the profiles of real rails, with the source of each value |
//! | `nearest_safe.rs` | the smallest change that makes a profile safe |

mod check;
mod id_scheme;
mod nearest_safe;
mod rail;
#[cfg(test)]
mod samples;
mod settings;
mod strategy;

pub use check::{ProfileError, ProfileWarning};
pub use id_scheme::{IdScheme, ParticipantForm};
pub use rail::{Rail, RailError};
pub use settings::{ConfirmByQuery, LateSettlement, SwitchProfile};
pub use strategy::Strategy;
