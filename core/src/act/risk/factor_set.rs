//! A set of risk factors.

use crate::flow::risk::Factor;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FactorSet(u32);

impl FactorSet {
    pub(super) fn add(&mut self, factor: Factor) {
        self.0 |= 1 << factor as u32;
    }

    /// Without destructive operations.
    pub(super) const fn without_destructive(self) -> Self {
        Self(self.0 & !(1 << Factor::DestructiveOperation as u32) & !(1 << Factor::DestructiveWord as u32))
    }

    pub(super) const fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) const fn has(self, factor: Factor) -> bool {
        self.0 & (1 << factor as u32) != 0
    }

    pub(super) fn factors(self) -> impl Iterator<Item = Factor> {
        Factor::ALL.iter().copied().filter(move |factor| self.has(*factor))
    }
}
