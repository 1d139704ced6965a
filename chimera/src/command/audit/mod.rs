//! `chimera audit …`: the ledger, for reading, exporting and verifying.

pub(super) mod export;
pub(crate) mod ledger;
pub(super) mod list;
pub(super) mod verify;
