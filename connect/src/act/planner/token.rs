//! Splits a goal into words, punctuation and values recognized by shape: addresses, quoted texts, names of
//! repositories and files, channels, numbers, times, JSON.
//!
//! A quoted text is one token whatever it contains. A colon behind a verb begins a text that runs to the end of the
//! goal, unless a quoted text or an address follows.

use super::lexicon;
use chimera_core::json;
use chimera_core::time::Timestamp;
use serde::de::IgnoredAny;
use serde_json::Value;

/// The shape of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// A word, in lower case.
    Word(String),
    /// A whole number.
    Number(i64),
    /// A text in quotes, or after a colon.
    Text,
    /// `ann@acme.example`
    Email,
    /// `https://…`
    Url,
    /// `s3://bucket/key`
    Object,
    /// `secret://…`
    Secret,
    /// `cas://…`
    Artifact,
    /// `#ops`
    Channel,
    /// `@octocat`
    Handle,
    /// A name with dots or slashes: a file, a repository, an event.
    Name,
    /// `2026-01-31`, with or without a time.
    Moment,
    /// A UUID, with or without hyphens.
    Id,
    /// An object or list.
    Json(Value),
    /// A comma, a period, a new line.
    Mark(char),
    /// Any other character that stands alone: a bracket, a dash, an unmatched quote. Also JSON with a duplicate member
    /// or a number that can't be kept.
    Sign,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct GoalToken {
    pub(super) kind: TokenKind,
    /// Its text, without quotes and surrounding punctuation.
    pub(super) text: String,
    /// Byte offset in the goal.
    pub(super) start: usize,
    /// End offset, exclusive.
    pub(super) end: usize,
    /// Directly follows the previous token.
    pub(super) glued: bool,
}

impl GoalToken {
    pub(super) fn word(&self) -> Option<&str> {
        match &self.kind {
            TokenKind::Word(word) => Some(word),
            _ => None,
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.word() == Some(word)
    }

    pub(super) fn is_mark(&self) -> bool {
        matches!(self.kind, TokenKind::Mark(_))
    }

    /// Neither a word nor a mark.
    pub(super) fn is_entity(&self) -> bool {
        !matches!(self.kind, TokenKind::Word(_) | TokenKind::Mark(_) | TokenKind::Sign)
    }

    /// Owner and name, if it can be a repository.
    pub(super) fn repo(&self) -> Option<(&str, &str)> {
        let path = match self.kind {
            TokenKind::Name => self.text.as_str(),
            TokenKind::Url => {
                let rest = self.text.split_once("://").map_or("", |(_, rest)| rest);
                let rest = rest.strip_prefix("www.").unwrap_or(rest).strip_prefix("github.com/")?;
                rest.trim_end_matches('/').trim_end_matches("/issues")
            }
            _ => return None,
        };
        let (owner, name) = path.split_once('/')?;
        let plain = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        };
        (plain(owner) && plain(name)).then(|| (owner, name.strip_suffix(".git").unwrap_or(name)))
    }
}

/// Opening and closing quotes.
const QUOTES: &[(&str, &str)] =
    &[("```", "```"), ("`", "`"), ("\"", "\""), ("“", "”"), ("„", "“"), ("«", "»"), ("'", "'"), ("‘", "’")];

/// Number words, from two on.
const NUMBERS: &[&str] = &["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/// The possessive ending; it is a token of its own.
pub(super) const POSSESSIVE: &str = "'s";

/// Words after which `'s` is not a possessive.
const CONTRACTED: &[&str] = &["let", "that", "it", "here", "there"];

/// How many tokens before a colon are searched for a verb.
const SENTENCE_TOKENS_MAX: usize = 64;

/// Nouns that `one` may count.
const COUNTED: &[&str] = &["sentence", "issue", "file", "page", "result"];

pub(super) fn read(goal: &str) -> Vec<GoalToken> {
    let mut reader = Tokenizer { goal, at: 0, item: None, tokens: Vec::new() };
    while reader.at < goal.len() {
        reader.next();
    }
    let mut tokens = reader.tokens;
    // `one` is a number only where it counts something.
    for at in 1..tokens.len() {
        if tokens[at - 1].is("one") && tokens[at].word().is_some_and(|word| COUNTED.contains(&word)) {
            tokens[at - 1].kind = TokenKind::Number(1);
        }
    }
    tokens
}

struct Tokenizer<'a> {
    goal: &'a str,
    at: usize,
    /// The number of the last list item.
    item: Option<u64>,
    tokens: Vec<GoalToken>,
}

