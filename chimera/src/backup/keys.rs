//! The data folder's keys in a backup, encrypted with a secret that is not part of it.

use super::{KEYS, files};
use crate::failure::{Failure, Outcome};
use chimera_core::access::seal;
use chimera_core::error::Code;
use chimera_core::secret::Secret;
use chimera_engine::port::Random;
use std::collections::BTreeMap;
use std::path::Path;

/// Associated data of the encryption: the box can't be used elsewhere.
const PLACE: &str = "chimera backup keys 1";
const SALT_BYTES: usize = 16;

/// Encrypts every key below `data/keys` into the backup. Returns false if there is none.
pub(crate) fn save(data: &Path, backup: &Path, key: &Secret, random: &dyn Random) -> Outcome<bool> {
    let folder = data.join("keys");
    let mut found = BTreeMap::new();
    for name in files::list(&folder)?.into_iter().filter(|name| name.ends_with(".key")) {
        let path = folder.join(&name);
        let text = std::fs::read_to_string(&path).map_err(|error| Failure::file("can't read", &path, &error))?;
        found.insert(name, text);
    }
    if found.is_empty() {
        return Ok(false);
    }
    let (mut salt, mut nonce) = ([0; SALT_BYTES], [0; 24]);
    random.fill(&mut salt);
    random.fill(&mut nonce);
    let plain = Secret::new(serde_json::to_vec(&found).map_err(|error| internal(&error))?);
    let key = seal::derive_key(key, &salt).ok_or_else(|| internal(&"no key could be made"))?;
    let sealed = seal::seal(&key, PLACE, nonce, &plain).ok_or_else(|| internal(&"the keys could not be sealed"))?;
    files::write(&backup.join(KEYS), &[&salt[..], &sealed].concat())?;
    Ok(true)
}

/// Decrypted keys, by file name.
pub(crate) struct DecryptedKeys(BTreeMap<String, String>);

/// Decrypts the keys of a backup. Writes nothing.
pub(crate) fn open(backup: &Path, key: &Secret) -> Outcome<DecryptedKeys> {
    let path = backup.join(KEYS);
    let bytes = std::fs::read(&path).map_err(|error| Failure::file("can't read", &path, &error))?;
    let (salt, sealed) = bytes.split_first_chunk::<SALT_BYTES>().ok_or_else(wrong)?;
    let key = seal::derive_key(key, salt).ok_or_else(wrong)?;
    let plain = seal::open(&key, PLACE, sealed).ok_or_else(wrong)?;
    Ok(DecryptedKeys(serde_json::from_slice(plain.expose()).map_err(|_| wrong())?))
}

impl DecryptedKeys {
    /// Writes them below a folder that has none.
    pub(crate) fn write(&self, folder: &Path) -> Outcome {
        for (name, text) in self.0.iter().filter(|(name, _)| files::is_inside(name)) {
            let path = folder.join(name);
            files::folder(path.parent().unwrap_or(folder))?;
            files::write(&path, text.as_bytes())?;
        }
        Ok(())
    }
}

fn wrong() -> Failure {
    Failure::new(Code::ConfigInvalid, "the keys in the backup can't be decrypted with this secret")
        .hint("--key must name the secret that the backup was made with")
}

fn internal(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Internal, format!("the keys: {error}"))
}
