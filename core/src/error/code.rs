//! The table of codes.
//!
//! One line per code: its spelling, its class (one of six), whether the same request may succeed
//! when it is sent again, its HTTP status, its title. Codes of several documents that mean one
//! thing stay apart, because each surface keeps its own; [`EQUIVALENTS`] says which they are.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The class of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    /// A skill did its work and failed.
    SkillError,
    /// The input is not what was asked for.
    ValidationError,
    /// Something is used up, taken or too slow.
    ResourceError,
    /// A service outside failed.
    ExternalServiceError,
    /// A rule forbids it.
    PolicyViolationError,
    /// Chimera itself failed.
    SystemError,
}

impl ErrorType {
    /// Every class.
    pub const ALL: &'static [Self] = &[
        Self::SkillError,
        Self::ValidationError,
        Self::ResourceError,
        Self::ExternalServiceError,
        Self::PolicyViolationError,
        Self::SystemError,
    ];

    /// The word in documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SkillError => "skill_error",
            Self::ValidationError => "validation_error",
            Self::ResourceError => "resource_error",
            Self::ExternalServiceError => "external_service_error",
            Self::PolicyViolationError => "policy_violation_error",
            Self::SystemError => "system_error",
        }
    }

    /// Whether operators are alerted: for faults of our own and for broken rules.
    #[must_use]
    pub const fn alerts(self) -> bool {
        matches!(self, Self::SystemError | Self::PolicyViolationError)
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident $text:literal $class:ident $retry:ident $status:literal $title:literal;)*) => {
        /// A stable error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $text)] $variant,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Its spelling.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// Its class.
            #[must_use]
            pub const fn error_type(self) -> ErrorType {
                match self { $(Self::$variant => ErrorType::$class),* }
            }

            /// Whether the same request may succeed when it is sent again.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$variant => codes!(@ $retry)),* }
            }

            /// Its HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$variant => $status),* }
            }

            /// A short title that is the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),* }
            }
        }
    };
    (@ retry) => { true };
    (@ final) => { false };
}

