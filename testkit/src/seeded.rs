//! A seeded random generator and a fake clock.

use chimera_core::time::Timestamp;
use chimera_engine::port::{Clock, Random};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// SplitMix64: small, and gives the same sequence for a seed on every machine.
#[derive(Debug)]
pub struct Seeded(AtomicU64);

impl Seeded {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    pub fn next(&self) -> u64 {
        let state = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed).wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn pick<'a, T>(&self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap_or_default()]
    }
}

impl Random for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes()[..chunk.len()]);
        }
    }
}

/// A clock that only [`FakeClock::advance`] moves.
#[derive(Debug)]
pub struct FakeClock(AtomicI64);

impl FakeClock {
    #[must_use]
    pub const fn at(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.micros()))
    }

    pub fn advance(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn steady(&self) -> Timestamp {
        self.now()
    }
}
