//! Words that select a subset: a state, a rank, an age, an owner.
//!
//! They change what a goal means, and most tools can't filter by them. So they are never taken as a search text or a
//! label just because of their position.

use super::lexicon::stem;

/// Nouns for a subset of what they are synonyms of: a bug is an issue, but not every issue is a bug.
const KINDS: &[&str] = &["bug"];

/// Words that select a subset, and so can't be a search text.
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

/// States of a thing, which are not labels.
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

/// Ranks, which may be labels but not people's names.
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

/// Whether a noun names only a subset of its synonym.
pub(super) fn is_kind(word: &str) -> bool {
    KINDS.iter().any(|known| stem(known) == stem(word))
}

/// Whether a word restricts a search.
pub(super) fn is_filter(word: &str) -> bool {
    FILTERS.contains(&word)
}

/// Whether a word names a state.
pub(super) fn is_state(word: &str) -> bool {
    STATES.contains(&word)
}

/// Whether a word names a priority.
pub(super) fn is_rank(word: &str) -> bool {
    RANKS.contains(&word)
}
