//! PEM documents (RFC 7468), as far as keys need them: one document, no headers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Characters of a line of Base64.
const LINE: usize = 64;

/// The label and the content of a document. `None` if the text is anything else or anything more.
pub(super) fn read(text: &str) -> Option<(&str, Vec<u8>)> {
    let rest = text.trim().strip_prefix("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (content, end) = rest.split_once("-----END ")?;
    if end.strip_suffix("-----")? != label {
        return None;
    }
    let content: String = content.split_ascii_whitespace().collect();
    Some((label, STANDARD.decode(content).ok()?))
}

pub(super) fn write(label: &str, content: &[u8]) -> String {
    let content = STANDARD.encode(content);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = content.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_that_was_written_is_read() {
        for length in [0, 1, 44, 47, 48, 49, 200] {
            let content: Vec<u8> = (0..length).collect();
            let text = write("SOME KEY", &content);
            assert!(text.lines().all(|line| line.len() <= LINE), "{text}");
            assert_eq!(read(&text), Some(("SOME KEY", content)));
        }
    }

    #[test]
    fn what_is_not_one_document_is_not_read() {
        let text = write("KEY", b"abc");
        for wrong in [
            "",
            "YWJj",
            "-----BEGIN KEY-----",
            &text.replace("END KEY", "END"),
            &text.replace("YWJj", "YWJ"),
            &format!("{text}{text}"),
            &format!("x{text}"),
            &text.replace("YWJj", "Proc-Type: 4,ENCRYPTED\n\nYWJj"),
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