codes! {
    /// A document doesn't have the shape its schema asks for.
    SchemaInvalid "SCHEMA_INVALID" ValidationError final 400 "The document does not match its schema";
    /// No valid credential came with the request.
    Unauthenticated "UNAUTHENTICATED" ValidationError final 401 "No valid credential";
    /// A signature doesn't fit what it signs.
    SignatureInvalid "SIGNATURE_INVALID" PolicyViolationError final 401 "The signature is not valid";
    /// An envelope is older than it allows, or a link is.
    ExpiredTtl "EXPIRED_TTL" ValidationError final 401 "It has expired";
    /// The actor lacks a capability or role.
    RbacForbidden "RBAC_FORBIDDEN" PolicyViolationError final 403 "The actor lacks the capability";
    /// A policy rule refuses the act.
    PolicyDenied "POLICY_DENIED" PolicyViolationError final 403 "A policy refuses this";
    /// A rule of the swarm refuses the act.
    PolicyViolation "POLICY_VIOLATION" PolicyViolationError final 403 "A policy was violated";
    /// Nothing is here, or nothing that the caller may see.
    NotFound "NOT_FOUND" ValidationError final 404 "Nothing is here";
    /// The address exists, the method doesn't.
    MethodNotAllowed "METHOD_NOT_ALLOWED" ValidationError final 405 "The method is not allowed here";
    /// The key was used before.
    ConflictIdempotency "CONFLICT_IDEMPOTENCY" ValidationError final 409 "The idempotency key was used before";
    /// Somebody else changed the record first.
    OccConflict "OCC_CONFLICT" ResourceError retry 409 "Somebody else changed the record first";
    /// The state doesn't allow the step.
    InvalidTransition "INVALID_TRANSITION" ValidationError final 409 "The state does not allow this";
    /// The run was stopped by somebody.
    Cancelled "CANCELLED" ValidationError final 409 "It was cancelled";
    /// A replay comes to a node that the run before never finished.
    NotRecorded "NOT_RECORDED" ValidationError final 409 "There is no recording of this";
    /// What was approved is not what would run.
    StaleApproval "STALE_APPROVAL" ValidationError final 409 "The approval no longer fits";
    /// Another process holds the data folder.
    DataDirLocked "DATA_DIR_LOCKED" ResourceError retry 409 "Another process uses the data folder";
    /// It was here and has been used up, or its time is over.
    Gone "GONE" ValidationError final 410 "It is not here any more";
    /// The body arrived too slowly.
    BodyTimeout "BODY_TIMEOUT" ResourceError retry 408 "The body arrived too slowly";
    /// The body or a part of it is too large.
    PayloadTooLarge "PAYLOAD_TOO_LARGE" ValidationError final 413 "The payload is too large";
    /// The body has a type that isn't taken here.
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" ValidationError final 415 "The media type is not supported";
    /// The shape is right, what it refers to isn't.
    MalformedArgs "MALFORMED_ARGS" ValidationError final 422 "The arguments make no sense";
    /// The values break a rule of the domain.
    ValidationFailed "VALIDATION_FAILED" ValidationError final 422 "The values are not valid";
    /// The input of a skill isn't valid.
    ValidationError "VALIDATION_ERROR" ValidationError final 422 "The input is not valid";
    /// The actor asks too often.
    RateLimited "RATE_LIMITED" ResourceError retry 429 "Too many requests";
    /// Chimera failed.
    Internal "INTERNAL" SystemError final 500 "Chimera failed";
    /// The configuration can't be used.
    ConfigInvalid "CONFIG_INVALID" ValidationError final 500 "The configuration is not valid";
    /// The ledger was changed outside the rules.
    LedgerBroken "LEDGER_BROKEN" SystemError final 500 "The ledger does not verify";
    /// A service outside answered with a failure.
    ExternalServiceError "EXTERNAL_SERVICE_ERROR" ExternalServiceError retry 502 "A service outside failed";
    /// A service outside can't be reached.
    ExternalServiceUnavailable "EXTERNAL_SERVICE_UNAVAILABLE" ExternalServiceError retry 503 "A service outside is not available";
    /// A tool can't be used now.
    ToolUnavailable "TOOL_UNAVAILABLE" ExternalServiceError retry 503 "The tool is not available";
    /// The record store or the blob store can't be reached or can't write.
    StoreUnavailable "STORE_UNAVAILABLE" SystemError retry 503 "The store is not available";
    /// The schema of the database is not the one that this process works with.
    SchemaMismatch "SCHEMA_MISMATCH" SystemError final 503 "The database has another schema version";
    /// The store is older than what is known of it, or was restored: nobody changes it before it is resumed.
    StoreHeld "STORE_HELD" SystemError final 503 "The store is held";
    /// What is stored is damaged.
    StoreDamaged "STORE_DAMAGED" SystemError final 503 "The store is damaged";
    /// The record store can't be used until somebody changes something about it.
    StoreUnusable "STORE_UNUSABLE" SystemError final 503 "The store can't be used as it is";
    /// The change was sent and nobody can tell whether it was made.
    OutcomeUnknown "OUTCOME_UNKNOWN" SystemError final 503 "The outcome is unknown";
    /// The process runs but a part it needs doesn't.
    NotReady "NOT_READY" ResourceError retry 503 "Not ready";
    /// Too much is waiting already.
    Overloaded "OVERLOADED" ResourceError retry 503 "Too much is waiting already";
    /// The answer took longer than allowed.
    RequestTimeout "REQUEST_TIMEOUT" ResourceError retry 503 "The request took too long";
}

impl Code {
    /// The code with this spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// The address of its page, relative to the server.
    #[must_use]
    pub fn page(self) -> String {
        format!("/docs/errors/{}", self.as_str())
    }

