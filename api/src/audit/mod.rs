//! The audit room: reading what the ledger holds.

pub(crate) mod audit_list;
