//! The types of ledger entries: their names, what they say, and the names that they had before.
//!
//! A name is what the entry is about, a dot, and what happened to it, in the past. A stored entry is never changed, so it
//! keeps the name that it was written with; whoever reads entries of a type reads all names of it.
//! The page docs/reference/ledger.md is made from this list.

/// One type of ledger entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryType {
    pub name: &'static str,
    /// When such an entry is written.
    pub when: &'static str,
    /// The names of this type in entries of earlier versions.
    pub former: &'static [&'static str],
}

/// Every name under which entries of a type are stored, given one of them. A name that is not in the list is its own.
#[must_use]
pub fn stored_names(name: &str) -> Vec<String> {
    let known = ENTRY_TYPES.iter().find(|known| known.name == name || known.former.contains(&name));
    match known {
        Some(known) => [known.name].iter().chain(known.former).map(|name| (*name).to_owned()).collect(),
        None => vec![name.to_owned()],
    }
}

macro_rules! entry_types {
    ($($name:literal $(was $($former:literal)+)? : $when:literal;)*) => {
        /// All types, by subject.
        pub static ENTRY_TYPES: &[EntryType] =
            &[$(EntryType { name: $name, when: $when, former: &[$($($former),+)?] }),*];
    };
}

entry_types! {
    "node.started" was "NodeStarted": "a node began to serve; `signer` is the key with which it signs checkpoints";
    "node.stopped" was "NodeStopped": "a node was shut down in order";
    "clock.accepted" was "ClockAccepted": "an operator accepted the clock although the ledger has later entries";
    "store.resumed": "an operator resumed a held store";
    "access.refused": "a request was refused, or several by one caller";
    "operator.acted": "an operator acted for another tenant";
    "token.issued": "an actor signed in";
    "token.refreshed": "a refresh token was exchanged";
    "token.revoked": "an access token was revoked";
    "token.family_revoked": "all tokens of one sign-in were revoked";
    "actor.changed": "an actor's entry was written";
    "actor.removed": "an actor was removed";
    "actor.key_created" was "actor.key_added": "an actor got a key";
    "actor.keys_revoked" was "KeysGivenUp": "an operator revoked keys that can't be decrypted any more";
    "actor.signing_key_created": "the public half of a key pair counts for an actor";
    "actor.signing_key_rotated": "a signing key was replaced and expires";
    "actor.signing_key_revoked": "a signing key was revoked";
    "tenant.created" was "tenant.added": "a tenant was created";
    "tenant.disabled": "a tenant was disabled";
    "tenant.enabled": "a tenant was enabled again";
    "intent.accepted": "a signed intent passed every check";
    "intent.rejected": "a signed intent was refused; `code` says why";
    "workflow.applied": "a version of a workflow was stored";
    "workflow.shared": "a workflow was shared with all tenants";
    "workflow.unshared": "a workflow is not shared any more";
    "workflow.copied": "a shared workflow was copied to the tenant that starts it";
    "cache.invalidated": "cached outputs of a workflow were deleted";
    "tool.added": "a declared tool was loaded for the first time";
    "tool.changed": "a declared tool has another definition";
    "tool.removed": "a declared tool is not declared any more";
    "tool.reload_requested": "an operator asked all nodes to reload the declared tools";
    "run.started": "a run began";
    "run.completed": "a run completed";
    "run.failed": "a run failed";
    "run.cancel_requested": "somebody cancelled the run; the calls in flight still end";
    "run.cancelled": "a run was cancelled";
    "run.paused": "the run starts nothing new";
    "run.resumed": "the run continues after a pause";
    "run.pause_refused": "the run could not be paused";
    "run.resume_refused": "the run could not be resumed";
    "run.signalled" was "run.told": "somebody sent the run a signal; `kind` says which";
    "run.signal_discarded" was "run.signal_unreadable": "a signal could not be read";
    "run.signal_ignored" was "run.signal_unstorable": "a run that can only end ignored a signal";
    "run.restored": "the run was unfinished in a store that was restored and resumed";
    "run.rollback_started": "the run began to undo its calls";
    "run.rollback_refused": "the run could not be rolled back";
    "run.rollback_ended": "a rollback ended and left something";
    "run.rolled_back": "everything was undone";
    "plan.drafted": "the dry run of a plan ended";
    "plan.edited": "the input of a drafted step was edited";
    "plan.approved": "a plan was approved";
    "step.child_started": "a step started a child run";
    "step.delayed": "a step waits for the delay of an edge";
    "step.wait_started" was "step.waiting": "a step waits for a time or an event";
    "step.event_received": "a waiting step received its event";
    "step.map_started" was "step.mapping": "the items of a map are known";
    "step.reserved": "a call was counted by limits and is made without an entry of its own";
    "step.dispatched": "a call with effects is about to be made";
    "step.retry_scheduled" was "step.retrying": "a call failed and is made again";
    "step.completed": "a step completed";
    "step.failed": "a step failed";
    "step.skipped": "no edge led to a step";
    "step.refused": "the policy or a limit denied a call";
    "step.judged": "the judge of a step decided";
    "step.approved": "a call was approved";
    "step.edited": "the input of a step that awaits approval was edited";
    "step.edit_refused": "an edit of an input was refused";
    "step.outcome_unknown": "it is unknown whether a call took effect";
    "step.resolved": "a person said whether a call took effect";
    "step.rollback_started" was "step.undoing": "a call is being undone";
    "step.rolled_back": "a call was undone";
    "step.rollback_failed": "a call could not be undone";
    "approval.requested": "people are asked to approve";
    "approval.decided": "a person decided";
    "approval.link_used": "the decision was made with a mailed link";
    "approval.expired": "nobody decided in time";
    "patch.approved": "a patch was approved";
    "patch.approval_superseded" was "patch.approval_stale": "a patch was approved on a plan that has changed; people are asked again";
    "patch.applied": "a patch was applied";
    "patch.refused": "a patch was refused";
    "patch.reverted": "a patch was removed";
    "patch.revert_refused": "a patch could not be removed";
    "event.published": "an event was published";
    "work.claimed": "a worker claimed a call";
    "work.completed": "a worker reported an output";
    "work.failed": "a worker reported a failure";
    "work.lease_expired": "the lease of a worker expired";
    "work.withdrawn": "a call was taken out of its queue";
    "schedule.created": "a schedule was created";
    "schedule.changed": "a schedule was changed";
    "schedule.paused": "a schedule was paused, by a person or after refusals";
    "schedule.resumed": "a schedule was resumed";
    "schedule.removed": "a schedule was removed";
    "schedule.run_requested": "somebody started the workflow of a schedule by hand";
    "schedule.tick_started": "a tick started a run";
    "schedule.tick_queued": "a tick waits for the end of an earlier run";
    "schedule.tick_skipped": "a tick started no run because of the overlap policy or a rate limit";
    "schedule.tick_refused": "a tick was refused as a request of its owner";
    "schedule.ticks_missed": "ticks passed while no node was there to start them";
    "schedule.ticks_not_started": "the number of further ticks that were skipped or refused";
    "notification.sent": "a message was delivered";
    "notification.failed": "a message could not be delivered";
    "notification.dropped": "a message was not needed any more";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_subject_and_what_happened_to_it() {
        let irregular = ["sent", "withdrawn", "rolled_back"];
        // The status of the step and the type of the message have the same name.
        let named_after_status = ["step.outcome_unknown"];
        for EntryType { name, .. } in ENTRY_TYPES {
            let (subject, what) = name.split_once('.').unwrap_or_default();
            let plain = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            let is_past = what.ends_with("ed") || irregular.contains(&what) || named_after_status.contains(name);
            assert!(plain(subject) && plain(what) && is_past, "{name}");
        }
    }

    #[test]
    fn no_name_has_two_meanings() {
        let mut names: Vec<&str> =
            ENTRY_TYPES.iter().flat_map(|known| [known.name].into_iter().chain(known.former.iter().copied())).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn a_type_is_found_by_each_of_its_names() {
        for name in ["run.signalled", "run.told"] {
            assert_eq!(stored_names(name), ["run.signalled", "run.told"]);
        }
        assert_eq!(stored_names("run.started"), ["run.started"]);
        assert_eq!(stored_names("somebody.s_own"), ["somebody.s_own"]);
    }
}