impl Tokenizer<'_> {
    fn push(&mut self, kind: TokenKind, text: &str, start: usize, end: usize) {
        let glued = self.tokens.last().is_some_and(|before| before.end == start);
        self.tokens.push(GoalToken { kind, text: text.to_owned(), start, end, glued });
    }

    fn next(&mut self) {
        let rest = &self.goal[self.at..];
        let Some(first) = rest.chars().next() else { return };
        if first.is_whitespace() {
            if first == '\n' {
                self.push(TokenKind::Mark('\n'), "\n", self.at, self.at + 1);
            }
            self.at += first.len_utf8();
        } else if !self.quoted(rest) && !self.json(rest) && !self.bullet(rest) {
            self.chunk(rest);
        }
    }

    fn quoted(&mut self, rest: &str) -> bool {
        let Some((open, close)) = QUOTES.iter().find(|(open, _)| rest.starts_with(open)) else { return false };
        let inner = &rest[open.len()..];
        // An apostrophe within a word closes no quote.
        let escaped = |at: usize| *close == "\"" && inner[..at].ends_with('\\');
        let ends = |at: usize| !escaped(at) && (*close != "'" || !inner[at + 1..].starts_with(char::is_alphanumeric));
        let Some((end, _)) = inner.match_indices(close).find(|(at, _)| ends(*at)) else { return false };
        let after = self.at + open.len() + end + close.len();
        if inner[..end].trim().is_empty() {
            self.push(TokenKind::Sign, &rest[..after - self.at], self.at, after);
            self.at = after;
            return true;
        }
        let text = if *open == "```" { inner[..end].trim_matches('\n') } else { &inner[..end] };
        let text = if *close == "\"" { text.replace("\\\"", "\"") } else { text.to_owned() };
        self.push(TokenKind::Text, &text, self.at, after);
        self.at = after;
        true
    }

    fn json(&mut self, rest: &str) -> bool {
        if !rest.starts_with(['{', '[']) {
            return false;
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        let Some(Ok(_)) = values.next() else { return false };
        let end = values.byte_offset();
        // What the strict parser refuses would not reach the tool as written.
        let kind = json::parse_exact(&rest[..end]).map_or(TokenKind::Sign, TokenKind::Json);
        self.push(kind, &rest[..end], self.at, self.at + end);
        self.at += end;
        true
    }

    /// `1.`, `2)`, `-` or `*` at the beginning of a line; the next number also within one.
    fn bullet(&mut self, rest: &str) -> bool {
        let begins = self.tokens.last().is_none_or(|token| token.kind == TokenKind::Mark('\n') && token.text == "\n");
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: Option<u64> = rest[..digits].parse().ok();
        // A numbered list begins with one and has no gaps; any other number is part of the text.
        let next = number.is_none() || number == Some(self.item.map_or(1, |item| item + 1));
        let within = number.is_some() && self.item.is_some();
        let signs = if digits > 0 { [". ", ") "] } else { ["- ", "* "] };
        let bullet = next && (begins || within) && signs.iter().any(|sign| rest[digits..].starts_with(sign));
        if bullet {
            self.item = number;
            self.push(TokenKind::Mark('\n'), "", self.at, self.at + digits + 1);
            self.at += digits + 2;
        }
        bullet
    }

    /// Reads up to the next space. Every character becomes part of a token.
    fn chunk(&mut self, rest: &str) {
        let stops = |c: char| c.is_whitespace() || matches!(c, '"' | '“' | '”' | '`' | '«' | '»');
        let first = rest.chars().next().map_or(1, char::len_utf8);
        let end = rest[first..].find(stops).map_or(rest.len(), |at| first + at);
        let whole = &rest[..end];
        let body = whole.trim_start_matches(['(', '<', '"', '“', '”', '‘', '\'', '–', '—', '…']);
        let lead = whole.len() - body.len();
        self.signs(&whole[..lead]);
        let kept = body.trim_end_matches(|c: char| {
            is_question(c) || matches!(c, '.' | ',' | ';' | ':' | '!' | ')' | '>' | '\'' | '’' | '…' | '–' | '—')
        });
        if !kept.is_empty() {
            let own = kept.strip_suffix("'s").or_else(|| kept.strip_suffix("’s")).unwrap_or(kept);
            let own = if CONTRACTED.contains(&own.to_lowercase().as_str()) { kept } else { own };
            let (kind, text) = classify(own);
            self.push(kind, text, self.at, self.at + own.len());
            self.at += own.len();
            if own.len() < kept.len() {
                let is = if matches!(own.to_lowercase().as_str(), "what" | "which") { "is" } else { POSSESSIVE };
                let (from, to) = (self.at, self.at + kept.len() - own.len());
                self.push(TokenKind::Word(is.to_owned()), &kept[own.len()..], from, to);
                self.at = to;
            }
        }
        self.signs(&body[kept.len()..]);
        if body.ends_with(':') {
            self.tail();
        }
    }

    /// Punctuation around a word, one token each.
    fn signs(&mut self, signs: &str) {
        for sign in signs.chars() {
            let (kind, text) = match sign {
                '!' => (TokenKind::Mark('.'), ""),
                sign if is_question(sign) => (TokenKind::Mark('.'), "?"),
                '.' | ',' | ';' | ':' => (TokenKind::Mark(sign), ""),
                _ => (TokenKind::Sign, ""),
            };
            let after = self.at + sign.len_utf8();
            self.push(kind, text, self.at, after);
            self.at = after;
        }
    }

    /// The text behind a colon, if it is one.
    fn tail(&mut self) {
        let rest = self.goal[self.at..].trim_start();
        let sentence = self
            .tokens
            .iter()
            .rev()
            .skip(1)
            .take(SENTENCE_TOKENS_MAX)
            .take_while(|t| !matches!(t.kind, TokenKind::Mark('.' | '\n' | ';')));
        let speaks = sentence.filter_map(GoalToken::word).any(|word| !lexicon::acts(word).is_empty());
        let quoted = QUOTES.iter().any(|(open, _)| rest.starts_with(open)) || rest.starts_with(['{', '[']);
        let first = rest.split_whitespace().next().unwrap_or_default().trim_end_matches([',', ';', '.']);
        let address = matches!(
            classify(first).0,
            TokenKind::Email | TokenKind::Url | TokenKind::Object | TokenKind::Secret | TokenKind::Channel
        );
        let label = lexicon::is_label(first.trim_end_matches(':')) && {
            let behind = rest[first.len()..].trim_start();
            first.ends_with(':') || QUOTES.iter().any(|(open, _)| behind.starts_with(open))
        };
        if rest.is_empty() || !speaks || quoted || address || label {
            return;
        }
        let start = self.goal.len() - rest.len();
        let text = rest[..next_label(rest)].trim_end_matches([',', ';', '\n', ' ']);
        let end = start + text.len();
        self.push(TokenKind::Text, text, start, end);
        self.at = end;
    }
}

