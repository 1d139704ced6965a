//! Short forms of ids: the first thirteen characters, or more where several ids of a list begin alike.
//!
//! Ids are time-ordered, so these name the millisecond. Commands accept a prefix of at least eight digits wherever they
//! take an id.

/// Where a UUID may end: after its second, third and fourth group, and whole.
const LENGTHS: &[usize] = &[13, 18, 23, 36];

/// The shortest form of each id that no other id of the list shares.
pub(crate) fn short_ids(ids: &[&str]) -> Vec<String> {
    let shorten = |id: &&str| {
        let fits = |length: usize| {
            let start = id.get(..length)?;
            let is_shared = ids.iter().any(|other| other != id && other.starts_with(start));
            (!is_shared).then(|| start.trim_end_matches('-').to_owned())
        };
        LENGTHS.iter().find_map(|length| fits(*length)).unwrap_or_else(|| (*id).to_owned())
    };
    ids.iter().map(shorten).collect()
}

/// The short form of one id. Text that is not a UUID with dashes stays as it is.
pub(crate) fn short_id(id: &str) -> String {
    if id.contains('-') && uuid::Uuid::parse_str(id).is_ok() { short_ids(&[id]).concat() } else { id.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chimera_core::id::IdPrefix;

    #[test]
    fn ids_are_as_short_as_they_can_be_told_apart() {
        let ids = [
            "01a1eea5-4eba-7c3f-8000-000000000001",
            "01a1eea5-4eba-7c40-8000-000000000001",
            "01a1eea5-4ebb-7c3f-8000-000000000001",
            "01a1eea5-4ebb-7c3f-8000-000000000001",
        ];
        let short = short_ids(&ids);
        assert_eq!(short, ["01a1eea5-4eba-7c3f", "01a1eea5-4eba-7c40", "01a1eea5-4ebb", "01a1eea5-4ebb"]);
        assert!(short.iter().all(|id| IdPrefix::parse(id).is_ok()));
        assert_eq!((short_id(ids[0]), short_id("admin")), ("01a1eea5-4eba".to_owned(), "admin".to_owned()));
    }
}
