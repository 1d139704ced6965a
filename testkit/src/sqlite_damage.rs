//! Corrupts an SQLite file without SQLite: finds the root page of a table in the schema and overwrites it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Overwrites the root page of a table or index, like a broken disk.
pub fn damage_root(path: &Path, name: &str) {
    damage(path, name, |_, root| root);
}

/// One of the leaves of a table or index, in the order of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    First,
    Last,
}

/// Overwrites a leaf of a table or index that takes more than one page.
pub fn damage_leaf(path: &Path, name: &str, which: Leaf) {
    damage(path, name, |pages, root| {
        let leaf = pages.leaf_of(root, which);
        assert_ne!(leaf, root, "`{name}` takes only one page");
        leaf
    });
}

fn damage(path: &Path, name: &str, choose: impl FnOnce(&Pages<'_>, u64) -> u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a data file");
    let pages = Pages::of(&file);
    let root = pages.root_of(1, name).unwrap_or_else(|| panic!("no table or index `{name}` in the schema"));
    assert!(root > 1, "page 1 holds the schema itself: use damage_header");
    let page = choose(&pages, root);
    file.write_all_at(&vec![0xa5; pages.size], (page - 1) * pages.size as u64).expect("a page to write");
    file.sync_all().expect("a disk");
}

/// Overwrites the first bytes of the file.
pub fn damage_header(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).expect("a data file");
    file.write_all_at(b"not a database!!", 0).expect("a page to write");
}

struct Pages<'a> {
    file: &'a File,
    size: usize,
}

impl<'a> Pages<'a> {
    fn of(file: &'a File) -> Self {
        let mut size = [0; 2];
        file.read_exact_at(&mut size, 16).expect("a header");
        let size = u16::from_be_bytes(size);
        Self { file, size: if size == 1 { 65_536 } else { usize::from(size) } }
    }

    /// A leaf of the tree below a page.
    fn leaf_of(&self, page: u64, which: Leaf) -> u64 {
        let mut bytes = vec![0; self.size];
        self.file.read_exact_at(&mut bytes, (page - 1) * self.size as u64).expect("a page");
        if !matches!(bytes[0], 0x02 | 0x05) {
            return page;
        }
        let at = match which {
            Leaf::First => usize::from(u16::from_be_bytes([bytes[12], bytes[13]])),
            Leaf::Last => 8,
        };
        let below = u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        self.leaf_of(u64::from(below), which)
    }

    /// The root page of `name`, searched in the subtree of a page of the schema's B-tree.
    fn root_of(&self, page: u64, name: &str) -> Option<u64> {
        let mut bytes = vec![0; self.size];
        self.file.read_exact_at(&mut bytes, (page - 1) * self.size as u64).expect("a page");
        let header = if page == 1 { 100 } else { 0 };
        let short = |at: usize| usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
        let long = |at: usize| u64::from(u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes")));
        let leaf = match bytes[header] {
            0x0d => true,
            0x05 => false,
            other => panic!("page {page} has unknown type {other}"),
        };
        let cells = header + if leaf { 8 } else { 12 };
        let mut cells = (0..short(header + 3)).map(|cell| short(cells + 2 * cell));
        if leaf {
            return cells.find_map(|cell| root_in(&bytes[cell..], name));
        }
        let below = cells.map(long).chain([long(header + 8)]).collect::<Vec<_>>();
        below.into_iter().find_map(|page| self.root_of(page, name))
    }
}

/// The root page in a row of the schema, if the row describes `name`.
fn root_in(cell: &[u8], name: &str) -> Option<u64> {
    let mut at = 0;
    let (_payload, _rowid) = (varint(cell, &mut at), varint(cell, &mut at));
    let record = &cell[at..];
    let mut at = 0;
    let mut body = usize::try_from(varint(record, &mut at)).ok()?;
    let kinds: [u64; 4] = std::array::from_fn(|_| varint(record, &mut at));
    let text = |kind: u64| usize::try_from(kind.saturating_sub(13) / 2).unwrap_or(0);
    body += text(kinds[0]);
    let found = record.get(body..body + text(kinds[1]))? == name.as_bytes();
    body += text(kinds[1]) + text(kinds[2]);
    let bytes = usize::try_from(kinds[3]).ok().filter(|bytes| (1..=4).contains(bytes))?;
    let root = record.get(body..body + bytes)?.iter().fold(0, |root, byte| root << 8 | u64::from(*byte));
    found.then_some(root)
}

fn varint(bytes: &[u8], at: &mut usize) -> u64 {
    let mut value = 0;
    for _ in 0..9 {
        let byte = bytes[*at];
        *at += 1;
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}
