//! The fields of a multipart body, as far as everybody reads them alike.
//!
//! Readers differ in what they make of other newlines, folded and unknown headers, other parameters and encoded names. So
//! a body with any of these has no fields here.

/// Names and values.
pub(super) struct Fields<'a>(pub(super) Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    /// The fields of a body of this type, if it is a form in the plainest grammar.
    pub(super) fn read(text: &'a str, kind: &str) -> Option<Self> {
        let mut boundaries = kind.split(';').skip(1).map(str::trim).filter(|said| names_boundary(said));
        let boundary = boundaries.next()?.get("boundary=".len()..)?.trim_matches('"');
        let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "'()+_,-./:=?".contains(sign);
        if boundary.is_empty() || !boundary.chars().all(is_plain) || boundaries.next().is_some() {
            return None;
        }
        let delimiter = format!("--{boundary}");
        let rest = text.strip_prefix(&delimiter)?.strip_prefix("\r\n")?;
        let (rest, end) = rest.rsplit_once(&format!("\r\n{delimiter}--"))?;
        if !["", "\r\n"].contains(&end) {
            return None;
        }
        let between = format!("\r\n{delimiter}\r\n");
        let parts = rest.split(&between).map(|part| part_of(part, &delimiter));
        parts.collect::<Option<_>>().map(Self)
    }
}

fn names_boundary(parameter: &str) -> bool {
    parameter.to_ascii_lowercase().starts_with("boundary")
}

fn part_of<'a>(part: &'a str, delimiter: &str) -> Option<(&'a str, &'a str)> {
    let (head, value) = part.split_once("\r\n\r\n")?;
    // A reader that asks for less before a delimiter would find another part in here.
    if value.contains(delimiter) {
        return None;
    }
    let mut name = None;
    for line in head.split("\r\n") {
        let (header, said) = line.split_once(": ")?;
        match header.to_ascii_lowercase().as_str() {
            "content-disposition" if name.is_none() => name = Some(name_in(said)?),
            "content-type" if is_token(&said.replace(['/', ';', ' ', '='], "")) => {}
            _ => return None,
        }
    }
    Some((name?, value))
}

/// The name of `form-data; name="…"`, with a file's name behind it at the most.
fn name_in(said: &str) -> Option<&str> {
    let (name, rest) = quoted(said.strip_prefix("form-data; name=\"")?)?;
    if let Some(file) = rest.strip_prefix("; filename=\"") {
        let (_, rest) = quoted(file)?;
        return rest.is_empty().then_some(name);
    }
    rest.is_empty().then_some(name)
}

/// What stands before the closing quote, and behind it.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let (inside, rest) = text.split_once('"')?;
    let is_odd = |sign: char| sign.is_control() || sign == '\\';
    (!inside.contains(is_odd) && !inside.contains("=?")).then_some((inside, rest))
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|sign| sign.is_ascii_alphanumeric() || "-_.+".contains(sign))
}
