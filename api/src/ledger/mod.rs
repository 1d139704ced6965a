//! The ledger over HTTP.

pub(crate) mod audit_list;
