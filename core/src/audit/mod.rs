//! The audit room: proofs, exports and their verification. It reads what the other rooms write.

pub mod export;
pub mod proof;
mod verify;
mod walk;

pub use verify::{VerificationReport, Verifier, verify, verify_entry};
pub use walk::LedgerWalk;
