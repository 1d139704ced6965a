//! Words of actors on the wire.

use crate::wire::words;
use chimera_core::access::{EntrySource, Kind, Level, SigningKeyStanding};

words! {
    /// How freely a run may act, from L0 (every step waits for approval) to L3 (runs without notification).
    pub(crate) AutonomyLevel from Level {
        Ask = "L0_Ask",
        Draft = "L1_Draft",
        ExecuteNotify = "L2_ExecuteNotify",
        ExecuteSilent = "L3_ExecuteSilent",
    }

    /// Kind of an actor. Only people decide approvals.
    pub(crate) ActorKind from Kind {
        Human = "human",
        Service = "service",
    }

    /// Where an actor's entry comes from.
    pub(crate) ActorSource from EntrySource {
        None = "none",
        Shipped = "shipped",
        Config = "config",
        Registry = "registry",
    }

    /// What a signing key counts as.
    pub(crate) SigningKeyStatus from SigningKeyStanding {
        Valid = "valid",
        Revoked = "revoked",
        NotYetValid = "not_yet_valid",
        Expired = "expired",
    }
}
