//! Strict verification of Ed25519 signatures, on the public vectors of what implementations disagree about.

use chimera_core::access::{Ed25519PrivateKey, Ed25519PublicKey, InvalidPublicKey};
use proptest::prelude::*;

/// What a new key has to be, and whether the signature is accepted from a key that the store has.
struct Vector {
    message: &'static str,
    key: &'static str,
    signature: &'static str,
    registered: Result<(), InvalidPublicKey>,
    /// None: there is no such key to verify with.
    accepted: Option<bool>,
}

const SMALL: &str = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa";
const MIXED: &str = "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43";
const OTHER_MIXED: &str = "cdb267ce40c5cd45306fa5d2f29731459387dbf9eb933b7bd5aed9a765b88d4d";
const PRIME: &str = "442aad9f089ad9e14647b1ef9099a1ff4798d78589e66f28eca69c11f582a623";
const NOT_CANONICAL: &str = "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff";

/// "Taming the many EdDSAs" (Chalkias, Garillot, Nikolaenko; 2020), table 6 and its published cases, in their order.
const VECTORS: [Vector; 12] = [
    // 0: S = 0, small A and R. The signature of nobody fits every message.
    Vector {
        message: "8c93255d71dcab10e8f379c26200f3c7bd5f09d9bc3068d3ef4edeb4853022b6",
        key: SMALL,
        signature: "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a\
                    0000000000000000000000000000000000000000000000000000000000000000",
        registered: Err(InvalidPublicKey::SmallOrder),
        accepted: None,
    },
    // 1: small A, mixed R.
    Vector {
        message: "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
        key: SMALL,
        signature: "f7badec5b8abeaf699583992219b7b223f1df3fbbea919844e3f7c554a43dd43\
                    a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
        registered: Err(InvalidPublicKey::SmallOrder),
        accepted: None,
    },
    // 2: mixed A, small R.
    Vector {
        message: "aebf3f2601a0c8c5d39cc7d8911642f740b78168218da8471772b35f9d35b9ab",
        key: MIXED,
        signature: "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa\
                    8c4bd45aecaca5b24fb97bc10ac27ac8751a7dfe1baff8b953ec9f5833ca260e",
        registered: Err(InvalidPublicKey::MixedOrder),
        accepted: Some(false),
    },
    // 3: mixed A and R, and the equation holds with and without the cofactor. Strict verification says yes, so such a
    // key can't be registered.
    Vector {
        message: "9bd9f44f4dcc75bd531b56b2cd280b0bb38fc1cd6d1230e14861d861de092e79",
        key: OTHER_MIXED,
        signature: "9046a64750444938de19f227bb80485e92b83fdb4b6506c160484c016cc1852f\
                    87909e14428a7a1d62e9f22f3d3ad7802db02eb2e688b6c52fcd6648a98bd009",
        registered: Err(InvalidPublicKey::MixedOrder),
        accepted: Some(true),
    },
    // 4: mixed A and R, and the equation holds only with the cofactor.
    Vector {
        message: "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
        key: OTHER_MIXED,
        signature: "160a1cb0dc9c0258cd0a7d23e94d8fa878bcb1925f2c64246b2dee1796bed512\
                    5ec6bc982a269b723e0668e540911a9a6a58921d6925e434ab10aa7940551a09",
        registered: Err(InvalidPublicKey::MixedOrder),
        accepted: Some(false),
    },
    // 5: the same, with a prime R, where the order of the multiplications matters.
    Vector {
        message: "e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec4011eaccd55b53f56c",
        key: OTHER_MIXED,
        signature: "21122a84e0b5fca4052f5b1235c80a537878b38f3142356b2c2384ebad4668b7\
                    e40bc836dac0f71076f9abe3a53f9c03c1ceeeddb658d0030494ace586687405",
        registered: Err(InvalidPublicKey::MixedOrder),
        accepted: Some(false),
    },
    // 6: S is not reduced.
    Vector {
        message: "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
        key: PRIME,
        signature: "e96f66be976d82e60150baecff9906684aebb1ef181f67a7189ac78ea23b6c0e\
                    547f7690a0e2ddcd04d87dbc3490dc19b3b3052f7ff0538cb68afb369ba3a514",
        registered: Ok(()),
        accepted: Some(false),
    },
    // 7: S is not reduced, and so large that its high bits show it.
    Vector {
        message: "85e241a07d148b41e47d62c63f830dc7a6851a0b1f33ae4bb2f507fb6cffec40",
        key: PRIME,
        signature: "8ce5b96c8f26d0ab6c47958c9e68b937104cd36e13c33566acd2fe8d38aa1942\
                    7e71f98a473474f2f13f06f97c20d58cc3f54b8bd0d272f42b695dd7e89a8c22",
        registered: Ok(()),
        accepted: Some(false),
    },
    // 8: R is small and not canonical, and is hashed as it should have been encoded.
    Vector {
        message: "9bedc267423725d473888631ebf45988bad3db83851ee85c85e241a07d148b41",
        key: MIXED,
        signature: "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
                    03be9678ac102edcd92b0210bb34d7428d12ffc5df5f37e359941266a4e35f0f",
        registered: Err(InvalidPublicKey::MixedOrder),
        accepted: Some(false),
    },
    // 9: the same, hashed as it was encoded.
    Vector {
        message: "9bedc267423725d473888631ebf45988bad3db83851ee85c85e241a07d148b41",
        key: MIXED,
        signature: "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\
                    ca8c5b64cd208982aa38d4936621a4775aa233aa0505711d8fdcfdaa943d4908",
        registered: Err(InvalidPublicKey::MixedOrder),
        accepted: Some(false),
    },
    // 10: A is small and not canonical, and is hashed as it should have been encoded.
    Vector {
        message: "e96b7021eb39c1a163b6da4e3093dcd3f21387da4cc4572be588fafae23c155b",
        key: NOT_CANONICAL,
        signature: "a9d55260f765261eb9b84e106f665e00b867287a761990d7135963ee0a7d59dc\
                    a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
        registered: Err(InvalidPublicKey::NotCanonical),
        accepted: None,
    },
    // 11: the same, hashed as it was encoded.
    Vector {
        message: "39a591f5321bbe07fd5a23dc2f39d025d74526615746727ceefd6e82ae65c06f",
        key: NOT_CANONICAL,
        signature: "a9d55260f765261eb9b84e106f665e00b867287a761990d7135963ee0a7d59dc\
                    a5bb704786be79fc476f91d3f3f89b03984d8068dcf1bb7dfc6637b45450ac04",
        registered: Err(InvalidPublicKey::NotCanonical),
        accepted: None,
    },
];