/// Whether a punctuation mark ends a question.
const fn is_question(sign: char) -> bool {
    matches!(sign, '?' | '？' | '؟' | '⁇' | '⁈' | '⁉' | '‽')
}

/// Where `, body:` or the like begins, if a text is followed by one.
fn next_label(text: &str) -> usize {
    let begins = |(at, sign): (usize, &str)| {
        let rest = text[at + sign.len()..].trim_start();
        let (word, _) = rest.split_once(':')?;
        let word = word.rsplit(' ').next().filter(|_| word.split_whitespace().count() <= 2)?;
        lexicon::is_label(&word.to_lowercase()).then_some(at)
    };
    text.match_indices([',', ';', '\n']).find_map(begins).unwrap_or(text.len())
}

/// The shape of a chunk without spaces, and its text without punctuation.
fn classify(chunk: &str) -> (TokenKind, &str) {
    if let Some((scheme, rest)) = chunk.split_once("://") {
        return match (scheme.to_ascii_lowercase().as_str(), rest.is_empty()) {
            ("http" | "https", false) => (TokenKind::Url, chunk),
            ("s3", false) => (TokenKind::Object, rest),
            ("secret", false) => (TokenKind::Secret, chunk),
            ("cas", false) => (TokenKind::Artifact, chunk),
            _ => (TokenKind::Word(chunk.to_lowercase()), chunk),
        };
    }
    let bare = chunk.strip_prefix("mailto:").unwrap_or(chunk);
    match bare.split_once('@') {
        Some(("", handle)) if !handle.is_empty() && !handle.contains('@') => return (TokenKind::Handle, handle),
        Some((name, host)) if !name.is_empty() && host.contains('.') && !host.contains('@') => {
            return (TokenKind::Email, bare);
        }
        _ => {}
    }
    if let Some(name) = chunk.strip_prefix('#')
        && name.starts_with(char::is_alphabetic)
    {
        return (TokenKind::Channel, name);
    }
    if let Ok(number) = chunk.parse() {
        return (TokenKind::Number(number), chunk);
    }
    if is_moment(chunk) {
        return (TokenKind::Moment, chunk);
    }
    if is_id(chunk) {
        return (TokenKind::Id, chunk);
    }
    let inner = chunk.trim_matches(['.', '/']);
    let dotted = inner.contains(['.', '/']) && inner.starts_with(char::is_alphanumeric) && inner != "and/or";
    if dotted && inner.bytes().any(|b| b.is_ascii_alphabetic()) {
        return (TokenKind::Name, chunk);
    }
    match NUMBERS.iter().zip(2..).find(|(word, _)| chunk.eq_ignore_ascii_case(word)) {
        Some((_, number)) => (TokenKind::Number(number), chunk),
        None => (TokenKind::Word(chunk.to_lowercase().replace('’', "'")), chunk),
    }
}

