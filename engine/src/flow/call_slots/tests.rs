//! Tests of the call slots alone.

use super::*;

fn slot<'a>(run: u128, tenant: &'a str, tool: &'a str, priority: i32) -> SlotRequest<'a> {
    SlotRequest { run: id(run), at: RunPlace::node(0), tenant, tool, version: "1", input: None, priority }
}

fn id(run: u128) -> Uuid {
    Uuid::from_u128(run)
}

fn narrow(total: usize, per_tenant: usize, per_tool: usize) -> CallSlots {
    CallSlots::new(CallLimits { total, per_tenant, per_tool, ..CallLimits::default() })
}

/// Call slots with this limit for one host.
fn per_host(per_host: usize, per_tool: usize) -> CallSlots {
    CallSlots::new(CallLimits { per_host, per_tool, ..CallLimits::default() })
}

fn enter(slots: &mut CallSlots, run: u128, host: &str) -> bool {
    slots.acquire(slot(run, "a", "http", 5), Some(host))
}

fn leave(slots: &mut CallSlots, run: u128) -> Vec<Uuid> {
    slots.release(id(run), RunPlace::node(0))
}

#[test]
fn a_freed_slot_goes_to_the_tenant_with_the_fewest_calls() {
    let mut slots = narrow(2, 2, 2);
    assert!(slots.acquire(slot(1, "loud", "t", 5), None) && slots.acquire(slot(2, "loud", "t", 5), None));
    assert!(!slots.acquire(slot(3, "loud", "t", 1), None));
    assert!(!slots.acquire(slot(4, "quiet", "t", 9), None));
    assert_eq!(leave(&mut slots, 1), [id(4)]);
    assert!(!slots.acquire(slot(5, "third", "t", 1), None), "the slot is kept for whom it was given to");
    assert!(slots.acquire(slot(4, "quiet", "t", 9), None));
}

#[test]
fn what_is_kept_for_a_run_that_does_not_want_it_any_more_goes_to_the_next() {
    let mut slots = narrow(1, 1, 1);
    assert!(slots.acquire(slot(1, "a", "t", 5), None));
    assert!(!slots.acquire(slot(2, "a", "t", 5), None) && !slots.acquire(slot(3, "a", "t", 5), None));
    assert_eq!(leave(&mut slots, 1), [id(2)]);
    let granted = slots.granted(id(2));
    assert_eq!(slots.release_unused(id(2), &granted), [id(3)]);
    assert!(slots.acquire(slot(3, "a", "t", 5), None));
    assert_eq!((slots.taken(), slots.waiting()), (1, 0));
}

#[test]
fn one_slot_may_let_two_go_on_that_waited_for_different_reasons() {
    let mut slots = narrow(9, 1, 1);
    assert!(slots.acquire(slot(1, "a", "t", 5), None));
    assert!(!slots.acquire(slot(2, "a", "u", 5), None), "its tenant has no slot");
    assert!(!slots.acquire(slot(3, "b", "t", 5), None), "its tool has no slot");
    let mut runs = leave(&mut slots, 1);
    runs.sort_unstable();
    assert_eq!(runs, [id(2), id(3)]);
}

#[test]
fn within_a_tenant_the_more_urgent_run_comes_first_then_the_older_wish() {
    let mut slots = narrow(1, 1, 1);
    assert!(slots.acquire(slot(1, "a", "t", 5), None));
    for (run, priority) in [(2, 7), (3, 2), (4, 2)] {
        assert!(!slots.acquire(slot(run, "a", "t", priority), None));
    }
    assert_eq!(leave(&mut slots, 1), [id(3)]);
    assert!(slots.acquire(slot(3, "a", "t", 2), None));
    assert_eq!(slots.drop_run(id(3)), [id(4)]);
}

#[test]
fn a_busy_tool_does_not_hold_up_another() {
    let mut slots = narrow(4, 4, 1);
    assert!(slots.acquire(slot(1, "a", "slow", 5), None));
    assert!(!slots.acquire(slot(2, "a", "slow", 5), None));
    assert!(slots.acquire(slot(3, "a", "fast", 5), None));
    assert!(!slots.acquire(slot(4, "a", "fast", 5), None));
    assert_eq!(leave(&mut slots, 3), [id(4)]);
}

