//! Finds destructive operations, regardless of case and spacing.
//!
//! A statement or request (`DELETE FROM`, `DrOp/**/TABLE`, the value `DELETE`, `rm -rf`) scores higher than a word in
//! a sentence or name (`please delete it`, `delete_user`). Words that merely contain one (`dropdown`, `deleted`,
//! `soft-delete`) and column or flag names (`deleted_at`, `on_delete`) do not count, nor does a bare `remove` or
//! `update`, which is routine.

use super::factor_set::FactorSet;
use super::text::{WordRun, blank_len, is_word, skip_version};
use super::{Factor, command};
use crate::limits;

/// Destructive verbs.
const VERBS: [&str; 9] = ["delete", "drop", "destroy", "truncate", "wipe", "purge", "erase", "refund", "shred"];
/// Objects of `DROP`.
const DROP_OBJECTS: [&str; 33] = [
    "table",
    "tables",
    "database",
    "databases",
    "schema",
    "index",
    "view",
    "column",
    "user",
    "role",
    "function",
    "procedure",
    "trigger",
    "sequence",
    "tablespace",
    "constraint",
    "materialized",
    "extension",
    "type",
    "domain",
    "collection",
    "keyspace",
    "partition",
    "temporary",
    "foreign",
    "external",
    "owned",
    "policy",
    "server",
    "login",
    "stream",
    "topic",
    "bucket",
];
/// Words after `DELETE` that make it a statement.
const AFTER_DELETE: [&str; 7] = ["from", "low_priority", "quick", "ignore", "top", "http", "https"];
/// Client options that are followed by a method.
const METHOD_OPTIONS: [&str; 2] = ["x", "request"];
/// Words that make the following verb an operation: `kubectl delete`, `DETACH DELETE`.
const OPERATION_CONTEXT: [&str; 14] = [
    "method",
    "detach",
    "kubectl",
    "oc",
    "helm",
    "gcloud",
    "az",
    "aws",
    "docker",
    "podman",
    "terraform",
    "tofu",
    "pulumi",
    "heroku",
];
/// Second words of names that are about a deletion.
const DELETION_ATTRIBUTES: [&str; 10] =
    ["at", "by", "on", "after", "flag", "marker", "protection", "date", "time", "policy"];
/// First words of such names.
const DELETION_CONDITIONS: [&str; 13] =
    ["on", "is", "can", "may", "no", "soft", "allow", "before", "after", "pre", "post", "auto", "pending"];
/// Maximum bytes between a word and the one it belongs to.
const GAP_BYTES_MAX: usize = 8;

/// The words of one text.
pub(super) struct WordScanner<'t> {
    bytes: &'t [u8],
    /// The text without surrounding blanks and quotes.
    start: usize,
    end: usize,
    is_name: bool,
    /// Whether `ALTER TABLE` came before.
    alters: bool,
}

impl<'t> WordScanner<'t> {
    pub(super) fn new(bytes: &'t [u8], is_name: bool) -> Self {
        let is_inside = |byte: &u8| !byte.is_ascii_whitespace() && !matches!(byte, b'"' | b'\'' | b';');
        let start = bytes.iter().position(is_inside).unwrap_or(bytes.len());
        let end = bytes.iter().rposition(is_inside).map_or(0, |last| last + 1);
        Self { bytes, start, end, is_name, alters: false }
    }

    pub(super) fn scan_word(&mut self, run: WordRun, found: &mut FactorSet) {
        let word = &self.bytes[run.start..run.end];
        let first = word[0] | 0x20;
        match first {
            b'a' => self.alters |= eq_ignore_case(word, "alter") && eq_ignore_case(self.next(run.end), "table"),
            b'd' | b't' | b'w' | b'p' | b'e' | b'r' | b's' => {
                if let Some(verb) =
                    VERBS.iter().find(|verb| verb.as_bytes()[0] == first && starts_with_ignore_case(word, verb))
                {
                    self.scan_verb(run, verb, found);
                }
            }
            _ => {}
        }
        if command::is_destructive(self.bytes, run) {
            found.add(Factor::DestructiveOperation);
        }
        if word.len() > 6 && matches!(word[word.len() - 1], b'e' | b'E' | b'y' | b'Y') && ends_in_verb(word) {
            found.add(Factor::DestructiveWord);
        }
    }

