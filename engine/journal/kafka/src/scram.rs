//! The client's side of SCRAM (RFC 5802, RFC 7677), without channel binding, as Kafka has it.

use std::num::NonZeroU32;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use ring::{digest, hmac, pbkdf2};

/// Iterations of the hash that a broker may ask for: fewer protect nothing (Kafka allows no fewer, either),
/// more would keep the processor busy for seconds.
const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=1_000_000;

/// The hash of a mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha256,
    Sha512,
}

impl Hash {
    fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha512 => hmac::HMAC_SHA512,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Hash::Sha256 => &digest::SHA256,
            Hash::Sha512 => &digest::SHA512,
        }
    }

    fn pbkdf2(self) -> pbkdf2::Algorithm {
        match self {
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Hash::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// One exchange: `first`, then `last` with what the broker answers, then `verify` with its last answer.
pub(crate) struct Exchange {
    hash: Hash,
    password: Vec<u8>,
    nonce: String,
    first_bare: String,
    server_signature: Vec<u8>,
}

/// The broker does not follow the protocol, or does not know the password.
pub(crate) type ScramError = &'static str;

impl Exchange {
    /// `nonce` is printable, without commas, and never used twice.
    pub(crate) fn new(hash: Hash, user: &str, password: &str, nonce: String) -> Exchange {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={user},r={nonce}");
        Exchange {
            hash,
            password: password.as_bytes().to_vec(),
            nonce,
            first_bare,
            server_signature: Vec::new(),
        }
    }

    /// The first message.
    pub(crate) fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    /// The second message, which proves that the password is known.
    pub(crate) fn last(&mut self, server_first: &[u8]) -> Result<Vec<u8>, ScramError> {
        let server_first = std::str::from_utf8(server_first).map_err(|_| "its SCRAM message is not text")?;
        let (mut nonce, mut salt, mut iterations) = (None, None, None);
        for part in server_first.split(',') {
            match part.split_once('=') {
                Some(("r", value)) => nonce = Some(value),
                Some(("s", value)) => salt = STANDARD.decode(value).ok(),
                Some(("i", value)) => iterations = value.parse::<u32>().ok(),
                Some(("m", _)) => return Err("it asks for an extension of SCRAM"),
                _ => {}
            }
        }
        let nonce = nonce.filter(|nonce| nonce.len() > self.nonce.len() && nonce.starts_with(&self.nonce));
        let nonce = nonce.ok_or("it does not continue the SCRAM exchange")?;
        let salt = salt.ok_or("its SCRAM message has no salt")?;
        let iterations = iterations.filter(|count| ITERATIONS.contains(count)).and_then(NonZeroU32::new);
        let iterations =
            iterations.ok_or("it asks for fewer than 4096 or more than a million SCRAM iterations")?;

        let mut salted = vec![0; self.hash.digest().output_len()];
        pbkdf2::derive(self.hash.pbkdf2(), iterations, &salt, &self.password, &mut salted);
        let client_key = self.sign(&salted, b"Client Key");
        let stored_key = digest::digest(self.hash.digest(), &client_key);
        let last_bare = format!("c=biws,r={nonce}");
        let message = format!("{},{server_first},{last_bare}", self.first_bare);
        let signature = self.sign(stored_key.as_ref(), message.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(key, sign)| key ^ sign).collect();
        let server_key = self.sign(&salted, b"Server Key");
        self.server_signature = self.sign(&server_key, message.as_bytes());
        Ok(format!("{last_bare},p={}", STANDARD.encode(proof)).into_bytes())
    }

    /// Checks that the broker knows the password, too.
    pub(crate) fn verify(&self, server_last: &[u8]) -> Result<(), ScramError> {
        let signature = std::str::from_utf8(server_last).ok().and_then(|text| text.strip_prefix("v="));
        let signature = signature.and_then(|text| STANDARD.decode(text.split(',').next()?).ok());
        match signature {
            Some(signature) if !signature.is_empty() && signature == self.server_signature => Ok(()),
            _ => Err("it does not prove that it knows the password"),
        }
    }

    fn sign(&self, key: &[u8], message: &[u8]) -> Vec<u8> {
        hmac::sign(&hmac::Key::new(self.hash.hmac(), key), message).as_ref().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange() -> Exchange {
        Exchange::new(Hash::Sha256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO".to_owned())
    }

    const SERVER_FIRST: &str =
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";

    #[test]
    fn the_example_of_rfc_7677() {
        let mut exchange = exchange();
        assert_eq!(exchange.first(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let last = exchange.last(SERVER_FIRST.as_bytes()).unwrap();
        assert_eq!(
            String::from_utf8(last).unwrap(),
            "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
             p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        );
        assert_eq!(exchange.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="), Ok(()));
        assert!(exchange.verify(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5=").is_err());
        assert!(exchange.verify(b"e=other-error").is_err());
    }

    #[test]
    fn a_broker_cannot_weaken_or_replay_the_exchange() {
        for bad in [
            SERVER_FIRST.replace("i=4096", "i=1"),
            SERVER_FIRST.replace("i=4096", "i=4000000000"),
            SERVER_FIRST.replace("rOpr", "rOpx"),
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".to_owned(),
            format!("m=ext,{SERVER_FIRST}"),
            String::new(),
        ] {
            assert!(exchange().last(bad.as_bytes()).is_err(), "{bad}");
        }
        assert!(exchange().verify(b"v=").is_err());
    }

    #[test]
    fn names_are_escaped() {
        let exchange = Exchange::new(Hash::Sha512, "a=b,c", "", "nonce".to_owned());
        assert_eq!(exchange.first(), b"n,,n=a=3Db=2Cc,r=nonce");
    }
}