#[test]
fn a_host_has_slots_of_its_own_that_all_tools_share() {
    let mut slots = per_host(2, 100);
    assert!(enter(&mut slots, 1, "dead") && slots.acquire(slot(2, "b", "webhook", 5), Some("dead")));
    assert!(!enter(&mut slots, 3, "dead"));
    assert!(enter(&mut slots, 4, "alive"), "another host of the same tool goes on");
    assert_eq!(leave(&mut slots, 2), [id(3)]);
}

#[test]
fn a_host_may_have_a_limit_of_its_own() {
    let mut slots =
        CallSlots::new(CallLimits { hosts: [("wide".to_owned(), 3)].into(), per_host: 1, ..CallLimits::default() });
    assert!((1..=3).all(|run| enter(&mut slots, run, "wide")) && !enter(&mut slots, 4, "wide"));
    assert!(enter(&mut slots, 5, "narrow") && !enter(&mut slots, 6, "narrow"));
}

#[test]
fn calls_that_wait_for_a_full_host_do_not_stand_before_calls_to_others() {
    let mut slots = per_host(2, 3);
    assert!(enter(&mut slots, 1, "dead") && enter(&mut slots, 2, "dead") && enter(&mut slots, 3, "alive"));
    for run in 100..1_100 {
        assert!(!enter(&mut slots, run, "dead"));
    }
    assert!(!enter(&mut slots, 4, "alive"), "the tool has no slot");
    assert_eq!(leave(&mut slots, 3), [id(4)]);
}

#[test]
fn of_several_hosts_the_one_with_the_fewest_calls_comes_first_however_many_wait_for_the_others() {
    let mut slots = per_host(2, 4);
    assert!(enter(&mut slots, 1, "dead") && enter(&mut slots, 2, "dead"));
    assert!(enter(&mut slots, 3, "gone") && enter(&mut slots, 4, "gone"));
    for run in 100..1_100 {
        assert!(!enter(&mut slots, run, if run % 2 == 0 { "dead" } else { "gone" }));
    }
    assert!(!enter(&mut slots, 5, "alive"));
    assert_eq!(leave(&mut slots, 1), [id(5)], "a call to a dead host gave its slot up");
    assert!(enter(&mut slots, 5, "alive"));
    assert_eq!(leave(&mut slots, 5), [id(100)], "nobody else waits for another host");
}

#[test]
fn a_parked_run_keeps_its_wish_and_a_slot_is_kept_for_it() {
    let mut slots = narrow(1, 1, 1);
    assert!(slots.acquire(slot(1, "a", "t", 5), None) && !slots.acquire(slot(2, "a", "t", 5), None));
    assert_eq!(slots.park(id(2), false), None, "it waits for a moment only, and there is room");
    let again = slots.park(id(2), true).unwrap();
    assert!((30..60).contains(&again), "{again}");
    assert_eq!(leave(&mut slots, 1), [id(2)]);
    assert!(slots.resume(id(2)) && !slots.resume(id(2)));
    assert!(slots.acquire(slot(2, "a", "t", 5), None));
}

#[test]
fn a_slot_that_was_kept_for_a_parked_run_that_never_comes_goes_to_the_next() {
    let mut slots = narrow(1, 1, 1);
    assert!(slots.acquire(slot(1, "a", "t", 5), None));
    for run in [2, 3] {
        assert!(!slots.acquire(slot(run, "a", "t", 5), None) && slots.park(id(run), true).is_some());
    }
    assert_eq!(leave(&mut slots, 1), [id(2)]);
    assert_eq!(slots.drop_run(id(2)), [id(3)]);
    assert!(slots.drop_run(id(3)).is_empty());
    assert_eq!((slots.taken(), slots.waiting()), (0, 0));
}