    /// Detects writing to a device: `> /dev/sda`.
    pub(super) fn scan_redirect(&self, at: usize, found: &mut FactorSet) {
        let rest = &self.bytes[skip_gap(self.bytes, at + 1)..];
        if [&b"/dev/sd"[..], b"/dev/nvme", b"/dev/hd", b"/dev/disk", b"/dev/vd"].iter().any(|d| rest.starts_with(d)) {
            found.add(Factor::DestructiveOperation);
        }
    }

    /// A word that begins with a verb.
    fn scan_verb(&self, run: WordRun, verb: &str, found: &mut FactorSet) {
        let end = run.start + verb.len();
        if end == run.end {
            if self.is_operation(run, verb) {
                found.add(Factor::DestructiveOperation);
            } else if self.is_alone(run, verb) {
                found.add(Factor::DestructiveWord);
            }
            return;
        }
        let behind = self.bytes[end];
        let camel = behind.is_ascii_uppercase() && self.bytes[end - 1].is_ascii_lowercase();
        if (behind == b'_' || camel) && names_operation(verb, &self.bytes[end + usize::from(behind == b'_')..run.end]) {
            found.add(Factor::DestructiveWord);
        }
    }

    /// Whether the verb is part of a statement, a command or a request.
    fn is_operation(&self, run: WordRun, verb: &str) -> bool {
        if run.start > 0 && self.bytes[run.start - 1] == b'-' {
            let dashes = self.bytes[..run.start].iter().rev().take_while(|byte| **byte == b'-').count();
            match run.start.checked_sub(dashes + 1).map(|at| self.bytes[at]) {
                // An option: `find -delete`, `rsync --delete`.
                Some(before) if before.is_ascii_whitespace() && verb == "delete" => return true,
                Some(before) if is_word(before) => return false,
                _ => {}
            }
        }
        let next = self.next(run.end);
        let statement = match verb {
            "delete" => {
                AFTER_DELETE.iter().any(|after| eq_ignore_case(next, after))
                    || self.has_path(run.end)
                    || self.has_where(run)
            }
            "drop" => self.alters || DROP_OBJECTS.iter().any(|object| eq_ignore_case(next, object)),
            "truncate" => eq_ignore_case(next, "table") || self.is_statement(run),
            _ => false,
        };
        statement
            || self.is_hidden(run, verb)
            || self.is_value(run, verb)
            || self.is_call(run)
            || self.follows_operator(run)
    }

    /// Whether a comment that is too long to skip follows the verb.
    fn is_hidden(&self, run: WordRun, verb: &str) -> bool {
        let behind = &self.bytes[skip_gap(self.bytes, run.end)..];
        behind.starts_with(b"/*") && matches!(verb, "delete" | "drop" | "truncate")
    }

    /// Whether the whole text is the verb: the value of a method or an action.
    fn is_value(&self, run: WordRun, verb: &str) -> bool {
        let whole = (run.start, run.end) == (self.start, self.end);
        whole && !self.is_name && matches!(verb, "delete" | "destroy" | "purge")
    }

    /// `.delete(`
    fn is_call(&self, run: WordRun) -> bool {
        self.bytes.get(run.end) == Some(&b'(') && run.start > 0 && self.bytes[run.start - 1] == b'.'
    }

    /// `kubectl delete`, `-X DELETE`, `"method":"DELETE"`
    fn follows_operator(&self, run: WordRun) -> bool {
        let before = &self.bytes[..run.start];
        let gap = before.iter().rev().take(GAP_BYTES_MAX).take_while(|byte| !is_word(**byte)).count();
        let before = &before[..before.len() - gap];
        let length = before.iter().rev().take_while(|byte| is_word(**byte)).count();
        let (rest, word) = before.split_at(before.len() - length);
        let is_option = || rest.ends_with(b"-") && METHOD_OPTIONS.iter().any(|option| eq_ignore_case(word, option));
        gap > 0 && (OPERATION_CONTEXT.iter().any(|operator| eq_ignore_case(word, operator)) || is_option())
    }

    /// `DELETE /users/7`
    fn has_path(&self, end: usize) -> bool {
        let from = skip_gap(self.bytes, end);
        from > end && self.bytes.get(from) == Some(&b'/') && self.bytes.get(from + 1).is_some_and(|byte| is_word(*byte))
    }

    /// `DELETE users WHERE`
    fn has_where(&self, run: WordRun) -> bool {
        let table = WordRun::at(self.bytes, skip_gap(self.bytes, run.end));
        table.len() > 0 && eq_ignore_case(self.next(table.end), "where")
    }

