//! How much of a shared pool one tenant may hold.
//!
//! One rule for every pool: a tenant holds at most [`TENANT_HELD_PER_FREE_MAX`] times what it leaves free. A single
//! tenant gets three quarters, two greedy tenants share six sevenths, and a tenant that holds nothing always finds
//! room.

use crate::limits::TENANT_HELD_PER_FREE_MAX;

/// A pool from the perspective of one tenant that wants one more slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Slots in the pool.
    pub total: usize,
    /// Slots in use.
    pub taken: usize,
    /// Slots in use by this tenant.
    pub held: usize,
}

impl Pool {
    /// Whether a slot is free for anybody.
    #[must_use]
    pub const fn has_free_slot(self) -> bool {
        self.taken < self.total
    }

    /// Whether the tenant may take a slot. `shared` says whether there are other tenants.
    #[must_use]
    pub const fn may_take_slot(self, shared: bool) -> bool {
        self.has_free_slot() && self.has_share(1, shared)
    }

    /// Whether the tenant's share allows for so many more slots, free or not.
    #[must_use]
    pub const fn has_share(self, slots: usize, shared: bool) -> bool {
        let rest = slots.saturating_sub(1);
        let after = Self { taken: self.taken.saturating_add(rest), held: self.held.saturating_add(rest), ..self };
        !shared || self.held == 0 || after.leaves_enough()
    }

    const fn leaves_enough(self) -> bool {
        let left = self.total.saturating_sub(self.taken).saturating_sub(1);
        self.held < left.saturating_mul(TENANT_HELD_PER_FREE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What each of several tenants has when all take as much as they may, one after the other.
    fn greedy(total: usize, tenants: usize, shared: bool) -> Vec<usize> {
        let mut held = vec![0; tenants];
        loop {
            let before = held.clone();
            for n in 0..tenants {
                let pool = Pool { total, taken: held.iter().sum(), held: held[n] };
                held[n] += usize::from(pool.may_take_slot(shared));
            }
            if held == before {
                return held;
            }
        }
    }

    #[test]
    fn a_tenant_alone_has_everything_and_three_quarters_once_there_are_others() {
        assert_eq!(greedy(256, 1, false), [256]);
        assert_eq!(greedy(256, 1, true), [192]);
    }

    #[test]
    fn however_many_want_more_one_who_has_nothing_finds_a_place() {
        for tenants in 1..=20 {
            let held = greedy(256, tenants, true);
            let pool = Pool { total: 256, taken: held.iter().sum(), held: 0 };
            assert!(pool.may_take_slot(true), "{held:?}");
            assert!(held.iter().max().unwrap() - held.iter().min().unwrap() <= 1, "{held:?}");
        }
    }

    #[test]
    fn a_small_pool_gives_each_at_least_one() {
        assert_eq!([1, 2, 3, 4].map(|total| greedy(total, 1, true)[0]), [1, 1, 2, 3]);
        assert_eq!(greedy(1, 3, true), [1, 0, 0]);
        assert_eq!(greedy(3, 3, true), [1, 1, 1]);
        assert!(!Pool { total: 3, taken: 5, held: 0 }.may_take_slot(true), "more are taken than there are");
    }
}
