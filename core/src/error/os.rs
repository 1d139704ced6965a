//! Operating system errors for people: the system's own message in lower case, and the errno name.
//!
//! `io::ErrorKind` lacks a kind for many errors an operator meets. A broken disk and too many open files would both
//! read "uncategorized error", so kinds are not printed.

use std::io;

/// Errno names that Unix systems share.
const SHARED: &[(i32, &str)] = &[
    (1, "EPERM"),
    (2, "ENOENT"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (9, "EBADF"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (18, "EXDEV"),
    (19, "ENODEV"),
    (20, "ENOTDIR"),
    (21, "EISDIR"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (26, "ETXTBSY"),
    (27, "EFBIG"),
    (28, "ENOSPC"),
    (30, "EROFS"),
    (31, "EMLINK"),
    (32, "EPIPE"),
];

/// Errno names that are specific to Linux.
const LINUX: &[(i32, &str)] = &[
    (11, "EAGAIN"),
    (36, "ENAMETOOLONG"),
    (37, "ENOLCK"),
    (39, "ENOTEMPTY"),
    (40, "ELOOP"),
    (95, "EOPNOTSUPP"),
    (97, "EAFNOSUPPORT"),
    (98, "EADDRINUSE"),
    (99, "EADDRNOTAVAIL"),
    (101, "ENETUNREACH"),
    (103, "ECONNABORTED"),
    (104, "ECONNRESET"),
    (105, "ENOBUFS"),
    (107, "ENOTCONN"),
    (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"),
    (112, "EHOSTDOWN"),
    (113, "EHOSTUNREACH"),
    (116, "ESTALE"),
    (117, "EUCLEAN"),
    (122, "EDQUOT"),
];

/// Describes an operating system error, such as `input/output error (EIO)`. Never contains a path.
#[must_use]
pub fn io_reason(error: &io::Error) -> String {
    // Without an errno the message may come from anywhere and contain anything. The kind is safe.
    let Some(number) = error.raw_os_error() else { return error.kind().to_string() };
    let said = io::Error::from_raw_os_error(number).to_string();
    let words = said.split(" (os error").next().unwrap_or_default();
    let mut letters = words.chars();
    let words: String = letters.next().into_iter().flat_map(char::to_lowercase).chain(letters).collect();
    format!("{words} ({})", name(number).map_or_else(|| format!("error {number}"), str::to_owned))
}

fn name(number: i32) -> Option<&'static str> {
    let linux = if cfg!(target_os = "linux") { LINUX } else { &[] };
    SHARED.iter().chain(linux).find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_kind_is_told_in_the_systems_own_words_too() {
        for (number, words) in [
            (5, "input/output error (EIO)"),
            (24, "too many open files (EMFILE)"),
            (30, "read-only file system (EROFS)"),
            (21, "is a directory (EISDIR)"),
            (122, "disk quota exceeded (EDQUOT)"),
        ] {
            assert_eq!(io_reason(&io::Error::from_raw_os_error(number)), words);
        }
        assert_eq!(io_reason(&io::Error::from_raw_os_error(120)), "is a named type file (error 120)");
    }

    #[test]
    fn words_that_may_hold_anything_are_left_out() {
        let error = io::Error::new(io::ErrorKind::InvalidData, "/home/somebody/secret");
        assert_eq!(io_reason(&error), "invalid data");
    }
}