    /// The codes that say the same on another surface.
    pub fn equivalents(self) -> impl Iterator<Item = Self> {
        EQUIVALENTS
            .iter()
            .filter(move |row| row.codes.contains(&self))
            .flat_map(|row| row.codes.iter().copied())
            .filter(move |code| *code != self)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Codes of different documents that mean one thing.
#[derive(Clone, Copy, Debug)]
pub struct Equivalent {
    /// What they mean.
    pub meaning: &'static str,
    /// How each surface spells it.
    pub codes: &'static [Code],
}

/// Which codes mean the same. A client that knows one surface can read the others with it.
pub static EQUIVALENTS: &[Equivalent] = &[
    Equivalent {
        meaning: "the input is not what was asked for",
        codes: &[Code::SchemaInvalid, Code::ValidationFailed, Code::ValidationError],
    },
    Equivalent { meaning: "a rule forbids it", codes: &[Code::PolicyDenied, Code::PolicyViolation] },
    Equivalent {
        meaning: "something outside can't be used now",
        codes: &[Code::ToolUnavailable, Code::ExternalServiceUnavailable, Code::ExternalServiceError],
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// CONTENT-132
    #[test]
    fn every_code_has_one_of_the_six_classes_and_serialises_as_its_word() {
        let words: BTreeSet<&str> = ErrorType::ALL.iter().map(|class| class.as_str()).collect();
        assert_eq!(
            words,
            BTreeSet::from([
                "skill_error",
                "validation_error",
                "resource_error",
                "external_service_error",
                "policy_violation_error",
                "system_error",
            ])
        );
        for class in ErrorType::ALL {
            assert_eq!(serde_json::to_value(class).unwrap(), class.as_str());
        }
        for code in Code::ALL {
            assert!(ErrorType::ALL.contains(&code.error_type()), "{code}");
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    /// SWARM-126
    /// CONTENT-153
    #[test]
    fn operators_are_alerted_of_our_own_faults_and_of_broken_rules_and_of_nothing_else() {
        let alerting: Vec<_> =
            ErrorType::ALL.iter().filter(|class| class.alerts()).map(|class| class.as_str()).collect();
        assert_eq!(alerting, ["policy_violation_error", "system_error"]);
    }

    #[test]
    fn what_breaks_a_rule_is_never_worth_a_retry() {
        for code in Code::ALL.iter().filter(|code| code.error_type() == ErrorType::PolicyViolationError) {
            assert!(!code.retryable(), "{code}");
        }
        assert_eq!(Code::PolicyViolation.error_type(), ErrorType::PolicyViolationError);
        assert_eq!(Code::PolicyDenied.error_type(), ErrorType::PolicyViolationError);
    }

    #[test]
    fn the_fixed_codes_have_their_fixed_statuses() {
        let fixed = [
            (400, "SCHEMA_INVALID"),
            (401, "UNAUTHENTICATED SIGNATURE_INVALID EXPIRED_TTL"),
            (403, "RBAC_FORBIDDEN POLICY_DENIED"),
            (404, "NOT_FOUND"),
            (409, "CONFLICT_IDEMPOTENCY OCC_CONFLICT INVALID_TRANSITION STALE_APPROVAL"),
            (413, "PAYLOAD_TOO_LARGE"),
            (422, "MALFORMED_ARGS VALIDATION_FAILED"),
            (429, "RATE_LIMITED"),
            (500, "INTERNAL"),
            (503, "TOOL_UNAVAILABLE STORE_UNAVAILABLE"),
        ];
        for (status, codes) in fixed {
            for code in codes.split(' ') {
                assert_eq!(Code::parse(code).map(Code::status), Some(status), "{code}");
            }
        }
    }

    #[test]
    fn equivalent_codes_share_their_class_and_know_each_other() {
        for row in EQUIVALENTS {
            for code in row.codes {
                assert_eq!(code.error_type(), row.codes[0].error_type(), "{}", row.meaning);
                assert_eq!(code.equivalents().count(), row.codes.len() - 1);
            }
        }
        assert!(Code::SchemaInvalid.equivalents().any(|code| code == Code::ValidationError));
    }

    #[test]
    fn spellings_are_unique_and_read_back() {
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert!((400..600).contains(&code.status()));
        }
        assert_eq!(Code::parse("NO_SUCH_CODE"), None);
    }
}