#[test]
fn a_run_for_which_a_slot_is_kept_and_one_that_wishes_for_nothing_are_not_parked() {
    let mut slots = narrow(1, 1, 1);
    assert!(slots.acquire(slot(1, "a", "t", 5), None) && !slots.acquire(slot(2, "a", "t", 5), None));
    assert_eq!(slots.park(id(7), true), None);
    assert_eq!(leave(&mut slots, 1), [id(2)]);
    assert_eq!(slots.park(id(2), true), None);
}

#[test]
fn runs_that_would_fill_the_memory_for_one_tool_are_parked_at_once_and_others_are_not() {
    let mut slots = CallSlots::new(CallLimits { per_tool: 1, in_memory_per_tool: 3, ..CallLimits::default() });
    assert!(slots.acquire(slot(1, "a", "t", 5), None));
    for run in [2, 3] {
        assert!(!slots.acquire(slot(run, "a", "t", 5), None));
        assert_eq!(slots.park(id(run), false), None);
    }
    for run in [4, 5] {
        assert!(!slots.acquire(slot(run, "a", "t", 5), None));
        assert!(slots.park(id(run), false).is_some());
    }
    assert!(slots.acquire(slot(6, "a", "u", 5), None) && !slots.acquire(slot(7, "a", "u", 5), None));
    assert_eq!(slots.park(id(7), false), None);
    assert!(slots.resume(id(5)));
    assert!(slots.park(id(5), false).is_some(), "in memory again it counts again");
    assert!(slots.drop_run(id(3)).is_empty());
    assert!(slots.resume(id(5)));
    assert_eq!(slots.park(id(5), false), None, "there is room");
}

#[test]
fn more_wishes_than_may_be_kept_are_forgotten_when_their_runs_are_parked() {
    let mut slots = CallSlots::new(CallLimits { total: 1, remembered: 2, ..CallLimits::default() });
    assert!(slots.acquire(slot(1, "a", "t", 5), None));
    for run in 2..6 {
        assert!(!slots.acquire(slot(run, "a", "t", 5), None) && slots.park(id(run), true).is_some());
    }
    assert_eq!(slots.waiting(), 2);
    assert_eq!(leave(&mut slots, 1), [id(2)]);
}

#[test]
fn when_too_many_wait_for_a_host_it_is_named_and_other_hosts_are_not_concerned() {
    let mut slots = CallSlots::new(CallLimits { per_host: 1, waiting: 2, ..CallLimits::default() });
    for run in 1..=4 {
        enter(&mut slots, run, "dead");
    }
    let crowded = slots.full_queue(id(4)).unwrap();
    assert_eq!((crowded.tool.as_str(), crowded.host.as_deref(), crowded.waiting), ("http", Some("dead"), 2));
    assert!(enter(&mut slots, 5, "alive") && !enter(&mut slots, 6, "alive"));
    assert_eq!(slots.full_queue(id(6)), None);
}

#[test]
fn the_more_runs_wait_the_later_each_is_looked_at_again_and_not_all_at_once() {
    let looked = |waiting| (1..200).map(move |run| recheck_delay(waiting, id(run * 7_919)));
    assert!(looked(0).all(|seconds| (30..60).contains(&seconds)));
    assert!(looked(50_000).all(|seconds| (1_030..2_060).contains(&seconds)));
    assert!(looked(0).collect::<BTreeSet<_>>().len() > 20);
}

/// A slots with several tenants.
fn shared(slots: CallLimits) -> CallSlots {
    let mut slots = CallSlots::new(slots);
    slots.set_shared(true);
    slots
}

/// The number of calls that a tenant gets in flight if they never end, to four hosts.
fn fill(slots: &mut CallSlots, first: u128, tenant: &str) -> usize {
    let hosts = ["one", "two", "three", "four"];
    (0..400).filter(|n| slots.acquire(slot(first + n, tenant, "http", 5), Some(hosts[*n as usize % 4]))).count()
}

