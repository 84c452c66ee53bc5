//! HKDF-SHA256 (RFC 5869) with a single output block: all keys here have its length.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Derives 32 bytes from a secret, a salt and the info string.
pub(super) fn derive(salt: &[u8], secret: &[u8], info: &[u8]) -> [u8; 32] {
    expand(&hmac(salt, &[secret]), info)
}

/// The second step of [`derive()`] alone, for a secret that is random already.
pub(super) fn expand(secret: &[u8], info: &[u8]) -> [u8; 32] {
    hmac(secret, &[info, &[1]])
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // A key that is shorter than a block is padded with zeros, a longer one hashed (RFC 2104).
    let mut block = [0u8; 64];
    match block.get_mut(..key.len()) {
        Some(start) => start.copy_from_slice(key),
        None => {
            use sha2::Digest;
            let hash: [u8; 32] = Sha256::digest(key).into();
            block[..32].copy_from_slice(&hash);
        }
    }
    let mut mac: Hmac<Sha256> = Hmac::new(&block.into());
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test cases 1, 2 and 3 of RFC 5869, appendix A: the first 32 bytes of their output.
    #[test]
    fn keys_are_the_standards() {
        let range = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
        let rows: [(Vec<u8>, Vec<u8>, Vec<u8>, &str); 3] = [
            (
                range(0x00, 0x0c),
                vec![0x0b; 22],
                range(0xf0, 0xf9),
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf",
            ),
            (
                range(0x60, 0xaf),
                range(0x00, 0x4f),
                range(0xb0, 0xff),
                "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c",
            ),
            (
                vec![],
                vec![0x0b; 22],
                vec![],
                "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d",
            ),
        ];
        for (salt, secret, info, expected) in rows {
            let key: String = derive(&salt, &secret, &info).iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(key, expected);
        }
    }

    /// The second step alone, with the pseudo-random key of test case 1.
    #[test]
    fn the_second_step_alone_is_the_standards() {
        let secret: Vec<u8> = "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5"
            .as_bytes()
            .chunks(2)
            .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap())
            .collect();
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        assert_eq!(expand(&secret, &info)[..4], [0x3c, 0xb2, 0x5f, 0x25]);
    }
}
