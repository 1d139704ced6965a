//! Destructive shell and database commands.

use super::destructive::{eq_ignore_case, skip_gap, starts_with_ignore_case};
use super::text::WordRun;
use crate::limits;

/// Commands that are always destructive.
const ALWAYS_DESTRUCTIVE: [&str; 11] = [
    "flushall",
    "flushdb",
    "mkfs",
    "wipefs",
    "rmtree",
    "rimraf",
    "deltree",
    "dropdatabase",
    "deletemany",
    "deleteone",
    "xp_cmdshell",
];
/// Commands that are destructive with this argument.
const DESTRUCTIVE_WITH_ARGUMENT: [(&str, &str); 14] = [
    ("del", "/s"),
    ("del", "/f"),
    ("del", "/q"),
    ("rd", "/s"),
    ("rmdir", "/s"),
    ("format", "c:"),
    ("reset", "--hard"),
    ("push", "--force"),
    ("push", "-f"),
    ("clean", "-f"),
    ("clean", "-xf"),
    ("system", "prune"),
    ("volume", "prune"),
    ("dd", "if="),
];

/// Whether a destructive command begins with this word.
pub(super) fn is_destructive(bytes: &[u8], run: WordRun) -> bool {
    let word = &bytes[run.start..run.end];
    match word[0] | 0x20 {
        b'r' if eq_ignore_case(word, "rm") => is_destructive_rm(bytes, run.end),
        b'r' if eq_ignore_case(word, "remove") && starts_with_ignore_case(&bytes[run.end..], "-item") => {
            let line = &bytes[run.end..bytes.len().min(run.end + limits::RISK_COMMAND_BYTES_MAX)];
            let options = line.split(|byte| matches!(byte, b'\n' | b';' | b'|')).next().unwrap_or_default();
            options
                .split(u8::is_ascii_whitespace)
                .any(|option| starts_with_ignore_case(option, "-recurse") || starts_with_ignore_case(option, "-force"))
        }
        b'd' | b'f' | b'm' | b'w' | b'r' | b'x' | b'p' | b'c' | b's' | b'v' => {
            let first = word[0] | 0x20;
            ALWAYS_DESTRUCTIVE.iter().any(|alone| alone.as_bytes()[0] == first && eq_ignore_case(word, alone))
                || DESTRUCTIVE_WITH_ARGUMENT.iter().any(|(command, option)| {
                    command.as_bytes()[0] == first && eq_ignore_case(word, command) && {
                        let from = skip_gap(bytes, run.end);
                        from > run.end && starts_with_ignore_case(&bytes[from..], option)
                    }
                })
        }
        _ => false,
    }
}

/// Whether `rm` is recursive or forced, or is given a path.
fn is_destructive_rm(bytes: &[u8], end: usize) -> bool {
    let mut at = skip_gap(bytes, end);
    if at == end {
        return false;
    }
    while bytes.get(at) == Some(&b'-') {
        let option = &bytes[at..];
        let option =
            &option[..option.iter().position(|b| b.is_ascii_whitespace() || *b == b'$').unwrap_or(option.len())];
        let long = option.starts_with(b"--");
        let dangerous = if long {
            ["--recursive", "--force", "--no-preserve-root"].iter().any(|name| starts_with_ignore_case(option, name))
        } else {
            option.iter().any(|letter| matches!(letter, b'r' | b'R' | b'f'))
        };
        if dangerous {
            return true;
        }
        let next = skip_gap(bytes, at + option.len());
        if next == at {
            return false;
        }
        at = next;
    }
    bytes.get(at).is_some_and(|byte| matches!(byte, b'/' | b'~' | b'*' | b'.' | b'$'))
}
