//! Where the values of a document are in its text: bytes, JSON Pointers, lines and columns.
//!
//! Parsed documents keep no positions, because nearly all of them are valid. When one is not, its text is walked once
//! more for all the pointers in question together. The text must be valid JSON as far as it is walked.

use serde::Serialize;

/// A place in a text, for people and editors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// From 1, in Unicode characters.
    pub column: usize,
}

/// The positions of bytes of a text, in the order of `bytes`.
#[must_use]
pub fn positions(text: &str, bytes: &[usize]) -> Vec<Position> {
    let mut order: Vec<usize> = (0..bytes.len()).collect();
    order.sort_unstable_by_key(|at| bytes[*at]);
    let mut found = vec![Position { line: 1, column: 1 }; bytes.len()];
    let mut letters = text.char_indices().peekable();
    let mut here = Position { line: 1, column: 1 };
    for at in order {
        while let Some((_, letter)) = letters.next_if(|(byte, _)| *byte < bytes[at]) {
            here = match letter {
                '\n' => Position { line: here.line + 1, column: 1 },
                _ => Position { column: here.column + 1, ..here },
            };
        }
        found[at] = here;
    }
    found
}

/// The bytes where the values begin that the pointers name, in the order of `pointers`. If there is no such value, the
/// nearest one around it; of a duplicate member, the last value.
#[must_use]
pub fn locate(text: &str, pointers: &[&str]) -> Vec<usize> {
    let decode =
        |token: &str| PointerToken { index: token.parse().ok(), name: token.replace("~1", "/").replace("~0", "~") };
    let paths = pointers.iter().map(|pointer| pointer.split('/').skip(1).map(decode).collect()).collect();
    let mut walk = Walk { text, at: 0, paths, found: vec![0; pointers.len()] };
    let all: Vec<usize> = (0..pointers.len()).collect();
    walk.value(&all, 0);
    walk.found
}

struct PointerToken {
    name: String,
    index: Option<usize>,
}

struct Walk<'a> {
    text: &'a str,
    at: usize,
    paths: Vec<Vec<PointerToken>>,
    found: Vec<usize>,
}

impl Walk<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Walks over the value that begins here, which is `depth` tokens along the paths of `wanted`.
    fn value(&mut self, wanted: &[usize], depth: usize) {
        self.space();
        wanted.iter().for_each(|path| self.found[*path] = self.at);
        let inside: Vec<usize> = wanted.iter().copied().filter(|path| self.paths[*path].len() > depth).collect();
        match self.peek() {
            Some(b'{') if !inside.is_empty() => self.container(&inside, depth, true),
            Some(b'[') if !inside.is_empty() => self.container(&inside, depth, false),
            _ => self.skip(),
        }
    }

    fn container(&mut self, wanted: &[usize], depth: usize, has_names: bool) {
        self.at += 1;
        for index in 0.. {
            self.space();
            if matches!(self.peek(), None | Some(b']' | b'}')) {
                break;
            }
            let name = if has_names { self.name() } else { String::new() };
            let is_next =
                |token: &PointerToken| if has_names { token.name == name } else { token.index == Some(index) };
            let next: Vec<usize> =
                wanted.iter().copied().filter(|path| self.paths[*path].get(depth).is_some_and(is_next)).collect();
            self.value(&next, depth + 1);
            self.space();
            if self.peek() != Some(b',') {
                break;
            }
            self.at += 1;
        }
        self.at += 1;
    }

    /// The name of a member. Stops behind its colon.
    fn name(&mut self) -> String {
        let begin = self.at;
        self.string();
        let name = self.text.get(begin..self.at).and_then(|text| serde_json::from_str(text).ok());
        self.space();
        self.at += 1;
        name.unwrap_or_default()
    }

    fn string(&mut self) {
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                return;
            }
        }
    }

    /// Skips a value with everything inside.
    fn skip(&mut self) {
        let mut open = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.string();
                    if open == 0 {
                        return;
                    }
                    continue;
                }
                b'{' | b'[' => open += 1,
                b'}' | b']' if open > 1 => open -= 1,
                b'}' | b']' => {
                    // The end of this value, or of the container that it is the last item of.
                    self.at += open;
                    return;
                }
                b',' if open == 0 => return,
                _ => {}
            }
            self.at += 1;
        }
    }
}

/// JSON Pointer to the value that begins at a byte. Everything before it must be valid JSON.
#[must_use]
pub fn pointer_at(text: &[u8], at: usize) -> String {
    pointers_at(text, &[at]).pop().unwrap_or_default()
}

