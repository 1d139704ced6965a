//! The reference of limits says what the code says.
//!
//! `UPDATE_DOCS=1 ./test tidy::limits` writes the page anew.

use super::tree;

const SOURCE: &str = "core/src/limits.rs";
const PAGE: &str = "docs/reference/limits.md";

struct Limit {
    name: String,
    value: String,
    doc: String,
}

/// Every public constant with its doc comment.
fn limits(source: &str) -> Vec<Limit> {
    let (mut limits, mut doc) = (Vec::new(), Vec::new());
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if let Some((name, rest)) = line.strip_prefix("pub const ").and_then(|rest| rest.split_once(':')) {
            let value = rest.split_once('=').map_or("", |(_, value)| value.trim().trim_end_matches(';'));
            limits.push(Limit { name: name.to_owned(), value: readable(value), doc: doc.join(" ") });
            doc.clear();
        } else {
            doc.clear();
        }
    }
    limits
}

/// A product of whole numbers as one number with its thousands apart; anything else as written.
fn readable(value: &str) -> String {
    let factors = value.split('*').map(|factor| factor.trim().replace('_', "").parse::<u64>());
    let Ok(product) = factors.collect::<Result<Vec<_>, _>>().map(|factors| factors.iter().product::<u64>()) else {
        return format!("`{value}`");
    };
    let digits = product.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn page(limits: &[Limit]) -> String {
    let mut page = String::from(
        "# Limits\n\nEvery queue, page, payload and retry has a limit. This page is made from \
         [limits.rs](../../core/src/limits.rs) and compared with it by a test.\n\n\
         | limit | value | what it bounds |\n|---|---:|---|\n",
    );
    for limit in limits {
        page.push_str(&format!("| `{}` | {} | {} |\n", limit.name, limit.value, limit.doc.replace('|', "\\|")));
    }
    page
}

#[test]
fn the_reference_lists_every_limit() {
    let limits = limits(tree::text(SOURCE));
    assert!(!limits.is_empty() && limits.iter().all(|limit| !limit.doc.is_empty()));
    let wanted = page(&limits);
    let path = tree::root().join(PAGE);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == wanted, "{PAGE} differs from {SOURCE}: run `UPDATE_DOCS=1 ./test tidy::limits`. Wanted:\n{wanted}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_read_with_their_words() {
        let source = "//! Head.\n\n/// Bytes of a body\n/// at the most.\npub const BODY: usize = 2 * 1_024 * 1024;\nconst HIDDEN: u8 = 1;\n/// Wait.\npub const WAIT: Duration = Duration::from_secs(1);\n";
        let found: Vec<(String, String, String)> =
            limits(source).into_iter().map(|limit| (limit.name, limit.value, limit.doc)).collect();
        let expected =
            [("BODY", "2,097,152", "Bytes of a body at the most."), ("WAIT", "`Duration::from_secs(1)`", "Wait.")];
        assert_eq!(found, expected.map(|(name, value, doc)| (name.to_owned(), value.to_owned(), doc.to_owned())));
    }

    #[test]
    fn a_page_has_a_line_for_each() {
        let limit = Limit { name: "A".into(), value: "1".into(), doc: "x | y".into() };
        assert!(page(&[limit]).ends_with("| `A` | 1 | x \\| y |\n"));
    }
}
