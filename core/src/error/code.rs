//! The table of error codes.
//!
//! One line per code: spelling, class (one of six), whether a retry may succeed, HTTP status, title. Several
//! specifications define their own code for the same thing. Those codes stay separate, because each surface keeps its
//! own; [`EQUIVALENTS`] lists them.

use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorType {
    /// A skill ran and failed.
    SkillError,
    /// The input is not valid.
    ValidationError,
    /// A resource is exhausted, locked or too slow.
    ResourceError,
    /// An external service failed.
    ExternalServiceError,
    /// A policy forbids the action.
    PolicyViolationError,
    SystemError,
}

impl ErrorType {
    pub const ALL: &'static [Self] = &[
        Self::SkillError,
        Self::ValidationError,
        Self::ResourceError,
        Self::ExternalServiceError,
        Self::PolicyViolationError,
        Self::SystemError,
    ];

    /// The name on the wire.
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

    /// Whether operators are alerted: for internal errors and policy violations.
    #[must_use]
    pub const fn is_alerting(self) -> bool {
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

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            #[must_use]
            pub const fn error_type(self) -> ErrorType {
                match self { $(Self::$variant => ErrorType::$class),* }
            }

            /// Whether sending the same request again may succeed.
            #[must_use]
            pub const fn retryable(self) -> bool {
                match self { $(Self::$variant => codes!(@ $retry)),* }
            }

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
    /// A document does not match its schema.
    SchemaInvalid "SCHEMA_INVALID" ValidationError final 400 "The document does not match its schema";
    /// The request has no valid credential.
    Unauthenticated "UNAUTHENTICATED" ValidationError final 401 "No valid credential";
    /// A signature does not match the signed content.
    SignatureInvalid "SIGNATURE_INVALID" PolicyViolationError final 401 "The signature is not valid";
    /// An envelope or a link has expired.
    ExpiredTtl "EXPIRED_TTL" ValidationError final 401 "The request or link has expired";
    /// The actor lacks a scope or role, is disabled, or is not allowed for another reason.
    RbacForbidden "RBAC_FORBIDDEN" PolicyViolationError final 403 "The actor is not permitted to do this";
    /// A policy rule denies the action.
    PolicyDenied "POLICY_DENIED" PolicyViolationError final 403 "A policy refuses this";
    /// A swarm policy denies the action.
    PolicyViolation "POLICY_VIOLATION" PolicyViolationError final 403 "A policy was violated";
    /// The resource does not exist, or the caller may not see it.
    NotFound "NOT_FOUND" ValidationError final 404 "Not found";
    /// The path exists, but not with this method.
    MethodNotAllowed "METHOD_NOT_ALLOWED" ValidationError final 405 "Method not allowed";
    /// The idempotency key was already used, by a retry or by a different request.
    ConflictIdempotency "CONFLICT_IDEMPOTENCY" ValidationError final 409 "The idempotency key is already used";
    /// A concurrent change won.
    OccConflict "OCC_CONFLICT" ResourceError retry 409 "The record was changed concurrently";
    /// The current state does not allow the transition.
    InvalidTransition "INVALID_TRANSITION" ValidationError final 409 "The current state does not allow this";
    /// Somebody cancelled the run.
    Cancelled "CANCELLED" ValidationError final 409 "The run was cancelled";
    /// A replay reached a node that the original run never completed.
    NotRecorded "NOT_RECORDED" ValidationError final 409 "No recorded result to replay";
    /// The approval covers something other than what would run now.
    StaleApproval "STALE_APPROVAL" ValidationError final 409 "The approval is stale";
    /// A worker no longer holds the call that it reports about.
    LeaseLost "LEASE_LOST" ValidationError final 409 "The lease is no longer held";
    /// Another process has locked the data folder.
    DataDirLocked "DATA_DIR_LOCKED" ResourceError retry 409 "The data folder is in use by another process";
    /// The resource existed and has been used up or has expired.
    Gone "GONE" ValidationError final 410 "No longer available";
    /// The body arrived too slowly.
    BodyTimeout "BODY_TIMEOUT" ResourceError retry 408 "The body arrived too slowly";
    /// The body or a part of it is too large.
    PayloadTooLarge "PAYLOAD_TOO_LARGE" ValidationError final 413 "The payload is too large";
    /// The media type of the body is not accepted here.
    UnsupportedMediaType "UNSUPPORTED_MEDIA_TYPE" ValidationError final 415 "The media type is not supported";
    /// The arguments match the schema but refer to something invalid.
    MalformedArgs "MALFORMED_ARGS" ValidationError final 422 "The arguments are malformed";
    /// The values break a domain rule.
    ValidationFailed "VALIDATION_FAILED" ValidationError final 422 "The values are not valid";
    /// The input of a skill is not valid.
    ValidationError "VALIDATION_ERROR" ValidationError final 422 "The input is not valid";
    /// The actor exceeded its rate limit.
    RateLimited "RATE_LIMITED" ResourceError retry 429 "Too many requests";
    Internal "INTERNAL" SystemError final 500 "Internal error";
    /// The configuration is not valid.
    ConfigInvalid "CONFIG_INVALID" ValidationError final 500 "The configuration is not valid";
    /// The ledger was tampered with or damaged.
    LedgerBroken "LEDGER_BROKEN" SystemError final 500 "The ledger does not verify";
    /// An external service returned an error.
    ExternalServiceError "EXTERNAL_SERVICE_ERROR" ExternalServiceError retry 502 "An external service failed";
    /// An external service cannot be reached.
    ExternalServiceUnavailable "EXTERNAL_SERVICE_UNAVAILABLE" ExternalServiceError retry 503 "An external service is unavailable";
    /// A tool is unavailable.
    ToolUnavailable "TOOL_UNAVAILABLE" ExternalServiceError retry 503 "The tool is not available";
    /// The record store or the blob store is unreachable or cannot write.
    StoreUnavailable "STORE_UNAVAILABLE" SystemError retry 503 "The store is not available";
    /// The database has a different schema version than this process.
    SchemaMismatch "SCHEMA_MISMATCH" SystemError final 503 "The database has another schema version";
    /// The store is behind its marks or was restored. All changes are refused until an operator resumes it.
    StoreHeld "STORE_HELD" SystemError final 503 "The store is held until an operator resumes it";
    /// Stored data is damaged.
    StoreDamaged "STORE_DAMAGED" SystemError final 503 "The store is damaged";
    /// The record store is unusable until an operator changes something.
    StoreUnusable "STORE_UNUSABLE" SystemError final 503 "The store is unusable until it is repaired";
    /// The change was sent, and it is unknown whether it took effect.
    OutcomeUnknown "OUTCOME_UNKNOWN" SystemError final 503 "The outcome is unknown";
    /// The process is running, but a dependency is not ready.
    NotReady "NOT_READY" ResourceError retry 503 "Not ready";
    /// Too many requests are waiting.
    Overloaded "OVERLOADED" ResourceError retry 503 "Too many requests are waiting";
    /// The response took longer than allowed.
    RequestTimeout "REQUEST_TIMEOUT" ResourceError retry 503 "The request took too long";
}

impl Code {
    /// Parses a code from its spelling.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == text)
    }

    /// The path of its documentation page, relative to the server.
    #[must_use]
    pub fn page(self) -> String {
        format!("/docs/errors/{}", self.as_str())
    }

    /// The equivalent codes of other surfaces.
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

/// Codes of different specifications that mean the same thing.
#[derive(Clone, Copy, Debug)]
pub struct EquivalentCodes {
    pub meaning: &'static str,
    /// One code per surface.
    pub codes: &'static [Code],
}

/// Codes that mean the same thing, so that a client of one surface can understand the others.
pub static EQUIVALENTS: &[EquivalentCodes] = &[
    EquivalentCodes {
        meaning: "the input is not valid",
        codes: &[Code::SchemaInvalid, Code::ValidationFailed, Code::ValidationError],
    },
    EquivalentCodes { meaning: "a policy forbids the action", codes: &[Code::PolicyDenied, Code::PolicyViolation] },
    EquivalentCodes {
        meaning: "an external service is unavailable or failing",
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
            ErrorType::ALL.iter().filter(|class| class.is_alerting()).map(|class| class.as_str()).collect();
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
