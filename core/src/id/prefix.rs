//! The beginning of a UUID, as a person types it.
//!
//! Ids of rows are time-ordered: the first eight hex digits change every 65 seconds, the first twelve every
//! millisecond. The ids that begin with a prefix are a range, so an index finds them.

use crate::limits::ID_PREFIX_DIGITS_MIN;
use std::fmt;
use uuid::Uuid;

/// The first hex digits of a UUID, with or without the dashes between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdPrefix {
    lowest: Uuid,
    highest: Uuid,
    digits: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdPrefix {
    #[error("an id begins like 01a1eea5-4eba-7c3f, with hex digits and the dashes of an id, or without dashes")]
    Malformed,
    #[error("at least {ID_PREFIX_DIGITS_MIN} hex digits are required")]
    TooShort,
}

impl IdPrefix {
    /// Parses the beginning of `01a1eea5-4eba-7c3f-…` or `01a1eea54eba7c3f…`.
    pub fn parse(text: &str) -> Result<Self, InvalidIdPrefix> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) || digits.is_empty() {
            return Err(InvalidIdPrefix::Malformed);
        }
        let end = |fill: &str| {
            let rest = 32_usize.checked_sub(digits.len())?;
            Uuid::parse_str(&format!("{digits}{}", fill.repeat(rest))).ok()
        };
        let (Some(lowest), Some(highest)) = (end("0"), end("f")) else { return Err(InvalidIdPrefix::Malformed) };
        if text.contains('-') && !lowest.hyphenated().to_string().starts_with(&text.to_ascii_lowercase()) {
            return Err(InvalidIdPrefix::Malformed);
        }
        if digits.len() < ID_PREFIX_DIGITS_MIN {
            return Err(InvalidIdPrefix::TooShort);
        }
        Ok(Self { lowest, highest, digits: digits.len() })
    }

    /// The smallest and the greatest id that begin with these digits.
    #[must_use]
    pub const fn range(self) -> (Uuid, Uuid) {
        (self.lowest, self.highest)
    }

    #[must_use]
    pub fn matches(self, id: Uuid) -> bool {
        self.lowest <= id && id <= self.highest
    }
}

/// The digits without dashes.
impl fmt::Display for IdPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.*}", self.digits, self.lowest.simple().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_range_of_ids_that_begin_with_it() {
        let id = Uuid::parse_str("01a1eea5-4eba-7c3f-8000-0123456789ab").unwrap();
        for text in ["01a1eea5", "01a1eea5-", "01A1EEA5-4eba", "01a1eea54eba", &id.to_string()] {
            let prefix = IdPrefix::parse(text).unwrap();
            assert!(prefix.matches(id) && IdPrefix::parse(&prefix.to_string()) == Ok(prefix), "{text}");
        }
        assert!(!IdPrefix::parse("01a1eea5-4ebb").unwrap().matches(id));
        assert!(!IdPrefix::parse("01a1eea5-4eb9-ffff").unwrap().matches(id));
    }

    #[test]
    fn what_can_not_begin_an_id_is_refused() {
        for text in ["", "-", "publish", "01a1eea5_4eba", "01a1-eea5", "01a1eea5--4eba", "01a1eea5é", &"0".repeat(33)]
        {
            assert_eq!(IdPrefix::parse(text), Err(InvalidIdPrefix::Malformed), "{text}");
        }
        assert_eq!(IdPrefix::parse("01a1eea"), Err(InvalidIdPrefix::TooShort));
    }
}
