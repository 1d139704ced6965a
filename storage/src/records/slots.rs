//! Limits concurrent reads, with fair turns between tenants.

use chimera_core::access::Claimant;
use chimera_core::record::Scope;
use chimera_engine::fair_slots::FairSlots;

/// `total` reads at a time. The process itself, which reads to drive runs and to report readiness, counts as a
/// tenant, so that there are always several.
pub(super) fn slots(total: usize) -> FairSlots {
    FairSlots::new(total, || true)
}

/// The tenant of a read.
pub(super) fn reader(scope: &Scope) -> Claimant {
    match scope {
        Scope::Tenant(tenant) => Claimant::new(tenant, ""),
        Scope::System => Claimant::new("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::limits::SQLITE_READS_MAX;
    use futures::FutureExt;

    /// A tenant with a hundred reads, a tenant with one, and the process itself: each gets a slot.
    #[tokio::test]
    async fn reads_of_one_tenant_leave_a_slot_to_the_others() {
        let slots = slots(SQLITE_READS_MAX);
        let ask = |scope: Scope| {
            let slots = slots.clone();
            async move { slots.acquire(&reader(&scope)).await }.boxed()
        };
        let mut bobs: Vec<_> = (0..100).map(|_| ask(Scope::Tenant("bob".to_owned()))).collect();
        let mut held: Vec<_> = bobs.iter_mut().filter_map(|read| read.now_or_never()).collect();
        assert_eq!(held.len(), SQLITE_READS_MAX - 1);
        let acme = ask(Scope::Tenant("acme".to_owned())).now_or_never();
        assert!(acme.is_some(), "it waits for nobody");
        let mut system = ask(Scope::System);
        assert!((&mut system).now_or_never().is_none(), "all slots are taken");
        held.pop();
        assert!(system.now_or_never().is_some(), "the freed slot is for whoever has none, not for the next of bob");
    }
}
