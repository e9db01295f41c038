//! One file per subject.

mod bounds;
pub(crate) mod changes;
pub(crate) mod decisions;
pub(crate) mod docs;
pub(crate) mod exceptions;
pub(crate) mod identities;
pub(crate) mod payments;
pub(crate) mod sessions;
pub(crate) mod settings;
