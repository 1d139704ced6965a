//! The words that the planner knows: acts, things (what tools are about), labels, and function words.
//!
//! Tools contribute the words of their own names; the tables only add synonyms. A tool without an entry here is still
//! found by the words of its name.

use super::token::TokenKind;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What tools do, and the verbs that people use for it.
const ACTS: &[(&str, &[&str])] = &[
    (
        "send",
        &[
            "send", "mail", "email", "e-mail", "forward", "write", "dispatch", "deliver", "shoot", "share", "tell",
            "notify", "inform", "message", "let", "drop", "fire", "trigger", "emit",
        ],
    ),
    (
        "post",
        &[
            "post", "publish", "announce", "share", "tell", "notify", "inform", "message", "ping", "write", "say",
            "let", "drop", "send", "remind",
        ],
    ),
    (
        "read",
        &[
            "read", "get", "fetch", "show", "look", "check", "retrieve", "load", "pull", "give", "describe", "what",
            "see", "inspect", "need", "want",
        ],
    ),
    (
        "list",
        &[
            "list",
            "show",
            "get",
            "fetch",
            "enumerate",
            "give",
            "what",
            "which",
            "pull",
            "collect",
            "read",
            "check",
            "need",
            "want",
        ],
    ),
    ("search", &["search", "find", "look", "locate", "query", "hunt"]),
    ("create", &["create", "open", "file", "add", "make", "raise", "report", "log", "write", "start", "submit"]),
    (
        "upload",
        &["upload", "put", "store", "save", "archive", "copy", "back", "push", "keep", "place", "drop", "write"],
    ),
    ("summarize", &["summarize", "summarise", "condense", "shorten", "sum", "digest", "recap", "boil", "abridge"]),
    (
        "convert",
        &[
            "convert",
            "turn",
            "render",
            "export",
            "make",
            "typeset",
            "transform",
            "create",
            "generate",
            "produce",
            "build",
            "format",
        ],
    ),
    ("echo", &["echo", "repeat"]),
    (
        "request",
        &[
            "forward", "request", "fetch", "get", "call", "download", "read", "load", "retrieve", "open", "hit",
            "post", "put", "patch", "delete", "head", "visit", "query", "send", "pull", "check", "grab", "show",
            "submit", "push", "what", "take",
        ],
    ),
];

/// What tools are about, and the nouns that people use for it.
const THINGS: &[(&str, &[&str])] = &[
    ("email", &["email", "mail", "e-mail"]),
    ("slack", &["slack", "channel"]),
    ("s3", &["s3", "bucket"]),
    ("repo", &["repo", "repository"]),
    ("issue", &["issue", "bug", "ticket"]),
    ("drive", &["drive", "gdrive"]),
    ("webhook", &["webhook", "hook"]),
    ("http", &["http", "https", "endpoint"]),
    ("pdf", &["pdf"]),
];

/// Nouns for the result of an act: a summary is the result of summarizing.
const NOMINALS: &[(&str, &[&str])] = &[("summarize", &["summary", "digest", "recap", "tldr", "abstract", "gist"])];

/// Words that announce the value of an input.
const LABELS: &[(&str, &[&str])] = &[
    ("title", &["title", "titled", "called", "named", "headed", "entitled", "headline"]),
    ("subject", &["subject", "about", "titled"]),
    ("body", &["body", "saying", "says", "reading", "message", "text", "content", "description", "described", "that"]),
    ("text", &["text", "saying", "says", "message", "reading", "that"]),
    ("message", &["message", "saying", "text", "that"]),
    ("paragraphs", &["saying", "text", "body", "content", "paragraph"]),
    ("content", &["content", "text", "saying"]),
    ("labels", &["label", "labels", "labelled", "labeled", "tagged", "tag", "tags"]),
    ("assignees", &["assign", "assigned", "assignee", "assignees"]),
    ("assignee", &["assigned", "assignee"]),
    ("key", &["as", "key", "under", "named", "called", "path", "object"]),
    ("event_type", &["event", "type"]),
    ("channel_alias", &["channel"]),
    ("since", &["since", "after"]),
    ("max_chars", &["characters", "chars", "letters"]),
    ("query", &["query", "titled", "called", "named"]),
    ("secret", &["secret", "signed"]),
    ("page_size", &["paper"]),
    ("reply_to", &["reply-to", "reply"]),
    ("mailbox", &["mailbox", "from"]),
];

