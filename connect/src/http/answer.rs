//! An HTTP answer, and what its status means for the call.

use super::failure::{failed, not_retryable, sent};
use super::request::Retryability;
use crate::cpu_pool::CpuPool;
use bytes::Bytes;
use chimera_core::access::Claimant;
use chimera_core::error::Code;
use chimera_core::json::{TooDeep, check_depth, text_has_more_values_than};
use chimera_core::limits::{
    HTTP_RESPONSE_DEPTH_MAX, HTTP_RESPONSE_INLINE_BYTES_MAX, HTTP_RESPONSE_VALUES_MAX, RETRY_AFTER_SECONDS_MAX,
};
use chimera_core::time::Timestamp;
use chimera_engine::flow::port::{Sent, ToolError};
use reqwest::Url;
use reqwest::header::{HeaderMap, LINK, RETRY_AFTER};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// An answer whose body is complete, or cut at the limit.
#[derive(Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Whether the body was cut.
    pub truncated: bool,
    /// The final URL, after redirects.
    pub url: Url,
    pub(super) shown: String,
    pub(super) care: Retryability,
    pub(super) done: bool,
    pub(super) at: Timestamp,
    /// Where a large body is processed, and for which tenant.
    pub(super) aside: CpuPool,
    pub(super) who: Claimant,
}

/// An answer in a context where processing it, however large, blocks no request.
pub struct ParsedAnswer<'a>(&'a Answer);

impl std::ops::Deref for ParsedAnswer<'_> {
    type Target = Answer;

    fn deref(&self) -> &Answer {
        self.0
    }
}

impl Answer {
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.status < 400
    }

    /// The answer, or the error that its status means.
    pub fn accepted(self) -> Result<Self, ToolError> {
        if self.is_success() { Ok(self) } else { Err(self.refusal()) }
    }

    /// The error that its status means. Below 500 the server rejected the request; from 500 on it may have been
    /// partly executed.
    #[must_use]
    pub fn refusal(&self) -> ToolError {
        let halfway = self.status >= 500;
        let sent = match self.care {
            Retryability::Repeatable if halfway && !self.done => Sent::Answered,
            care => sent(care, halfway || self.done),
        };
        let what = format!("{} answered {}", self.shown, self.status);
        let error = match self.status {
            429 => failed(sent, Code::RateLimited, what),
            408 | 425 | 500.. => failed(sent, Code::ExternalServiceError, what),
            _ => not_retryable(failed(sent, Code::ExternalServiceError, what)),
        };
        let error = error.with("status", self.status);
        match self.retry_after() {
            Some(seconds) if error.body.retryable => error.retry_after(seconds),
            _ => error,
        }
    }

    /// The error for an answer that means "rate limited".
    #[must_use]
    pub fn rate_limited(&self, seconds: Option<u64>) -> ToolError {
        let error = ToolError::not_sent(Code::RateLimited, format!("{} rate limit exceeded", self.shown));
        let error = error.with("status", self.status);
        match seconds.or_else(|| self.retry_after()) {
            Some(seconds) => error.retry_after(seconds.min(RETRY_AFTER_SECONDS_MAX)),
            None => error,
        }
    }

    /// The error for a successful answer that can't be used: the request did take effect.
    #[must_use]
    pub fn unusable(&self, what: &str) -> ToolError {
        let sent = sent(self.care, true);
        not_retryable(failed(sent, Code::ExternalServiceError, format!("{}: {what}", self.shown)))
    }

    /// Processes the answer; a large one on blocking threads.
    pub async fn open<T: Send + 'static>(
        &self,
        work: impl FnOnce(&ParsedAnswer<'_>) -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let answer = self.clone();
        self.run_blocking(self.body.len() > HTTP_RESPONSE_INLINE_BYTES_MAX, move || work(&ParsedAnswer(&answer))).await
    }

    /// Runs work on data from the answer; on blocking threads if it may take long.
    pub async fn run_blocking<T: Send + 'static>(
        &self,
        may_take_long: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ToolError> {
        let done = self.aside.work(&self.who, may_take_long, work).await;
        done.ok_or_else(|| self.unusable("the answer could not be processed"))
    }

    /// The `Retry-After` of the answer.
    #[must_use]
    pub fn retry_after(&self) -> Option<u64> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        let seconds = text.parse().ok().or_else(|| self.seconds_until(http_date(text)?));
        seconds.map(|seconds: u64| seconds.min(RETRY_AFTER_SECONDS_MAX))
    }

    /// Whole seconds from the answer to `at`, rounded up.
    pub(crate) fn seconds_until(&self, at: Timestamp) -> Option<u64> {
        let micros = at.micros().saturating_sub(self.at.micros()).max(0);
        u64::try_from(micros).ok().map(|micros| micros.div_ceil(1_000_000))
    }

    /// The `next` link of its `Link` headers (RFC 8288).
    #[must_use]
    pub fn next_link(&self) -> Option<Url> {
        let values = self.headers.get_all(LINK).into_iter().filter_map(|value| value.to_str().ok());
        let target = values.flat_map(links).find(|(_, relations)| relations.iter().any(|rel| rel == "next"))?.0;
        self.url.join(&target).ok()
    }
}

