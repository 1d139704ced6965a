//! The process-wide secret redactor.
//!
//! Logs, spans, readiness reasons and error messages all go through it. It knows the secrets in the settings
//! and the environment from the start, and learns each other secret when it is resolved, before its first
//! use. Readers clone an `Arc`, so learning a secret never blocks a log line.

use chimera_api::ReadinessCheck;
use chimera_core::redact::Redactor;
use chimera_core::secret::Secret;
use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Clone, Debug, Default)]
pub(crate) struct Mask(Arc<RwLock<Arc<Redactor>>>);

impl Mask {
    pub(crate) fn learn(&self, secret: &Secret) {
        self.change(|redactor| redactor.add_secret(secret));
    }

    /// Learns the password and the other secrets in this URL.
    pub(crate) fn learn_url(&self, url: &str) {
        self.change(|redactor| redactor.add_url_secrets(url));
    }

    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let redactor = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        redactor.text(text)
    }

    /// Wraps a readiness check so that its public reason and note contain no secrets.
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
        // Current readers keep their copy.
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
