//! What counts as risky, and how much.
//!
//! One row per factor: its word, its points each time, and how often it counts in one plan. The
//! last number bounds the list of reasons; the score is always the sum of their points.

use crate::limits::RISK_REASONS_MAX;
use serde::{Deserialize, Serialize};

macro_rules! factors {
    ($(#[doc = $doc:literal] $variant:ident = $word:literal, $points:literal, $times:literal;)*) => {
        /// Something that makes a plan risky.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Factor { $(#[doc = $doc] #[serde(rename = $word)] $variant),* }

        impl Factor {
            /// Every factor, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word in answers and in the ledger.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// What it means, in a sentence.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim_ascii()),* }
            }

            /// Points that it adds each time.
            #[must_use]
            pub const fn points(self) -> u32 {
                match self { $(Self::$variant => $points),* }
            }

            /// How often it counts in one plan.
            #[must_use]
            pub const fn times(self) -> u32 {
                match self { $(Self::$variant => $times),* }
            }
        }
    };
}

factors! {
    /// A step asks something outside.
    ExternalRead = "external_read", 5, 12;
    /// A step changes something outside.
    ExternalWrite = "external_write", 15, 12;
    /// A tool that touches nothing by itself says that it calls an API.
    ExternalApi = "external_api", 5, 12;
    /// A tool can do some harm.
    MediumTool = "medium_risk_tool", 10, 12;
    /// A tool can do much harm.
    HighTool = "high_risk_tool", 35, 12;
    /// Nobody knows the tool, so it may do anything.
    UnknownTool = "unknown_tool", 40, 4;
    /// A statement, command or request that destroys: `DROP TABLE`, `rm -rf`, the method `DELETE`.
    DestructiveOperation = "destructive_operation", 35, 8;
    /// A word that destroys, in a sentence or a name: `please delete it`, `delete_user`.
    DestructiveWord = "destructive_word", 10, 4;
    /// An e-mail address.
    Email = "pii_email", 10, 4;
    /// A telephone number.
    Phone = "pii_phone", 10, 4;
    /// The number of a payment card, with its check digit.
    Card = "pii_card", 15, 4;
    /// An international bank account number, with its check digits.
    Iban = "pii_iban", 15, 4;
    /// A number that a state gave a person.
    NationalId = "pii_national_id", 20, 4;
    /// Text that is wrapped too often, or too long or deep, to be looked through.
    Unread = "unreadable_input", 15, 4;
    /// An input that nobody reads in full any more.
    LargeInput = "large_input", 5, 4;
    /// An input of the size of a document collection.
    HugeInput = "huge_input", 15, 4;
    /// Each step after the first one.
    Steps = "steps", 1, 9;
    /// More steps than may run without a person.
    ManySteps = "many_steps", 35, 1;
    /// A value comes from an earlier step, so that nobody knows it yet.
    DataFlow = "data_flow", 2, 8;
    /// A step takes values from more than one earlier step.
    Join = "join", 3, 4;
    /// What an earlier step gives is sent outside unseen.
    DataLeaves = "data_leaves", 6, 4;
}

/// How many factors there are.
pub(super) const FACTORS: usize = Factor::ALL.len();

// However a plan is made, its reasons fit.
const _: () = {
    let (mut sum, mut at) = (0, 0);
    while at < FACTORS {
        sum += Factor::ALL[at].times();
        at += 1;
    }
    assert!(sum as usize <= RISK_REASONS_MAX);
};

/// A set of factors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found(u32);

impl Found {
    pub(super) fn add(&mut self, factor: Factor) {
        self.0 |= 1 << factor as u32;
    }

    /// Without operations that destroy.
    pub(super) const fn harmless(self) -> Self {
        Self(self.0 & !(1 << Factor::DestructiveOperation as u32) & !(1 << Factor::DestructiveWord as u32))
    }

    pub(super) const fn merge(&mut self, other: Self) {
        self.0 |= other.0;
    }

    pub(super) const fn has(self, factor: Factor) -> bool {
        self.0 & (1 << factor as u32) != 0
    }

    pub(super) fn factors(self) -> impl Iterator<Item = Factor> {
        Factor::ALL.iter().copied().filter(move |factor| self.has(*factor))
    }
}
