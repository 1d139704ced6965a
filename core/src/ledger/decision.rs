//! Governance decisions, and how the specifications' terms map to them.
//!
//! The specifications use four vocabularies for verdicts; `audit_logs` has one. The original term is kept in the
//! entry's event type and in the metadata.

use crate::words::words;

words! {
    /// `audit_logs.event_type`
    EventType {
        /// An authorization decision.
        PolicyEvaluation = "policy_evaluation",
        /// A decision by a person.
        ApprovalWorkflow = "approval_workflow",
        /// A boundary violation, or a component failure.
        BoundaryEnforcement = "boundary_enforcement",
        /// An output check.
        OutputValidation = "output_validation",
    }
}

words! {
    /// `audit_logs.decision_outcome`
    Outcome {
        Approved = "approved",
        Rejected = "rejected",
        /// The decision was escalated or is pending.
        Deferred = "deferred",
        Error = "error",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionSource {
    Intent,
    Access,
    Policy,
    Approval,
    /// Sandbox isolation.
    Sandbox,
    Header,
    /// Tenant isolation.
    Tenant,
    /// An internal error.
    System,
    Output,
}

impl DecisionSource {
    #[must_use]
    pub const fn event_type(self) -> EventType {
        match self {
            Self::Intent | Self::Access | Self::Policy => EventType::PolicyEvaluation,
            Self::Approval => EventType::ApprovalWorkflow,
            Self::Sandbox | Self::Header | Self::Tenant | Self::System => EventType::BoundaryEnforcement,
            Self::Output => EventType::OutputValidation,
        }
    }

    /// The name in the metadata.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Intent => "intent",
            Self::Access => "access",
            Self::Policy => "policy",
            Self::Approval => "approval",
            Self::Sandbox => "sandbox",
            Self::Header => "header",
            Self::Tenant => "tenant",
            Self::System => "system",
            Self::Output => "output",
        }
    }
}

impl Outcome {
    /// Maps the verdict of a specification to an outcome.
    #[must_use]
    pub fn from_verdict(word: &str) -> Option<Self> {
        Some(match word {
            "approve" | "approved" | "allow" | "allowed" | "accepted" => Self::Approved,
            "reject" | "rejected" | "deny" | "denied" | "request_changes" | "expired" => Self::Rejected,
            "escalate" | "escalated" | "pending" | "deferred" => Self::Deferred,
            "error" | "failed" | "failure" => Self::Error,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CONTENT-086
    #[test]
    fn every_source_of_decisions_has_one_of_the_four_event_types() {
        let words: Vec<_> = EventType::ALL.iter().map(|event| event.as_str()).collect();
        assert_eq!(words, ["policy_evaluation", "approval_workflow", "boundary_enforcement", "output_validation"]);
        assert_eq!(DecisionSource::Intent.event_type(), DecisionSource::Policy.event_type());
        assert_eq!(DecisionSource::Approval.event_type().as_str(), "approval_workflow");
        assert_eq!(DecisionSource::Tenant.event_type().as_str(), "boundary_enforcement");
        assert_eq!(DecisionSource::Output.event_type().as_str(), "output_validation");
    }

    /// CONTENT-087
    #[test]
    fn every_documents_verdict_has_one_of_the_four_outcomes() {
        let words: Vec<_> = Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
        assert_eq!(words, ["approved", "rejected", "deferred", "error"]);
        for (verdict, outcome) in [
            ("approve", Outcome::Approved),
            ("reject", Outcome::Rejected),
            ("denied", Outcome::Rejected),
            ("request_changes", Outcome::Rejected),
            ("expired", Outcome::Rejected),
            ("escalate", Outcome::Deferred),
            ("pending", Outcome::Deferred),
            ("failed", Outcome::Error),
        ] {
            assert_eq!(Outcome::from_verdict(verdict), Some(outcome), "{verdict}");
        }
        assert_eq!(Outcome::from_verdict("perhaps"), None);
        assert!(Outcome::ALL.iter().all(|outcome| Outcome::from_verdict(outcome.as_str()) == Some(*outcome)));
    }
}
