//! A risk score as runs keep it and people are shown it, and the factors that it counts.
//!
//! One row per factor: its word, its points each time, and how often it counts in one plan. The
//! last number bounds the list of reasons; the score is always the sum of their points. How factors
//! are found stands in `act::risk`.

use crate::limits::RISK_REASONS_MAX;
use crate::tool::Risk;
use serde::{Deserialize, Serialize};

/// From this score on a plan is of medium risk.
pub const MEDIUM_FROM: u32 = 35;
/// From this score on a plan is of high risk.
pub const HIGH_FROM: u32 = 60;

/// How risky something is, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// The sum of the reasons' points.
    pub score: u32,
    /// What was found, in the order of the plan.
    pub reasons: Vec<Reason>,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What.
    pub factor: Factor,
    /// Where in the plan, as a JSON pointer.
    pub pointer: String,
    /// How much it adds.
    pub points: u32,
}

impl Score {
    /// The score in one word.
    #[must_use]
    pub const fn band(&self) -> Risk {
        match self.score {
            HIGH_FROM.. => Risk::High,
            MEDIUM_FROM.. => Risk::Medium,
            _ => Risk::Low,
        }
    }
}

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
pub(crate) const FACTORS: usize = Factor::ALL.len();

// However a plan is made, its reasons fit.
const _: () = {
    let (mut sum, mut at) = (0, 0);
    while at < FACTORS {
        sum += Factor::ALL[at].times();
        at += 1;
    }
    assert!(sum as usize <= RISK_REASONS_MAX);
};
