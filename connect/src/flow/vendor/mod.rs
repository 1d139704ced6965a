//! The vendors that are bundled with Chimera, one file each. A file is parsed when the tools are built; a test parses
//! them all.

pub static FILES: &[(&str, &str)] = &[
    ("github.toml", include_str!("github.toml")),
    ("google.toml", include_str!("google.toml")),
    ("notion.toml", include_str!("notion.toml")),
    ("outlook.toml", include_str!("outlook.toml")),
];

#[must_use]
pub fn file(vendor: &str) -> Option<&'static str> {
    FILES.iter().find(|(name, _)| name.strip_suffix(".toml") == Some(vendor)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::declared::load;

    #[test]
    fn every_file_declares_its_tools() {
        let loaded = FILES.iter().flat_map(|(origin, text)| load(text, origin).unwrap());
        let mut names: Vec<String> = loaded.map(|declared| declared.spec().name.clone()).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "github.issues.create",
                "github.issues.list",
                "github.repos.read",
                "google.drive.search",
                "notion.create_page",
                "notion.search",
                "outlook.send"
            ]
        );
    }

    #[test]
    fn a_file_is_named_after_its_vendor() {
        for (origin, text) in FILES {
            let declared = load(text, origin).unwrap();
            assert_eq!(file(declared[0].vendor()), Some(*text));
        }
    }
}
