//! Known answers of the standards, and what tampering does.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap() as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Test cases 4, 10 and 16 of "The Galois/Counter Mode of Operation" (McGrew, Viega): the same text under
/// keys of 128, 192 and 256 bits, with associated data.
#[test]
fn aes_gcm_gives_the_standards_answers() {
    let key = hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
    let plain = hex("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39");
    let aad = hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
    let rows = [
        (
            16,
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e
             21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
            "5bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            24,
            "3980ca0b3c00e841eb06fac4872a2757859e1ceaa6efd984628593b40ca1e19c
             7d773d00c144c525ac619d18c84a3f4718e2448b2fe324d9ccda2710",
            "2519498e80f1478f37ba55bd6d27618c",
        ),
        (
            32,
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa
             8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
            "76fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ];
    for (len, ciphertext, tag) in rows {
        let cipher = Cipher::new(Kind::AesGcm, &key[..len]).unwrap();
        let sealed = [hex("cafebabefacedbaddecaf888"), hex(ciphertext), hex(tag)].concat();
        assert_eq!(cipher.open(&aad, &sealed).unwrap(), plain, "{len}");
        assert_eq!(cipher.open(b"elsewhere", &sealed), Err(NOT_OURS));
    }
}

/// NIST SP 800-38A, F.2.1, F.2.3 and F.2.5: the first block of CBC under keys of 128, 192 and 256 bits. The
/// padding is PKCS#7's, so the answer has one block more.
#[test]
fn aes_cbc_gives_the_standards_answers() {
    let iv = hex("000102030405060708090a0b0c0d0e0f");
    let plain = hex("6bc1bee22e409f96e93d7e117393172a");
    let rows = [
        ("2b7e151628aed2a6abf7158809cf4f3c", "7649abac8119b246cee98e9b12e9197d"),
        ("8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b", "4f021db243bc633d7178183a9fa071e8"),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd6",
        ),
    ];
    for (key, block) in rows {
        let mut sealed = Vec::new();
        encrypt_cbc(&hex(key), &iv, &plain, &mut sealed).unwrap();
        assert_eq!((sealed.len(), &sealed[..16]), (32, hex(block).as_slice()), "{key}");
        assert_eq!(decrypt_cbc(&hex(key), &iv, &sealed).unwrap(), plain);
    }
}

/// The vector of NaCl's own `tests/secretbox.c`; its box has the tag first.
#[test]
fn secretbox_gives_nacls_answer() {
    let key = hex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
    let nonce: [u8; 24] = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37").try_into().unwrap();
    let plain = hex(
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129
         6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde
         048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705",
    );
    let sealed = hex(
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a
         c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae
         90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74
         e355a5",
    );
    let secretbox = XSalsa20Poly1305::new_from_slice(&key).unwrap();
    assert_eq!(secretbox.encrypt(&nonce.into(), plain.as_slice()).unwrap(), sealed);
}

#[test]
fn a_value_opens_where_it_was_sealed_and_nowhere_else() {
    for kind in [Kind::AesGcm, Kind::AesCbc, Kind::Secretbox] {
        for len in kind.key_lengths() {
            let cipher = Cipher::new(kind, &vec![7; *len]).unwrap();
            for plain in [&b""[..], b"x", &[0; 16], &[9; 4000]] {
                let (mut one, mut other) = (Vec::new(), Vec::new());
                cipher.seal(b"place", plain, &mut one).unwrap();
                cipher.seal(b"place", plain, &mut other).unwrap();
                assert_ne!(one, other, "{kind:?}: a nonce is used once");
                assert_eq!(cipher.open(b"place", &one).unwrap(), plain);
                assert!(cipher.open(b"another place", &one).is_err(), "{kind:?}");
                let wrong = Cipher::new(kind, &vec![8; *len]).unwrap();
                assert!(wrong.open(b"place", &one).is_err(), "{kind:?}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_shows() {
    for kind in [Kind::AesGcm, Kind::AesCbc, Kind::Secretbox] {
        let cipher = Cipher::new(kind, &[7; 32]).unwrap();
        let mut sealed = Vec::new();
        cipher
            .seal(b"place", b"a value of more than one block, so that there are several", &mut sealed)
            .unwrap();
        // CBC does not authenticate: bytes after the hash can be changed undetected, and are not tested here.
        let covered = if kind == Kind::AesCbc { CBC_IV + HASH } else { sealed.len() };
        for at in 0..covered {
            let mut bad = sealed.clone();
            bad[at] ^= 1;
            assert!(cipher.open(b"place", &bad).is_err(), "{kind:?} byte {at}");
        }
        for len in 0..sealed.len() {
            assert!(cipher.open(b"place", &sealed[..len]).is_err(), "{kind:?} cut at {len}");
        }
    }
}

#[test]
fn keys_of_other_lengths_are_none() {
    for (kind, len) in [(Kind::AesGcm, 15), (Kind::AesCbc, 33), (Kind::Secretbox, 16), (Kind::Secretbox, 0)] {
        assert!(Cipher::new(kind, &vec![0; len]).is_none());
    }
}
