//! Why somebody may not decide about an approval.

/// Why somebody may not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotDecider {
    /// A workflow, a service, an agent.
    NotAPerson,
    /// The registry says that they do nothing any more.
    Disabled,
    /// They belong to another tenant.
    OtherTenant,
    /// They decide about their own runs only.
    LacksScope,
    /// They asked for it, and somebody else must decide.
    Requester,
    /// They have the mail address of somebody who asked for it, whose name this is, so they count as one person.
    SameAsRequester(String),
    /// They act for the tenant as an operator, and somebody else than whoever asked must decide.
    ActsForTenant,
    /// It is for others, whose patterns these are.
    NotNamed(Vec<String>),
}

impl NotDecider {
    /// The word in the details of a refusal.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::NotAPerson => "not_a_person",
            Self::Disabled => "disabled",
            Self::OtherTenant => "other_tenant",
            Self::LacksScope => "lacks_scope",
            Self::Requester => "requester",
            Self::SameAsRequester(_) => "same_as_requester",
            Self::ActsForTenant => "acts_for_tenant",
            Self::NotNamed(_) => "not_named",
        }
    }

    /// What is said to them.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::NotAPerson => "only people decide about approvals".to_owned(),
            Self::Disabled => "you are disabled, and decide about nothing".to_owned(),
            Self::OtherTenant => "you belong to another tenant".to_owned(),
            Self::LacksScope => "the actor lacks the scope approvals.decide".to_owned(),
            Self::Requester => {
                "you asked for this, wrote its workflow or changed it last, and somebody else must decide: a \
                                person with the scope approvals.decide whom neither requested_by nor changed_by names"
                    .to_owned()
            }
            Self::SameAsRequester(name) => format!(
                "you have the mail address of {name}, who asked for this, wrote its workflow or changed it last, so you count \
                 as one person, and somebody else must decide"
            ),
            Self::ActsForTenant => {
                "an operator who acts for a tenant is no second pair of eyes there: a person of the tenant with the scope \
                 approvals.decide must decide"
                    .to_owned()
            }
            Self::NotNamed(approvers) => {
                format!("you are not among those who decide about this: {}", approvers.join(", "))
            }
        }
    }
}