fn is_moment(chunk: &str) -> bool {
    let date = chunk.as_bytes();
    let shaped = date.len() >= 10
        && date[..10]
            .iter()
            .enumerate()
            .all(|(at, b)| if matches!(at, 4 | 7) { *b == b'-' } else { b.is_ascii_digit() });
    let is_time = |text: &str| text.parse::<Timestamp>().is_ok();
    shaped && if date.len() == 10 { is_time(&format!("{chunk}T00:00:00Z")) } else { is_time(chunk) }
}

fn is_id(chunk: &str) -> bool {
    let hex = chunk.bytes().filter(u8::is_ascii_hexdigit).count();
    let hyphens = chunk.bytes().filter(|b| *b == b'-').count();
    hex == 32 && (hyphens == 0 || hyphens == 4) && hex + hyphens == chunk.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(goal: &str) -> Vec<(TokenKind, String)> {
        read(goal).into_iter().map(|token| (token.kind, token.text)).collect()
    }

    #[test]
    fn things_are_told_by_their_look() {
        let pairs = [
            ("ann@acme.example", TokenKind::Email),
            ("https://a.example/x?y=1", TokenKind::Url),
            ("#ops", TokenKind::Channel),
            ("@octocat", TokenKind::Handle),
            ("acme/web", TokenKind::Name),
            ("report.pdf", TokenKind::Name),
            ("2026-01-31", TokenKind::Moment),
            ("12", TokenKind::Number(12)),
            ("secret://webhook.a", TokenKind::Secret),
            ("7d5c2a10-0c1e-4f7a-9f57-3f1f7c0a9b11", TokenKind::Id),
        ];
        for (text, kind) in pairs {
            assert_eq!(read(&format!("x {text}."))[1].kind, kind, "{text}");
        }
    }

    #[test]
    fn a_quoted_text_is_one_piece_and_an_apostrophe_ends_none() {
        assert_eq!(kinds("say 'it's fine, then'")[1], (TokenKind::Text, "it's fine, then".to_owned()));
        assert_eq!(kinds("don't “a. b”")[1], (TokenKind::Text, "a. b".to_owned()));
        assert_eq!(kinds("a \"b")[1].0, TokenKind::Sign);
    }

    #[test]
    fn a_quote_within_quotes_and_numbers_within_a_line() {
        assert_eq!(kinds(r#"say "a \"b\" c" now"#)[1], (TokenKind::Text, r#"a "b" c"#.to_owned()));
        let marks = |goal: &str| kinds(goal).iter().filter(|(kind, _)| *kind == TokenKind::Mark('\n')).count();
        assert_eq!((marks("1. get x 2. put y 3) go"), marks("get x 2. put y")), (3, 0));
        assert_eq!(kinds("2026-13-45")[0].0, TokenKind::Word("2026-13-45".to_owned()));
    }

    #[test]
    fn every_sign_is_a_part_of_one_token() {
        let goals = [
            "(post) \"x\", 'y' to <#ops>… — now?!",
            "a \"\" b “ c” ‘d «e» ` f",
            "1. get acme/web's x\n- what's it: y, z;\n2) [1, 2 {\"a\": 1} s3://b/k.",
            "say: the end, title: x;\n",
        ];
        for goal in goals {
            let mut reached = 0;
            for token in read(goal) {
                assert!(token.start >= reached, "{goal}: {token:?}");
                assert!(goal[reached..token.start].trim().is_empty(), "{goal}: {:?}", &goal[reached..token.start]);
                reached = token.end;
            }
            assert!(goal[reached..].trim().is_empty(), "{goal}: {:?}", &goal[reached..]);
        }
    }

    #[test]
    fn a_colon_behind_a_verb_begins_a_text() {
        assert_eq!(kinds("sum up: one, two. Then three.").last().unwrap().1, "one, two. Then three.");
        assert!(kinds("mail to: ann@acme.example, bob@acme.example").iter().all(|(kind, _)| *kind != TokenKind::Text));
        assert!(kinds("in acme/web: open an issue").iter().all(|(kind, _)| *kind != TokenKind::Text));
    }
}