#[test]
fn the_vectors_that_implementations_disagree_about_have_one_answer_here() {
    for (at, vector) in VECTORS.iter().enumerate() {
        let bytes: [u8; 32] = hex::decode(vector.key).unwrap().try_into().unwrap();
        assert_eq!(register(&bytes).map(drop), vector.registered, "{at}");
        let (message, signature) = (hex::decode(vector.message).unwrap(), hex::decode(vector.signature).unwrap());
        let accepted = Ed25519PublicKey::from_bytes(&bytes).ok().map(|key| key.verify_strict(&message, &signature));
        assert_eq!(accepted, vector.accepted, "{at}");
    }
}

/// The eight points of small order, and all their encodings that are not canonical.
#[test]
fn no_encoding_of_a_small_point_is_a_key() {
    let canonical = [
        "0100000000000000000000000000000000000000000000000000000000000000",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0000000000000000000000000000000000000000000000000000000000000080",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ];
    let other = [
        "0100000000000000000000000000000000000000000000000000000000000080",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    ];
    let read = |text: &str| Ed25519PublicKey::from_bytes(&hex::decode(text).unwrap().try_into().unwrap()).unwrap_err();
    for text in canonical {
        assert_eq!(read(text), InvalidPublicKey::SmallOrder, "{text}");
    }
    for text in other {
        assert_eq!(read(text), InvalidPublicKey::NotCanonical, "{text}");
    }
    // A coordinate that no point has.
    assert_eq!(register(&[2; 32]).unwrap_err(), InvalidPublicKey::NotAPoint);
}

fn register(bytes: &[u8; 32]) -> Result<Ed25519PublicKey, InvalidPublicKey> {
    use base64::Engine as _;
    Ed25519PublicKey::parse(&base64::engine::general_purpose::STANDARD.encode(bytes))
}

/// The order of the group.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

/// The same signature with another `S` of the same residue; none if it has no room for it.
fn with_larger_s(signature: [u8; 64]) -> Option<[u8; 64]> {
    let mut other = signature;
    let mut carry = 0;
    for (byte, order) in other[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = (sum & 0xff) as u8;
        carry = sum >> 8;
    }
    (carry == 0).then_some(other)
}

proptest! {
    #[test]
    fn only_the_signature_of_the_key_over_the_message_is_accepted(
        seed: [u8; 32], other: [u8; 32], message: Vec<u8>, bit in 0_usize..512,
    ) {
        let key = Ed25519PrivateKey::from_seed(&seed);
        let public = key.public();
        let signature = key.sign(&message);
        prop_assert!(public.verify_strict(&message, &signature));
        let mut flipped = signature;
        flipped[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!public.verify_strict(&message, &flipped));
        prop_assert!(!public.verify_strict(&[&message[..], b"x"].concat(), &signature));
        prop_assert!(!public.verify_strict(&message, &signature[..63]));
        prop_assert!(!public.verify_strict(&message, &[&signature[..], &[0]].concat()));
        let larger = with_larger_s(signature);
        prop_assert!(larger.is_some_and(|larger| !public.verify_strict(&message, &larger)));
        if other != seed {
            prop_assert!(!Ed25519PrivateKey::from_seed(&other).public().verify_strict(&message, &signature));
        }
    }

    #[test]
    fn a_key_that_is_read_is_written_as_the_same_bytes(bytes: [u8; 32]) {
        if let Ok(key) = register(&bytes) {
            prop_assert_eq!(key.to_bytes(), bytes);
            for text in [key.x(), key.to_pem()] {
                prop_assert_eq!(Ed25519PublicKey::parse(&text), Ok(key.clone()));
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Ed25519PublicKey::parse(&text);
        let _ = Ed25519PrivateKey::parse(&text);
    }

    #[test]
    fn keys_have_different_ids(one: [u8; 32], other: [u8; 32]) {
        let [a, b] = [one, other].map(|seed| Ed25519PrivateKey::from_seed(&seed).public());
        prop_assert_eq!(one == other, a.kid() == b.kid());
        prop_assert_eq!(Ed25519PublicKey::parse(&a.x()).map(|key| key.kid()), Ok(a.kid()));
    }
}
