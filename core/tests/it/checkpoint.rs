//! Checkpoints: exact bytes, one signature, chained to each other.

use crate::lanes::{ledger, signer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chimera_core::json;
use chimera_core::ledger::checkpoint::{CheckpointFault, PublicKey, SignedCheckpoint, Signer};
use chimera_core::ledger::tables::LEDGER_CHECKPOINTS;
use chimera_core::record::{Row, Value};

fn signed() -> SignedCheckpoint {
    ledger().checkpoints.pop().unwrap()
}

#[test]
fn a_checkpoint_is_signed_over_its_canonical_bytes() {
    let signed = signed();
    assert_eq!(signed.body, json::canonical(&json::parse(&signed.body).unwrap()));
    assert_eq!(signed.verify(&[signer().public_key()]), Ok(()));
    assert_eq!(signed.verify(&[Signer::from_seed(&[8; 32]).public_key()]), Err(CheckpointFault::UnknownKey));
    let other = SignedCheckpoint { body: signed.body.replace("ledger", "ledgre"), ..signed };
    assert_eq!(other.verify(&[signer().public_key()]), Err(CheckpointFault::Signature));
}

#[test]
fn a_checkpoint_comes_back_from_its_row_as_it_was() {
    let signed = signed();
    let insert = signed.insert().unwrap();
    let cells = LEDGER_CHECKPOINTS.columns.iter().map(|column| insert.value(column.name).clone()).collect();
    let mut row = Row { table: &LEDGER_CHECKPOINTS, cells };
    assert_eq!(SignedCheckpoint::from_row(&row), Ok(signed));
    row.cells[0] = Value::Int(3);
    assert_eq!(SignedCheckpoint::from_row(&row), Err(CheckpointFault::Malformed));
}

#[test]
fn another_spelling_of_the_same_checkpoint_is_refused() {
    let signed = signed();
    let body = signed.body.replacen(':', ": ", 1);
    let read = SignedCheckpoint::parse(body, signed.signature, signed.key_id);
    assert_eq!(read, Err(CheckpointFault::Malformed));
}

#[test]
fn a_key_is_named_after_the_first_eight_bytes_of_its_digest() {
    let key = signer().public_key();
    assert_eq!(key.id(), signer().key_id());
    assert_eq!(key.id().len(), 16);
    assert_eq!(PublicKey::from_hex(&key.to_string()), Some(key));
    assert_eq!(PublicKey::from_bytes(&[0; 32]), None, "a weak key is none");
    assert_eq!(format!("{:?}", signer()), format!("Signer {{ key_id: {:?}, .. }}", signer().key_id()));
}

#[test]
fn a_witness_can_check_the_note_of_a_checkpoint() {
    let signed = signed();
    let note = signed.to_note(&signer());
    let (text, signature) = note.split_once("\n— test.example/ledger ").unwrap();
    let mark = STANDARD.decode(signature.trim_end()).unwrap();
    let signature: [u8; 64] = mark[4..].try_into().unwrap();
    assert!(signer().public_key().verifies(text.as_bytes(), &signature));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["test.example/ledger", "4"]);
    assert_eq!(lines[2], STANDARD.encode(signed.digest().0));
    assert!(lines[3].starts_with("lane 1 3 ") && lines[4].starts_with("lane 2 1 "));
}
