//! What must not be read, shared by all who write something down.
//!
//! One redactor for logs, spans, readiness and the words of failures. It knows the settings and
//! the environment from the start, and learns each further secret where it is resolved, before
//! its first use. Readers take a copy of a pointer; learning never makes a log line wait.

use chimera_api::ReadinessCheck;
use chimera_core::redact::Redactor;
use chimera_core::secret::Secret;
use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

/// A handle to the one redactor of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mask(Arc<RwLock<Arc<Redactor>>>);

impl Mask {
    /// Masks this value from now on.
    pub(crate) fn learn(&self, secret: &Secret) {
        self.change(|redactor| redactor.add_secret(secret));
    }

    /// Masks from now on the password and the other secrets that this URL carries.
    pub(crate) fn learn_url(&self, url: &str) {
        self.change(|redactor| redactor.add_url_secrets(url));
    }

    /// The text without secrets.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let redactor = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        redactor.text(text)
    }

    /// The check, whose reason and note anybody may read, without secrets.
    pub(crate) fn check(&self, check: &ReadinessCheck) -> ReadinessCheck {
        let (check, mask) = (check.clone(), self.clone());
        let (noted, noting) = (check.clone(), self.clone());
        let masked = ReadinessCheck::new(check.name, move || {
            let (check, mask) = (check.clone(), mask.clone());
            async move { check.run().await.map_err(|reason| mask.text(&reason).into_owned()) }
        });
        masked.with_note(move || noted.note().map(|note| noting.text(&note).into_owned()))
    }

    fn change(&self, change: impl FnOnce(&mut Redactor)) {
        // Whoever is reading keeps the redactor as it was.
        change(Arc::make_mut(&mut self.0.write().unwrap_or_else(PoisonError::into_inner)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_holder_learns_all_mask() {
        let (mask, other) = (Mask::default(), Mask::default());
        let copy = mask.clone();
        mask.learn(&Secret::new("swordfish"));
        mask.learn_url("redis://:hunter22@cache");
        assert_eq!(copy.text("swordfish hunter22"), "[redacted] [redacted]");
        assert_eq!(other.text("swordfish"), "swordfish");
    }

    #[tokio::test]
    async fn a_reason_is_told_without_secrets() {
        let mask = Mask::default();
        let check = ReadinessCheck::new("store", || async { Err("swordfish is wrong".to_owned()) });
        let check = mask.check(&check.with_note(|| Some("swordfish is old".to_owned())));
        mask.learn(&Secret::new("swordfish"));
        assert_eq!((check.name, check.run().await), ("store", Err("[redacted] is wrong".to_owned())));
        assert_eq!(check.note().as_deref(), Some("[redacted] is old"));
    }
}