/// Words that may precede the request proper.
const FILLERS: &[&str] = &[
    "please",
    "could",
    "can",
    "would",
    "will",
    "you",
    "kindly",
    "i",
    "i'd",
    "i'll",
    "i'm",
    "want",
    "need",
    "like",
    "to",
    "me",
    "us",
    "let's",
    "lets",
    "go",
    "ahead",
    "just",
    "now",
    "first",
    "next",
    "finally",
    "also",
    "then",
    "hey",
    "hi",
    "hello",
    "ok",
    "okay",
    "so",
    "once",
    "have",
    "has",
    "been",
    "after",
    "before",
    "that's",
    "done",
    "and",
    "we",
    "we'd",
    "should",
    "must",
    "afterwards",
    "afterward",
    "later",
    "lastly",
    "second",
    "third",
    "that",
    "mind",
    "help",
    "try",
    "quickly",
    "do",
];

const PREPOSITIONS: &[&str] = &[
    "to", "in", "on", "for", "from", "via", "using", "with", "at", "through", "by", "into", "onto", "of", "about",
    "under", "below", "as", "inside", "within", "over", "since", "between",
];

const DETERMINERS: &[&str] =
    &["the", "a", "an", "this", "that", "these", "those", "my", "our", "your", "its", "their", "all", "every"];

const PRONOUNS: &[&str] =
    &["it", "them", "this", "that", "these", "those", "result", "results", "output", "outcome", "everything", "its"];

/// Nouns that don't help to choose a tool.
const GENERIC: &[&str] = &[
    "report",
    "text",
    "message",
    "file",
    "document",
    "update",
    "note",
    "list",
    "result",
    "data",
    "content",
    "pdf",
    "link",
    "info",
    "information",
    "detail",
    "news",
    "status",
    "everything",
    "answer",
    "response",
    "output",
    "url",
    "following",
    "request",
    "outcome",
];

/// Verbs that are just as often nouns.
const NOUNISH: &[&str] = &[
    "file", "report", "log", "message", "copy", "print", "check", "mail", "email", "search", "request", "list", "post",
    "back", "head", "format", "query", "drop", "digest", "recap", "what", "which", "hit", "issue", "fire", "start",
    "open",
];

/// Words that change the meaning in a way that a plan can't express.
const CONDITIONS: &[&str] = &[
    "if",
    "unless",
    "until",
    "while",
    "whenever",
    "when",
    "every",
    "each",
    "daily",
    "weekly",
    "hourly",
    "monthly",
    "not",
    "don't",
    "dont",
    "never",
    "except",
    "without",
    "instead",
    "or",
    "otherwise",
    "else",
    "avoid",
    "stop",
    "cancel",
];

/// Words that say when; a plan runs at once.
const TIMES: &[&str] = &["tomorrow", "tonight", "later", "soon", "today", "yesterday", "midnight", "weekend", "twice"];

/// Particles that belong to a verb without adding meaning.
const PARTICLES: &[(&str, &[&str])] = &[
    ("look", &["up", "for"]),
    ("sum", &["up"]),
    ("boil", &["down"]),
    ("back", &["up"]),
    ("let", &["know"]),
    ("what", &["is", "are", "does", "do", "know", "knows"]),
    ("which", &["are", "is", "does"]),
];

/// Services that are not in `THINGS`.
const SERVICES: &[&str] = &["google", "notion", "github", "outlook"];

/// The only words that may be ignored anywhere, because the result is the same without them: courtesies, `now` (a
/// plan runs at once anyway) and `also` (it joins what the plan already holds). Adverbs of manner (`quickly`) and
/// words that refer to something outside the goal (`too`) are not here: no step can carry them.
const COURTESIES: &[&str] = &["please", "kindly", "thanks", "also", "now"];

const POSSESSIVES: &[&str] = &["my", "our", "your", "its", "their"];

/// Words after `what it` that ask for a step's output.
const CONTENT_QUESTIONS: &[&str] = &["says", "said", "returns", "returned", "contains"];

/// Nouns for a message to somebody, whatever the tool.
const MESSAGE_NOUNS: &[&str] = &["message", "note", "notification"];

/// Nouns for content that the caller may give beside the goal.
const DOCUMENTS: &[&str] =
    &["report", "text", "file", "document", "update", "data", "content", "newsletter", "minutes", "letter"];

/// Nouns that describe the address or text right behind them.
const WEB_NOUNS: &[&str] = &[
    "page", "post", "blog", "article", "site", "website", "document", "file", "report", "endpoint", "api", "feed",
    "url", "link", "address",
];
const TEXT_NOUNS: &[&str] = &["text", "message", "note", "words", "following", "sentence", "markdown", "document"];
const PATH_NOUNS: &[&str] = &["repo", "repository", "project", "file", "key", "path"];
const DATA_NOUNS: &[&str] = &["json", "data", "payload", "object"];