#[test]
fn calls_of_one_tenant_that_never_end_leave_slots_of_the_tool_to_the_others() {
    let mut slots = shared(CallLimits::default());
    assert_eq!(fill(&mut slots, 1_000, "loud"), 192);
    assert!(slots.acquire(slot(1, "quiet", "http", 9), Some("alive")), "another host");
    assert!(slots.acquire(slot(2, "quiet", "http", 9), Some("one")), "a host that the other tenant calls too");
    assert_eq!(fill(&mut slots, 2_000, "loud too"), 46, "three times what it leaves free");
    assert!(slots.acquire(slot(3, "third", "http", 9), Some("alive")));
}

#[test]
fn one_tenant_alone_has_all_slots() {
    let mut slots = CallSlots::new(CallLimits::default());
    assert_eq!(fill(&mut slots, 1_000, "loud"), 256);
}

#[test]
fn a_tenant_does_not_take_the_whole_process() {
    let mut slots = shared(CallLimits { total: 8, ..CallLimits::default() });
    let tools = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let taken = tools.iter().zip(1_000..).filter(|(tool, run)| slots.acquire(slot(*run, "loud", tool, 5), None));
    assert_eq!(taken.count(), 6);
    assert!(slots.acquire(slot(1, "quiet", "a", 9), None));
}

#[test]
fn whoever_waits_for_more_than_its_share_goes_on_when_a_call_of_its_own_ends() {
    let mut slots = shared(CallLimits { per_tool: 4, ..CallLimits::default() });
    assert!((1..=3).all(|run| slots.acquire(slot(run, "loud", "t", 5), None)));
    assert!(!slots.acquire(slot(4, "loud", "t", 5), None) && slots.acquire(slot(5, "quiet", "t", 5), None));
    assert!(leave(&mut slots, 5).is_empty(), "it is kept for others");
    assert_eq!(leave(&mut slots, 1), [id(4)]);
}

#[test]
fn whoever_waits_for_a_host_beyond_its_share_goes_on_when_its_tenant_is_alone() {
    let mut slots = shared(CallLimits { per_host: 4, ..CallLimits::default() });
    assert!((1..=3).all(|run| enter(&mut slots, run, "host")) && !enter(&mut slots, 4, "host"));
    assert!(slots.acquire(slot(9, "b", "http", 5), Some("elsewhere")));
    assert!(leave(&mut slots, 9).is_empty());
    slots.set_shared(false);
    assert!(slots.acquire(slot(9, "a", "http", 5), Some("elsewhere")));
    assert_eq!(leave(&mut slots, 9), [id(4)]);
}

#[test]
fn one_tenant_does_not_take_all_places_to_wait() {
    let mut slots = shared(CallLimits { per_host: 1, waiting: 8, ..CallLimits::default() });
    let refused = (1..=9).find(|run| !enter(&mut slots, *run, "dead") && slots.full_queue(id(*run)).is_some());
    assert_eq!(refused, Some(8), "one call is under way, six wait");
    let crowded = slots.full_queue(id(8)).unwrap();
    assert_eq!((crowded.waiting, crowded.tenant.as_deref()), (6, Some("a")));
    assert!(slots.drop_run(id(8)).is_empty());
    assert!(!slots.acquire(slot(20, "b", "http", 5), Some("dead")));
    assert_eq!(slots.full_queue(id(20)), None);
}

#[test]
fn one_tenant_does_not_fill_the_memory_for_a_tool_nor_what_is_remembered() {
    let mut slots = shared(CallLimits { per_tool: 1, in_memory_per_tool: 4, remembered: 4, ..CallLimits::default() });
    let mut waits = |run, tenant, urgency| {
        !slots.acquire(slot(run, tenant, "t", urgency), None) && slots.park(id(run), false).is_none()
    };
    assert!(!waits(1, "loud", 5) && waits(2, "loud", 5) && waits(3, "loud", 5) && !waits(4, "loud", 5));
    assert!(waits(5, "quiet", 1), "there is room in memory for it");
    for run in 10..20 {
        assert!(!slots.acquire(slot(run, "loud", "t", 5), None) && slots.park(id(run), true).is_some());
    }
    assert!(slots.park(id(5), true).is_some());
    assert_eq!(leave(&mut slots, 1), [id(5)], "its wish was kept");
}
