//! Exports: an intact one verifies, and no change goes unnoticed.

use crate::lanes::{Ledger, ledger, signer};
use chimera_core::audit::{VerificationReport, verify};
use chimera_core::ledger::checkpoint::{Checkpoint, Signer};
use chimera_core::ledger::{ChainHead, Digest32, LedgerFault, StoredEntry};
use proptest::prelude::*;

fn check(text: impl AsRef<[u8]>) -> VerificationReport {
    verify(text.as_ref(), &[signer().public_key()]).unwrap()
}

fn lines(text: &str) -> Vec<String> {
    text.split_inclusive('\n').map(str::to_owned).collect()
}

#[test]
fn a_whole_export_verifies_with_all_entries_lanes_and_checkpoints() {
    let report = check(ledger().export_all(true));
    assert!(report.is_intact() && report.trusted && report.signed_end, "{report:?}");
    assert_eq!((report.entries, report.lanes, report.checkpoints, report.covered), (5, 2, 2, 4));
}

#[test]
fn one_tenants_export_verifies_without_the_others_entries() {
    let text = ledger().export_tenant("acme", true);
    assert!(!text.contains("zeta"));
    let report = check(&text);
    assert!(report.is_intact(), "{report:?}");
    assert_eq!((report.tenant.as_deref(), report.entries, report.lanes, report.checkpoints), (Some("acme"), 2, 1, 1));
}

#[test]
fn an_empty_ledger_has_an_export_too() {
    let report = check(Ledger::default().export_all(false));
    assert!(report.is_intact() && !report.signed_end);
    assert_eq!(report.entries, 0);
}

/// Flips one bit in every byte of the file, a different one each time.
#[test]
fn a_wrong_bit_in_any_byte_of_an_export_is_found() {
    for text in [ledger().export_all(false), ledger().export_tenant("acme", true)] {
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << (at % 8);
            assert!(!check(&bytes).is_intact(), "byte {at} of {text}");
        }
    }
}

#[test]
fn a_lost_or_added_byte_and_a_cut_tail_are_found() {
    let text = ledger().export_all(false);
    for at in (0..text.len()).step_by(7) {
        let mut fewer = text.clone().into_bytes();
        fewer.remove(at);
        assert!(!check(&fewer).is_intact(), "without byte {at}");
        assert!(!check(&text.as_bytes()[..at]).is_intact(), "cut at {at}");
    }
    assert!(!check(format!("{text}\n")).is_intact());
    assert!(!check(format!("{text}{text}")).is_intact());
}

#[test]
fn lines_can_be_neither_dropped_nor_swapped_nor_repeated() {
    for text in [ledger().export_all(false), ledger().export_tenant("acme", false)] {
        let lines = lines(&text);
        for at in 0..lines.len() {
            let mut dropped = lines.clone();
            dropped.remove(at);
            assert!(!check(dropped.concat()).is_intact(), "line {at} dropped");
            let mut repeated = lines.clone();
            repeated.insert(at, lines[at].clone());
            assert!(!check(repeated.concat()).is_intact(), "line {at} repeated");
            if at > 0 {
                let mut swapped = lines.clone();
                swapped.swap(at - 1, at);
                assert!(!check(swapped.concat()).is_intact(), "lines {at} and before swapped");
            }
        }
    }
}

#[test]
fn the_first_broken_entry_is_named_even_when_its_line_is_no_json_any_more() {
    let text = ledger().export_all(true);
    for (from, to) in [("\"id\":\"entry-3\"", "\"id\":\"entry-x\""), ("entry-3\",", "entry-3\";"), ("task-3", "task-4")]
    {
        let broken = check(text.replacen(from, to, 1)).first_fault.unwrap();
        assert_eq!((broken.lane, broken.seq), (Some(1), Some(2)), "{broken}");
        assert_eq!(broken.line, Some(5));
    }
    let broken = check(text.replacen("größer", "kleiner", 1)).first_fault.unwrap();
    assert_eq!((broken.id.as_deref(), broken.fault), (Some("entry-1"), LedgerFault::Content));
}

