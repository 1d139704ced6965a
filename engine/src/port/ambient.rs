//! Time and randomness, so that a simulator can supply both.

use chimera_core::time::Timestamp;
use chimera_core::{id, ledger};
use uuid::Uuid;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now. Never goes back within one process.
    fn now(&self) -> Timestamp;
}

/// Supplies unpredictable bytes.
pub trait Random: Send + Sync {
    /// Fills `bytes`.
    fn fill(&self, bytes: &mut [u8]);

    /// A time-ordered UUID for a row.
    fn row_id(&self, now: Timestamp) -> Uuid {
        let mut random = [0; 10];
        self.fill(&mut random);
        id::time_ordered(now, random)
    }

    /// An opaque id of 128 random bits.
    fn opaque_id(&self) -> String {
        id::opaque(self.salt())
    }

    /// Sixteen random bytes.
    fn salt(&self) -> [u8; 16] {
        let mut random = [0; 16];
        self.fill(&mut random);
        random
    }

    /// Seals an entry behind a fresh salt.
    fn seal(&self, entry: ledger::Entry) -> Result<ledger::SealedEntry, ledger::EntryError> {
        entry.seal(self.salt())
    }
}
