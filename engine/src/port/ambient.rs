//! Clock and randomness as ports, so that a simulator can supply both.

use chimera_core::time::Timestamp;
use chimera_core::{id, ledger};
use uuid::Uuid;

/// Two clocks: wall time and steady time.
///
/// Use `steady` for deadlines, ages and retries, and for the times of runs, steps, calls and approvals that they are
/// compared with. Use `now` for everything else that is stored, signed or compared with another machine's clock. Never compare a time of one with a time of the other, except through `earlier` and
/// `later`.
pub trait Clock: Send + Sync {
    /// Wall time, for ledger entries, other records, tokens, signatures and freshness. It follows the machine's clock, also backwards when
    /// that clock is set back for good.
    fn now(&self) -> Timestamp;

    /// Monotonic time, for deadlines, retries, leases, ages and the times of runs. It starts at the wall time and advances with elapsed
    /// time, also while the machine sleeps. It never jumps or goes back.
    fn steady(&self) -> Timestamp;

    /// The earlier of both clocks: what has expired by this time has expired by either, and can be deleted.
    fn earlier(&self) -> Timestamp {
        self.now().min(self.steady())
    }

    /// The later of both clocks: what is valid beyond this time is valid by either.
    fn later(&self) -> Timestamp {
        self.now().max(self.steady())
    }
}

/// Supplies unpredictable bytes.
pub trait Random: Send + Sync {
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