/// Words that stand for somebody or something named elsewhere, and so can't be a name.
const NEVER_NAMES: &[&str] = &[
    "me",
    "us",
    "you",
    "him",
    "her",
    "them",
    "it",
    "myself",
    "ourselves",
    "nobody",
    "noone",
    "none",
    "anybody",
    "anyone",
    "somebody",
    "someone",
    "everybody",
    "everyone",
    "no",
    "any",
    "all",
    "nothing",
    "something",
    "anything",
];

/// Verbs after which `that` begins speech.
const SAYING: &[&str] = &["tell", "notify", "inform", "let", "announce", "say", "remind", "message", "ping"];

/// A table indexed by word stem, because it is queried for every word of a goal.
type StemIndex = LazyLock<BTreeMap<String, Vec<&'static str>>>;

static ACTS_BY_STEM: StemIndex = LazyLock::new(|| index(ACTS));
static THINGS_BY_STEM: StemIndex = LazyLock::new(|| index(THINGS));
static NOMINALS_BY_STEM: StemIndex = LazyLock::new(|| index(NOMINALS));

fn index(table: &[(&'static str, &[&str])]) -> BTreeMap<String, Vec<&'static str>> {
    let mut index: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for (name, word) in table.iter().flat_map(|(name, words)| words.iter().map(move |word| (*name, *word))) {
        let names = index.entry(stem(word)).or_default();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    index
}

fn row(index: &StemIndex, word: &str) -> Vec<&'static str> {
    index.get(&stem(word)).cloned().unwrap_or_default()
}

/// The acts that a verb may mean, by the names that tools use.
pub(super) fn acts(word: &str) -> Vec<&'static str> {
    row(&ACTS_BY_STEM, word)
}

/// Whether a word is literally in the table of acts.
pub(super) fn is_act(word: &str) -> bool {
    ACTS.iter().any(|(_, words)| words.contains(&word))
}

/// Whether a part of a tool's name is an act.
pub(super) fn names_act(word: &str) -> bool {
    ACTS.iter().any(|(act, _)| stem(act) == stem(word))
}

/// The act whose outcome a noun names.
pub(super) fn nominal(word: &str) -> Option<&'static str> {
    row(&NOMINALS_BY_STEM, word).first().copied()
}

/// Whether a noun names something that an extra step can produce: a summary, a PDF.
pub(super) fn is_outcome(word: &str) -> bool {
    nominal(word).is_some() || thing(word) == thing("pdf")
}

/// The canonical name of a thing.
pub(super) fn thing(word: &str) -> String {
    row(&THINGS_BY_STEM, word).first().map_or_else(|| stem(word), |name| stem(name))
}

/// Whether a word is in the table of things.
pub(super) fn is_thing(word: &str) -> bool {
    !row(&THINGS_BY_STEM, word).is_empty()
}

/// Words that announce a value for the input of this name.
pub(super) fn labels(input: &str) -> Vec<&str> {
    let said = LABELS.iter().filter(|(name, _)| *name == input).flat_map(|(_, words)| words.iter().copied());
    let own = if input.contains('_') { None } else { Some(input) };
    own.into_iter().chain(said).collect()
}

/// Whether a word announces the value of some input.
pub(super) fn is_label(word: &str) -> bool {
    matches!(word, "cc" | "bcc") || LABELS.iter().any(|(_, words)| words.contains(&word))
}

/// Whether a word announces a text behind it.
pub(super) fn announces_text(word: &str) -> bool {
    matches!(word, "subject" | "title" | "body" | "text" | "message" | "content" | "description" | "headline")
}

pub(super) fn is_filler(word: &str) -> bool {
    FILLERS.contains(&word)
}

pub(super) fn is_preposition(word: &str) -> bool {
    PREPOSITIONS.contains(&word)
}

pub(super) fn is_determiner(word: &str) -> bool {
    DETERMINERS.contains(&word)
}

pub(super) fn is_pronoun(word: &str) -> bool {
    PRONOUNS.contains(&word)
}

pub(super) fn is_generic(word: &str) -> bool {
    is_pronoun(word) || GENERIC.iter().any(|known| stem(known) == stem(word)) || nominal(word).is_some()
}

pub(super) fn is_nounish(word: &str) -> bool {
    NOUNISH.contains(&word)
}

/// Whether a word needs a complement, or carries no meaning.
pub(super) fn is_small(word: &str) -> bool {
    is_preposition(word) || is_determiner(word) || word == "and" || is_courtesy(word)
}

pub(super) fn is_possessive(word: &str) -> bool {
    POSSESSIVES.contains(&word)
}

pub(super) fn is_courtesy(word: &str) -> bool {
    COURTESIES.contains(&word)
}

pub(super) fn is_particle(verb: &str, word: &str) -> bool {
    PARTICLES.iter().any(|(known, words)| stem(known) == stem(verb) && words.contains(&word))
}

/// Particles of which a verb needs one to have the meaning in the table: `back` is not `back up`.
pub(super) fn required_particles(verb: &str) -> &'static [&'static str] {
    let whole = |known: &str| matches!(known, "look" | "what" | "which");
    let found = PARTICLES.iter().find(|(known, _)| stem(known) == stem(verb) && !whole(known));
    found.map_or(&[], |(_, words)| words)
}

