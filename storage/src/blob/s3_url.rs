//! The URL of a bucket: `s3://bucket/prefix?endpoint=http://host:9000&region=eu-1`.
//!
//! It holds no credentials, since URLs are printed; they are configured separately. With an endpoint the bucket is
//! addressed by path unless `style=virtual`.

use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Url {
    pub bucket: String,
    /// Prefix of all keys, without surrounding slashes; may be empty.
    pub prefix: String,
    /// The server, if it is not AWS.
    pub endpoint: Option<String>,
    /// Signatures depend on it.
    pub region: String,
    /// Whether the bucket is part of the host name.
    pub virtual_hosted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an S3 URL ({reason}); expected s3://bucket/prefix?endpoint=https://host&region=name&style=path|virtual")]
pub struct InvalidS3Url {
    pub reason: &'static str,
}

const fn invalid(reason: &'static str) -> InvalidS3Url {
    InvalidS3Url { reason }
}

impl FromStr for S3Url {
    type Err = InvalidS3Url;

    fn from_str(text: &str) -> Result<Self, InvalidS3Url> {
        let rest = text.strip_prefix("s3://").ok_or(invalid("it does not begin with s3://"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let bucket_char = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(bucket_char) {
            return Err(invalid("the bucket name is invalid"));
        }
        let prefix = prefix.trim_matches('/');
        let segment_ok = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(|b| b.is_ascii_graphic());
        if !prefix.is_empty() && !prefix.split('/').all(segment_ok) {
            return Err(invalid("the prefix is invalid"));
        }
        let (mut endpoint, mut region, mut style) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or(invalid("a parameter has no value"))?;
            let value = percent_decoded(value).ok_or(invalid("a parameter has invalid percent-encoding"))?;
            let place = match name {
                "endpoint" => &mut endpoint,
                "region" => &mut region,
                "style" => &mut style,
                _ => return Err(invalid("unknown parameter; use endpoint, region or style")),
            };
            if place.replace(value).is_some() {
                return Err(invalid("duplicate parameter"));
            }
        }
        let http = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if endpoint.as_ref().is_some_and(|url| !http(url) || url.contains('@')) {
            return Err(invalid("the endpoint must be an http(s) URL without credentials"));
        }
        let virtual_hosted = match style.as_deref() {
            None => endpoint.is_none(),
            Some("virtual") => true,
            Some("path") => false,
            Some(_) => return Err(invalid("style must be path or virtual")),
        };
        let region = region.unwrap_or_else(|| "us-east-1".to_owned());
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned(), endpoint, region, virtual_hosted })
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let pair = [bytes.next()?, bytes.next()?];
            out.extend(hex::decode(pair).ok()?);
        } else {
            out.push(byte);
        }
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_alone_is_amazons() {
        let url: S3Url = "s3://my-bucket".parse().unwrap();
        assert_eq!(
            url,
            S3Url {
                bucket: "my-bucket".into(),
                prefix: String::new(),
                endpoint: None,
                region: "us-east-1".into(),
                virtual_hosted: true
            }
        );
    }

    #[test]
    fn an_endpoint_is_addressed_by_path_unless_told_otherwise() {
        let url: S3Url = "s3://my-bucket/a/b/?endpoint=http%3A%2F%2Flocalhost:9000&region=eu-1".parse().unwrap();
        assert_eq!((url.prefix.as_str(), url.region.as_str()), ("a/b", "eu-1"));
        assert_eq!((url.endpoint.as_deref(), url.virtual_hosted), (Some("http://localhost:9000"), false));
        let url: S3Url = "s3://my-bucket?endpoint=https://s3.example.org&style=virtual".parse().unwrap();
        assert!(url.virtual_hosted);
    }

    #[test]
    fn what_names_no_bucket_is_refused_with_the_reason() {
        for text in [
            "http://bucket",
            "s3://",
            "s3://UPPER",
            "s3://b",
            "s3://bucket/../x",
            "s3://bucket/a//b",
            "s3://bucket?endpoint=ftp://x",
            "s3://bucket?endpoint=http://u:p@x",
            "s3://bucket?secret_key=x",
            "s3://bucket?region=a&region=b",
            "s3://bucket?style=odd",
            "s3://bucket?region=%zz",
        ] {
            assert!(text.parse::<S3Url>().is_err(), "{text}");
        }
    }
}