/// A forger can rebuild the chain and the digest, but cannot sign.
#[test]
fn a_chain_that_was_rebuilt_after_a_change_contradicts_the_checkpoint() {
    let mut forged = ledger();
    let entries = forged.lanes.get_mut(&1).unwrap();
    let mut head = ChainHead::EMPTY;
    for stored in entries.iter_mut() {
        let mut entry = stored.sealed.entry.clone();
        entry.actor_id = Some("nobody".into());
        *stored = StoredEntry::after(1, head, entry.seal(stored.sealed.salt).unwrap());
        head = stored.link.head();
    }
    let broken = check(forged.export_all(false)).first_fault.unwrap();
    assert_eq!((broken.lane, broken.fault), (Some(1), LedgerFault::Checkpoint));
}

/// The ledger with a different last checkpoint, signed by the key owner.
fn resigned(change: impl FnOnce(&mut Checkpoint)) -> Ledger {
    let mut forged = ledger();
    let mut last = forged.checkpoints.pop().unwrap().checkpoint;
    change(&mut last);
    forged.checkpoints.push(last.sign(&signer()));
    forged
}

#[test]
fn a_checkpoint_that_does_not_follow_the_one_before_is_found_whoever_signed_it() {
    let wrong = [None, Some(Digest32([9; 32])), Some(ledger().checkpoints[1].digest())];
    for previous in wrong {
        let broken = check(resigned(|last| last.previous = previous).export_all(true)).first_fault.unwrap();
        assert_eq!((broken.checkpoint, broken.fault), (Some(2), LedgerFault::Checkpoint), "{previous:?}");
    }
    for seq in [1, 3] {
        let broken = check(resigned(|last| last.seq = seq).export_all(true)).first_fault.unwrap();
        assert_eq!((broken.checkpoint, broken.fault), (Some(seq), LedgerFault::Checkpoint));
    }
}

#[test]
fn a_root_or_a_head_that_the_entries_do_not_have_is_found_whoever_signed_it() {
    for (at, first) in [(0, 2), (1, 2)] {
        let lane = at as i64 + 1;
        let rooted = check(resigned(|last| last.lanes[at].root = Digest32([9; 32])).export_all(true));
        let headed = check(resigned(|last| last.lanes[at].head.hash = Digest32([9; 32])).export_all(true));
        for report in [rooted, headed] {
            let broken = report.first_fault.unwrap();
            assert_eq!((broken.lane, broken.seq, broken.fault), (Some(lane), Some(first), LedgerFault::Checkpoint));
        }
    }
    let unnamed = check(resigned(|last| last.lanes.truncate(1)).export_all(true)).first_fault.unwrap();
    assert_eq!((unnamed.lane, unnamed.fault), (Some(2), LedgerFault::Checkpoint));
}

#[test]
fn entries_that_a_checkpoint_covers_can_not_be_cut_off() {
    let mut text = ledger().export_all(false);
    let line = lines(&text).into_iter().find(|line| line.contains("entry-4")).unwrap();
    text = text.replacen(&line, "", 1);
    let broken = check(text).first_fault.unwrap();
    assert_eq!((broken.lane, broken.seq, broken.fault), (Some(1), Some(3), LedgerFault::Checkpoint));
}

#[test]
fn a_forger_with_another_key_is_believed_only_by_those_who_trust_nobody() {
    let text = ledger().export_all(true);
    let stranger = Signer::from_seed(&[8; 32]).public_key();
    assert_eq!(verify(text.as_bytes(), &[stranger]).unwrap().first_fault.unwrap().fault, LedgerFault::Signature);
    let report = verify(text.as_bytes(), &[]).unwrap();
    assert!(report.is_intact() && !report.trusted);
}

#[test]
fn another_tenants_entry_does_not_belong_into_a_tenants_export() {
    let text = ledger().export_tenant("acme", false).replace("\"tenant\":\"acme\"", "\"tenant\":\"zeta\"");
    assert_eq!(check(text).first_fault.unwrap().fault, LedgerFault::Malformed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn bytes_overwritten_anywhere_are_found(at in any::<prop::sample::Index>(), with in prop::collection::vec(any::<u8>(), 1..8), tenant in any::<bool>()) {
        let text = if tenant { ledger().export_tenant("acme", true) } else { ledger().export_all(true) };
        let mut bytes = text.clone().into_bytes();
        let at = at.index(bytes.len());
        for (place, byte) in bytes[at..].iter_mut().zip(with) {
            *place = byte;
        }
        prop_assert_eq!(check(&bytes).is_intact(), bytes == text.as_bytes());
    }

    #[test]
    fn no_input_brings_the_verifier_down(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(!check(&bytes).is_intact());
    }
}