pub(super) fn is_content_question(word: &str) -> bool {
    CONTENT_QUESTIONS.contains(&word)
}

/// Whether a noun names a message.
pub(super) fn is_message_noun(word: &str) -> bool {
    MESSAGE_NOUNS.iter().any(|known| stem(known) == stem(word))
}

/// Whether a noun may name content that the caller gave beside the goal.
pub(super) fn is_document(word: &str) -> bool {
    DOCUMENTS.iter().any(|known| stem(known) == stem(word))
}

/// Whether a noun may directly precede a token of this kind as its description.
pub(super) fn apposes(word: &str, kind: &TokenKind) -> bool {
    let nouns = match kind {
        TokenKind::Url => WEB_NOUNS,
        TokenKind::Text => TEXT_NOUNS,
        TokenKind::Name => PATH_NOUNS,
        TokenKind::Json(_) => DATA_NOUNS,
        TokenKind::Email => &["address"],
        TokenKind::Handle => &["user"],
        TokenKind::Id => &["id"],
        _ => &[],
    };
    nouns.contains(&word)
}

/// Whether a noun only describes the value behind it, so that the word before the noun governs.
pub(super) fn describes(word: &str) -> bool {
    is_thing(word)
        || is_generic(word)
        || WEB_NOUNS.contains(&word)
        || PATH_NOUNS.contains(&word)
        || SERVICES.contains(&word)
}

/// Whether a word can't be a name.
pub(super) fn is_never_a_name(word: &str) -> bool {
    NEVER_NAMES.contains(&word)
}

/// Whether a word names a means: a service, e-mail.
pub(super) fn is_instrument(word: &str) -> bool {
    const OBJECTS: &[&str] = &["issue", "repo", "pdf"];
    is_service(word) || (is_thing(word) && !OBJECTS.iter().any(|object| thing(object) == thing(word)))
}

/// Whether a word names a service.
pub(super) fn is_service(word: &str) -> bool {
    SERVICES.contains(&word)
}

pub(super) fn is_condition(word: &str) -> bool {
    CONDITIONS.contains(&word) || is_time(word)
}

pub(super) fn is_time(word: &str) -> bool {
    TIMES.contains(&word)
}

/// Whether a word precedes the last step.
pub(super) fn is_final(word: &str) -> bool {
    matches!(word, "finally" | "lastly")
}

pub(super) fn is_saying(word: &str) -> bool {
    SAYING.iter().any(|known| stem(known) == stem(word))
}

/// A crude stem, good enough to match `issues` with `issue` and `fetching` with `fetch`. It need not be a word.
pub(super) fn stem(word: &str) -> String {
    let word = word.to_lowercase();
    let mut base = word.as_str();
    for ending in ["ing", "ed", "es", "s"] {
        match base.strip_suffix(ending) {
            Some(rest) if rest.chars().count() >= 3 && !(ending == "s" && rest.ends_with('s')) => {
                base = rest;
                break;
            }
            _ => {}
        }
    }
    let base = base.strip_suffix('e').filter(|rest| rest.chars().count() >= 3).unwrap_or(base);
    let mut letters: Vec<char> = base.chars().collect();
    if letters.len() > 3 && letters[letters.len() - 1] == letters[letters.len() - 2] {
        letters.pop();
    }
    if let Some(last) = letters.last_mut()
        && *last == 'y'
    {
        *last = 'i';
    }
    letters.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_word_have_one_stem() {
        let same = [
            &["issue", "issues"][..],
            &["fetch", "fetching", "fetched", "fetches"],
            &["summarize", "summarizing", "summarized", "summarizes"],
            &["copy", "copies", "copied"],
            &["call", "calling", "calls"],
            &["page", "pages"],
        ];
        for words in same {
            let first = stem(words[0]);
            assert!(
                words.iter().all(|word| stem(word) == first),
                "{words:?} {:?}",
                words.iter().map(|w| stem(w)).collect::<Vec<_>>()
            );
        }
        assert_ne!(stem("past"), stem("paste d"));
    }

    #[test]
    fn one_verb_may_mean_several_acts() {
        assert_eq!(acts("shortening"), ["summarize"]);
        assert_eq!(acts("share"), ["send", "post"]);
        assert!(acts("translate").is_empty());
    }
}
