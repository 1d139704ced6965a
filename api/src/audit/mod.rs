//! Endpoints that read the ledger.

pub(crate) mod audit_list;
