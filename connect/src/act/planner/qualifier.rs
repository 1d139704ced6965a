//! Words that pick some of what there is: a state, a rank, an age, an owner.
//!
//! They change what a goal means, and most tools can't tell by them. So they are never what is
//! looked for or labelled with just because they stand where such a value would.

use super::lexicon::stem;

/// Things that are some of the things of another name: a bug is an issue, and not every issue is a bug.
const KINDS: &[&str] = &["bug"];

/// Words that pick some of what there is, so that they can't be looked for themselves.
const FILTERS: &[&str] = &[
    "modified",
    "edited",
    "updated",
    "changed",
    "created",
    "written",
    "wrote",
    "made",
    "shared",
    "owned",
    "uploaded",
    "deleted",
    "archived",
    "starred",
    "unread",
    "larger",
    "smaller",
    "bigger",
    "older",
    "newer",
    "longer",
    "shorter",
    "more",
    "less",
    "fewer",
    "than",
    "least",
    "most",
    "excluding",
    "including",
    "ignoring",
    "only",
    "minus",
    "plus",
    "recent",
    "recently",
    "latest",
    "newest",
    "oldest",
    "last",
    "first",
    "next",
    "past",
    "previous",
    "ago",
    "week",
    "my",
    "mine",
    "that",
    "which",
    "who",
    "whose",
    "everything",
    "anything",
    "nothing",
    "something",
    "all",
    "any",
    "some",
];

/// States of a thing, which are not what it is labelled with.
const STATES: &[&str] = &[
    "open",
    "opened",
    "closed",
    "merged",
    "all",
    "assigned",
    "unassigned",
    "unlabelled",
    "mine",
    "recent",
    "new",
    "newest",
    "latest",
    "old",
    "oldest",
    "stale",
    "active",
    "resolved",
    "unresolved",
];

/// What a thing can be labelled with, and nobody is called.
const RANKS: &[&str] = &[
    "urgent",
    "important",
    "critical",
    "blocked",
    "blocker",
    "ready",
    "done",
    "high",
    "low",
    "minor",
    "major",
    "bug",
    "feature",
    "private",
    "public",
];

/// Whether a thing is some of the things that it is counted among.
pub(super) fn is_kind(word: &str) -> bool {
    KINDS.iter().any(|known| stem(known) == stem(word))
}

/// Whether a word picks some of what is looked for.
pub(super) fn is_filter(word: &str) -> bool {
    FILTERS.contains(&word)
}

/// Whether a word says how a thing stands.
pub(super) fn is_state(word: &str) -> bool {
    STATES.contains(&word)
}

/// Whether a word says how much something matters.
pub(super) fn is_rank(word: &str) -> bool {
    RANKS.contains(&word)
}