impl ParsedAnswer<'_> {
    /// The body as JSON that can be recorded.
    pub fn json(&self) -> Result<Value, ToolError> {
        if text_has_more_values_than(&self.body, HTTP_RESPONSE_VALUES_MAX) {
            return Err(self.unusable(&format!("the answer has more than {HTTP_RESPONSE_VALUES_MAX} values")));
        }
        let value = serde_json::from_slice(&self.body).map_err(|_| self.unusable("the answer is not JSON"))?;
        let deep = |error: TooDeep| self.unusable(&format!("the answer is {error}"));
        check_depth(&value, HTTP_RESPONSE_DEPTH_MAX).map_err(deep)?;
        Ok(value)
    }

    /// The body as a known type.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }

    /// The body as JSON; null if it is not JSON or too large.
    #[must_use]
    pub fn document(&self) -> Value {
        let is_too_much = text_has_more_values_than(&self.body, HTTP_RESPONSE_VALUES_MAX);
        if is_too_much { Value::Null } else { self.read().unwrap_or(Value::Null) }
    }
}

/// Targets and relations of one `Link` value. A target may contain commas.
fn links(value: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for part in value.split('<').skip(1) {
        let Some((target, parameters)) = part.split_once('>') else { continue };
        let rel = parameters.split([';', ',']).find_map(|parameter| {
            let (name, rel) = parameter.split_once('=')?;
            name.trim().eq_ignore_ascii_case("rel").then(|| rel.trim().trim_matches('"').to_ascii_lowercase())
        });
        let relations = rel.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        found.push((target.to_owned(), relations));
    }
    found
}

/// An HTTP date: `Sun, 06 Nov 1994 08:49:37 GMT`.
fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = text.split_once(", ")?;
    let [day, month, year, time, "GMT"] = date.split(' ').collect::<Vec<_>>()[..] else { return None };
    let month = MONTHS.iter().position(|known| *known == month)? + 1;
    format!("{year}-{month:02}-{day}T{time}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, care: Retryability, headers: &[(&'static str, &'static str)]) -> Answer {
        let pairs = headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        Answer {
            status,
            headers: pairs.collect(),
            body: Bytes::new(),
            truncated: false,
            url: Url::parse("https://api.example.com/items?page=1").unwrap(),
            shown: "POST api.example.com".into(),
            care,
            done: false,
            at: "1994-11-06T08:49:07.5Z".parse().unwrap(),
            aside: CpuPool::new(1),
            who: Claimant::new("acme", ""),
        }
    }

    #[test]
    fn a_status_says_whether_to_try_again_and_whether_it_may_have_happened() {
        use Retryability::{Once, Read, Repeatable};
        for (status, care, code, retryable, sent) in [
            (400, Once, "EXTERNAL_SERVICE_ERROR", false, Sent::No),
            (404, Once, "EXTERNAL_SERVICE_ERROR", false, Sent::No),
            (408, Once, "EXTERNAL_SERVICE_ERROR", true, Sent::No),
            (425, Once, "EXTERNAL_SERVICE_ERROR", true, Sent::No),
            (429, Once, "RATE_LIMITED", true, Sent::No),
            (500, Once, "EXTERNAL_SERVICE_ERROR", true, Sent::Maybe),
            (404, Repeatable, "EXTERNAL_SERVICE_ERROR", false, Sent::No),
            (503, Repeatable, "EXTERNAL_SERVICE_ERROR", true, Sent::Answered),
            (503, Read, "EXTERNAL_SERVICE_ERROR", true, Sent::No),
        ] {
            let error = answer(status, care, &[]).refusal();
            let seen = (error.body.code.as_str(), error.body.retryable, error.sent);
            assert_eq!(seen, (code, retryable, sent), "{status} {care:?}");
        }
        let after_see_other = Answer { done: true, ..answer(404, Once, &[]) };
        assert_eq!(after_see_other.refusal().sent, Sent::Maybe);
    }

    #[test]
    fn the_time_to_wait_is_read_in_seconds_and_as_a_date() {
        let wait = |text| answer(429, Retryability::Once, &[("retry-after", text)]).refusal().body.retry_after_seconds;
        assert_eq!(wait("7"), Some(7));
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT"), Some(30));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(wait("99999999999"), Some(RETRY_AFTER_SECONDS_MAX));
        assert_eq!(wait("soon"), None);
    }

    #[test]
    fn an_answer_keeps_its_digits_and_its_depth_has_an_end() {
        let json = |body: &str| {
            let answer =
                Answer { body: Bytes::copy_from_slice(body.as_bytes()), ..answer(200, Retryability::Once, &[]) };
            ParsedAnswer(&answer).json()
        };
        let read = json(r#"{"a": [9007199254740992, 9007199254740993, -9007199254740993, 1.5]}"#).unwrap();
        assert_eq!(
            read["a"],
            serde_json::json!([9007199254740992_u64, 9007199254740993_u64, -9007199254740993_i64, 1.5])
        );
        let deep = "[".repeat(HTTP_RESPONSE_DEPTH_MAX + 1) + &"]".repeat(HTTP_RESPONSE_DEPTH_MAX + 1);
        assert_eq!(json(&deep).unwrap_err().sent, Sent::Maybe);
        assert!(!json("<html>").unwrap_err().body.retryable);
    }

    #[test]
    fn the_next_page_is_found_among_links() {
        let next = |text| answer(200, Retryability::Read, &[("link", text)]).next_link().map(String::from);
        let both = r#"<https://api.example.com/items?page=9,1>; rel="last", </items?page=2>; rel="next prefetch""#;
        assert_eq!(next(both).as_deref(), Some("https://api.example.com/items?page=2"));
        assert_eq!(next("<?page=3>; title=x; REL=next").as_deref(), Some("https://api.example.com/items?page=3"));
        assert_eq!(next(r#"<https://x.y>; rel="prev""#), None);
        assert_eq!(next("nonsense"), None);
    }
}
