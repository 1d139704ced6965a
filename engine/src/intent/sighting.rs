//! When the content of an envelope was first seen.
//!
//! Only envelopes without `issued_at` need it: their age counts from there. The sighting is stored with the first
//! verdict about a valid signature, so nobody but the holder of the key makes one.

use super::router::IntentRouter;
use crate::error::EngineError;
use crate::rows;
use chimera_core::intent::tables::{INTENT_SIGHTINGS, IntentSightingRow, intent_sightings};
use chimera_core::intent::{Envelope, sighting_kept_until};
use chimera_core::json::Digest32;
use chimera_core::record::{Insert, InvalidTx, Scope, StoredRow};
use chimera_core::time::Timestamp;

#[derive(Clone, Debug, Default)]
pub(super) enum Sighting {
    /// The envelope says when it was issued, or its signature is not valid.
    #[default]
    NotNeeded,
    Known(Timestamp),
    /// It is seen for the first time.
    First {
        digest: Digest32,
        at: Timestamp,
        kept_until: Timestamp,
    },
}

impl Sighting {
    pub(super) async fn look(
        router: &IntentRouter,
        envelope: &Envelope,
        key_expires: Option<Timestamp>,
    ) -> Result<Self, EngineError> {
        if envelope.issued_at.is_some() {
            return Ok(Self::NotNeeded);
        }
        let digest = envelope.digest();
        let select = IntentSightingRow::select(Scope::System).with(intent_sightings::envelope_digest, digest.to_vec());
        let row: Option<IntentSightingRow> = rows::find(router.actions.access().records(), select).await?;
        let at = router.now();
        let first = || Self::First { digest, at, kept_until: sighting_kept_until(envelope, at, key_expires) };
        Ok(row.map_or_else(first, |row| Self::Known(row.first_seen_at)))
    }

    pub(super) const fn first_seen(&self) -> Option<Timestamp> {
        match self {
            Self::NotNeeded => None,
            Self::Known(at) | Self::First { at, .. } => Some(*at),
        }
    }

    /// The row of a first sighting.
    pub(super) fn insert(&self) -> Result<Option<Insert>, InvalidTx> {
        let Self::First { digest, at, kept_until } = self else { return Ok(None) };
        let cells = vec![
            (intent_sightings::envelope_digest, digest.to_vec().into()),
            (intent_sightings::first_seen_at, (*at).into()),
            (intent_sightings::expires_at, (*kept_until).into()),
        ];
        Insert::new(&INTENT_SIGHTINGS, cells).map(Some)
    }
}