/// JSON Pointers to the values that begin at these bytes, which must be in ascending order.
#[must_use]
pub fn pointers_at(text: &[u8], bytes: &[usize]) -> Vec<String> {
    let (mut path, mut last, mut from) = (Vec::<(bool, String, usize)>::new(), String::new(), 0);
    let mut found = Vec::with_capacity(bytes.len());
    for at in bytes {
        while let Some(byte) = text.get(from).copied().filter(|_| from < *at) {
            from += 1;
            match (byte, path.last_mut()) {
                (b'"', _) => {
                    let begin = from - 1;
                    while text.get(from).is_some_and(|byte| *byte != b'"') {
                        from += if text.get(from) == Some(&b'\\') { 2 } else { 1 };
                    }
                    from += 1;
                    last = text.get(begin..from).and_then(|text| serde_json::from_slice(text).ok()).unwrap_or_default();
                }
                (b'[' | b'{', _) => path.push((byte == b'[', String::new(), 0)),
                (b']' | b'}', _) => drop(path.pop()),
                (b':', Some((_, name, _))) => *name = std::mem::take(&mut last),
                (b',', Some((_, _, index))) => *index += 1,
                _ => {}
            }
        }
        let part = |(is_list, name, index): &(bool, String, usize)| match is_list {
            true => format!("/{index}"),
            false => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        };
        found.push(path.iter().map(part).collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// Every value of a document, with its pointer.
    fn every<'v>(value: &'v Value, pointer: &str, all: &mut Vec<(String, &'v Value)>) {
        all.push((pointer.to_owned(), value));
        let child = |name: &str| format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(at, item)| every(item, &child(&at.to_string()), all));
            }
            Value::Object(members) => members.iter().for_each(|(name, member)| every(member, &child(name), all)),
            _ => {}
        }
    }

    const TEXT: &str = r#" {"a": [1, "x,]}\"", {"b/c": null, "~": [[], {}, -2.5e3, [{}], "é"]}],
        "\u0061b" : {"0": true,"": "\\"}, "empty": {} , "last": false } "#;

    #[test]
    fn every_value_is_found_where_it_begins_and_has_its_pointer_there() {
        let document: Value = serde_json::from_str(TEXT).unwrap();
        let mut all = Vec::new();
        every(&document, "", &mut all);
        assert!(all.len() > 15);
        let pointers: Vec<&str> = all.iter().map(|(pointer, _)| pointer.as_str()).collect();
        let found = locate(TEXT, &pointers);
        for ((pointer, value), at) in all.iter().zip(&found) {
            let read = serde_json::Deserializer::from_str(&TEXT[*at..]).into_iter::<Value>().next().unwrap().unwrap();
            assert_eq!(read, **value, "{pointer}");
            assert_eq!(locate(TEXT, &[pointer]), [*at], "{pointer} alone");
            assert_eq!(pointer_at(TEXT.as_bytes(), *at), *pointer);
        }
    }

    #[test]
    fn what_is_not_there_is_located_at_what_is_around_it() {
        let text = r#"{"a": {"b": [1]}, "a": {"c": 2}}"#;
        let of = |pointer: &str| &text[locate(text, &[pointer])[0]..];
        assert_eq!(of("/x"), text);
        assert!(of("/a").starts_with(r#"{"c""#), "the last of two");
        assert!(of("/a/c/d").starts_with("2}"));
        assert!(of("/a/c").starts_with("2}"));
        assert_eq!(locate("", &["/a"]), [0]);
        assert_eq!(locate("[1", &["/5"]), [0]);
    }

    #[test]
    fn lines_begin_after_their_break_and_columns_count_characters() {
        let text = "é\r\nab\n\nx";
        let at = |line, column| Position { line, column };
        let bytes = [text.len() - 1, 0, text.find('b').unwrap(), text.len(), 2];
        assert_eq!(positions(text, &bytes), [at(4, 1), at(1, 1), at(2, 2), at(4, 2), at(1, 2)]);
    }

    /// The walk is over once, however many pointers there are.
    #[test]
    fn a_large_text_with_many_pointers_is_walked_once() {
        let items: Vec<String> = (0..20_000).map(|n| format!("{{\"k\": [{n}]}}")).collect();
        let text = format!("[{}]", items.join(","));
        let pointers: Vec<String> = (0..50).map(|n| format!("/{}/k/0", 19_999 - n)).collect();
        let pointers: Vec<&str> = pointers.iter().map(String::as_str).collect();
        let found = locate(&text, &pointers);
        let numbers: Vec<&str> = found.iter().map(|at| &text[*at..*at + 5]).collect();
        assert_eq!((numbers[0], numbers[49]), ("19999", "19950"));
        let mut ascending = found.clone();
        ascending.reverse();
        assert_eq!(pointers_at(text.as_bytes(), &ascending)[0], "/19950/k/0");
    }
}
