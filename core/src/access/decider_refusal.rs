//! Why an actor may not decide about an approval.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeciderRefusal {
    /// The actor is a workflow, a service or an agent.
    NotAPerson,
    /// The actor is disabled in the registry.
    Disabled,
    OtherTenant,
    /// The actor may only decide about their own runs.
    LacksScope,
    /// The actor requested it, and a second person is required.
    Requester,
    /// The actor has the mail address of a requester (named here), so both count as one person.
    SameAsRequester(String),
    /// The actor is an operator acting for the tenant, and a second person is required.
    ActsForTenant,
    /// The request names other approvers, by these patterns.
    NotNamed(Vec<String>),
}

impl DeciderRefusal {
    /// The reason in the details of a refusal.
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

    /// The message for the actor.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::NotAPerson => "only people can decide about approvals".to_owned(),
            Self::Disabled => "your actor is disabled".to_owned(),
            Self::OtherTenant => "you belong to another tenant".to_owned(),
            Self::LacksScope => "the actor lacks the scope approvals.decide".to_owned(),
            Self::Requester => {
                "you requested this, wrote its workflow or changed it last, so somebody else must decide: a person \
                 with the scope approvals.decide who is in neither requested_by nor changed_by"
                    .to_owned()
            }
            Self::SameAsRequester(name) => format!(
                "you have the same mail address as {name}, who requested this, wrote its workflow or changed it last; you \
                 count as one person, so somebody else must decide"
            ),
            Self::ActsForTenant => {
                "an operator acting for a tenant does not count as its second approver: a person of the tenant with the \
                 scope approvals.decide must decide"
                    .to_owned()
            }
            Self::NotNamed(approvers) => {
                format!("you are not an approver of this request; its approvers are: {}", approvers.join(", "))
            }
        }
    }
}