    /// `TRUNCATE users` at the start of a statement, with nothing after it but modifiers.
    fn is_statement(&self, run: WordRun) -> bool {
        let before = self.bytes[..run.start].trim_ascii_end();
        if before.last().is_some_and(|byte| *byte != b';') {
            return false;
        }
        let table = WordRun::at(self.bytes, skip_gap(self.bytes, run.end));
        let behind = &self.bytes[skip_gap(self.bytes, table.end)..];
        table.len() > 0
            && (behind.is_empty()
                || behind[0] == b';'
                || starts_with_ignore_case(behind, "cascade")
                || starts_with_ignore_case(behind, "restart"))
    }

    /// Whether the verb is a word of its own, unlike `drop-down` and `soft-delete`.
    fn is_alone(&self, run: WordRun, verb: &str) -> bool {
        let tied = |byte: Option<&u8>, far: Option<&u8>| byte == Some(&b'-') && far.is_some_and(|byte| is_word(*byte));
        let before = run.start.checked_sub(1).and_then(|at| self.bytes.get(at));
        let far = run.start.checked_sub(2).and_then(|at| self.bytes.get(at));
        if tied(before, far) {
            return false;
        }
        if tied(self.bytes.get(run.end), self.bytes.get(run.end + 1)) {
            let second = WordRun::at(self.bytes, run.end + 1);
            return names_operation(verb, &self.bytes[second.start..second.end]);
        }
        !(verb == "drop" && eq_ignore_case(self.next(run.end), "down"))
    }

    /// The next word, after blanks and comments.
    fn next(&self, end: usize) -> &'t [u8] {
        let from = skip_gap(self.bytes, end);
        let run = WordRun::at(self.bytes, from);
        if from > end { &self.bytes[run.start..run.end] } else { &[] }
    }
}

/// Whether a name that begins with this verb names an operation: `delete_user`, not `delete_at`.
fn names_operation(verb: &str, rest: &[u8]) -> bool {
    let second = &rest[..rest.iter().position(|byte| *byte == b'_').unwrap_or(rest.len())];
    match verb {
        "drop" => DROP_OBJECTS.iter().any(|object| starts_with_ignore_case(second, object)),
        "refund" | "shred" | "wipe" => false,
        _ => !second.is_empty() && !DELETION_ATTRIBUTES.iter().any(|about| eq_ignore_case(second, about)),
    }
}

/// Whether a name that ends in a verb names an operation: `user_delete`, not `on_delete`.
fn ends_in_verb(word: &[u8]) -> bool {
    let Some(at) = word.iter().rposition(|byte| *byte == b'_') else { return false };
    let first = &word[..word.iter().position(|byte| *byte == b'_').unwrap_or(at)];
    let verb = ["delete", "destroy", "truncate", "purge"].iter().any(|verb| eq_ignore_case(&word[at + 1..], verb));
    verb && !first.is_empty() && !DELETION_CONDITIONS.iter().any(|condition| eq_ignore_case(first, condition))
}

/// The position after blanks, comments, and what stands for a blank in forms and shells.
pub(super) fn skip_gap(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let skipped = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | b'+' => 1,
            0x80.. if blank_len(rest) > 0 => blank_len(rest),
            // The content of such a comment is executed.
            b'/' if rest.starts_with(b"/*!") => skip_version(rest, 0),
            b'/' if rest.starts_with(b"/*") => match find_comment_end(rest, b"*/") {
                Some(end) => end + 2,
                None => return at,
            },
            b'*' if rest.starts_with(b"*/") => 2,
            b'-' if rest.starts_with(b"-- ") || rest.starts_with(b"--\n") => match find_comment_end(rest, b"\n") {
                Some(end) => end,
                None => return at,
            },
            b'$' if rest.starts_with(b"${IFS}") => 6,
            b'$' if rest.starts_with(b"$IFS") => 4,
            _ => return at,
        };
        at += skipped;
    }
    at
}

/// The end of a comment, unless it is too long.
fn find_comment_end(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes[..bytes.len().min(limits::RISK_COMMENT_BYTES_MAX)].windows(wanted.len()).position(|window| window == wanted)
}

/// Whether a word equals this one, ignoring case.
pub(super) const fn eq_ignore_case(word: &[u8], wanted: &str) -> bool {
    word.eq_ignore_ascii_case(wanted.as_bytes())
}

/// Whether a word starts with this, ignoring case.
pub(super) fn starts_with_ignore_case(word: &[u8], wanted: &str) -> bool {
    word.len() >= wanted.len() && eq_ignore_case(&word[..wanted.len()], wanted)
}
