//! The risk score of a plan and the table of factors that add to it.
//!
//! One row per factor: its wire name, its points per occurrence, and how often it counts in one
//! plan. The last number bounds the list of reasons; the score is always the sum of their points.
//! `act::risk` detects the factors.

use crate::limits::RISK_REASONS_MAX;
use crate::tool::Risk;
use serde::{Deserialize, Serialize};

/// The lowest score of medium risk.
pub const MEDIUM_FROM: u32 = 35;
/// The lowest score of high risk.
pub const HIGH_FROM: u32 = 60;

/// A risk score with its reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    /// The sum of the reasons' points.
    pub score: u32,
    /// In plan order.
    pub reasons: Vec<Reason>,
}

/// One occurrence of a factor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    pub factor: Factor,
    /// A JSON pointer into the plan.
    pub pointer: String,
    pub points: u32,
}

impl Score {
    /// The risk class of the score.
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
        /// A factor that makes a plan risky.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Factor { $(#[doc = $doc] #[serde(rename = $word)] $variant),* }

        impl Factor {
            /// Every factor, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name on the wire and in the ledger.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            /// A one-sentence description.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $doc.trim_ascii()),* }
            }

            /// The points that each occurrence adds.
            #[must_use]
            pub const fn points(self) -> u32 {
                match self { $(Self::$variant => $points),* }
            }

            /// The maximum number of occurrences that count in one plan.
            #[must_use]
            pub const fn times(self) -> u32 {
                match self { $(Self::$variant => $times),* }
            }
        }
    };
}

factors! {
    /// A step reads from an external system.
    ExternalRead = "external_read", 5, 12;
    /// A step writes to an external system.
    ExternalWrite = "external_write", 15, 12;
    /// A tool without external effects declares that it calls an API.
    ExternalApi = "external_api", 5, 12;
    /// A tool can do some harm.
    MediumTool = "medium_risk_tool", 10, 12;
    /// A tool can do much harm.
    HighTool = "high_risk_tool", 35, 12;
    /// The tool is unknown, so it may do anything.
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
    /// A national identification number.
    NationalId = "pii_national_id", 20, 4;
    /// Text that is encoded too many times, too long or too deeply nested to scan.
    Unread = "unreadable_input", 15, 4;
    /// An input too large for a person to read in full.
    LargeInput = "large_input", 5, 4;
    /// An input as large as a document collection.
    HugeInput = "huge_input", 15, 4;
    /// Each step after the first one.
    Steps = "steps", 1, 9;
    /// More steps than may run without a person.
    ManySteps = "many_steps", 35, 1;
    /// A value comes from an earlier step and is not known yet.
    DataFlow = "data_flow", 2, 8;
    /// A step takes values from more than one earlier step.
    Join = "join", 3, 4;
    /// The output of an earlier step is sent to an external system unreviewed.
    DataLeaves = "data_leaves", 6, 4;
}

pub(crate) const FACTORS: usize = Factor::ALL.len();

// The reasons of any plan fit the limit.
const _: () = {
    let (mut sum, mut at) = (0, 0);
    while at < FACTORS {
        sum += Factor::ALL[at].times();
        at += 1;
    }
    assert!(sum as usize <= RISK_REASONS_MAX);
};
