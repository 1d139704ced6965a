//! Time and randomness, so that a simulator can supply both.

use chimera_core::time::Timestamp;
use chimera_core::{id, ledger};
use uuid::Uuid;

/// Tells the time, in two ways.
///
/// What is written down, signed or compared with somebody else's clock goes by `now`. What ends,
/// ages or is tried again within this process goes by `steady`. A time of one is never compared
/// with a time of the other, except through `earlier` and `later`.
pub trait Clock: Send + Sync {
    /// The time of day, for records, tokens, signatures and freshness. It follows the machine's
    /// clock, and goes back when that one is set back for good.
    fn now(&self) -> Timestamp;

    /// The time for deadlines, retries, leases and ages. It begins at the time of day and goes on
    /// with the time that passes, also while the machine sleeps. It never jumps and never goes
    /// back.
    fn steady(&self) -> Timestamp;

    /// The earlier of both: what has ended by this time has ended whichever of them is right, and
    /// can be forgotten.
    fn earlier(&self) -> Timestamp {
        self.now().min(self.steady())
    }

    /// The later of both: what lasts until after this time lasts whichever of them is right.
    fn later(&self) -> Timestamp {
        self.now().max(self.steady())
    }
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
