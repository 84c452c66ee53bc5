//! Tokens with which a new replica joins a cluster.
//!
//! What an operator hands over is `plinth-join.AUTHORITY.ID.SECRET`: the SHA-256 of the public key of the
//! cluster's authority, by which the joining side knows the server before it sends anything, and a
//! credential. Only the credential, `ID.SECRET`, is sent. The cluster keeps its hash, in a Secret that is
//! found by the ID.
//!
//! There is no form without the authority: one that can be left out is left out.

use std::fmt;

use plinth_codec::hex;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

/// Path of a replica at which a token is used, and the authority is found.
pub const JOIN_PATH: &str = "/plinth/join";
/// Namespace of the Secrets.
pub const JOIN_TOKEN_NAMESPACE: &str = "kube-system";
/// Type of the Secrets: that of bootstrap tokens, so that whatever removes expired ones removes these, too.
pub const JOIN_TOKEN_SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// Prefix of the names of the Secrets; the ID follows.
pub const JOIN_TOKEN_SECRET_PREFIX: &str = "bootstrap-token-";
/// Key of a Secret that makes it one for joining, with the value `true`.
pub const JOIN_TOKEN_USAGE: &str = "usage-plinth-join";
/// Key of a Secret with the ID.
pub const JOIN_TOKEN_ID: &str = "token-id";
/// Key of a Secret with [`JoinCredential::hash`].
pub const JOIN_TOKEN_HASH: &str = "token-hash";
/// Key of a Secret with the time after which it is void, as in RFC 3339.
pub const JOIN_TOKEN_EXPIRATION: &str = "expiration";
/// Key of a Secret with a text for people.
pub const JOIN_TOKEN_DESCRIPTION: &str = "description";

/// First part of a token: secret scanners find it by this.
const PREFIX: &str = "plinth-join";
/// Characters of an ID: those of upstream's bootstrap tokens.
const ID_LENGTH: usize = 6;
/// Characters of a secret: twice those of upstream's, 165 bits, so that a plain hash of it can be kept.
const SECRET_LENGTH: usize = 32;
/// Digits of the IDs and secrets.
const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// The SHA-256 of a public key, as a SubjectPublicKeyInfo.
pub type AuthorityHash = [u8; 32];

/// What is sent to a server: an ID, which may be shown, and a secret, which its `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinCredential {
    id: String,
    secret: String,
}

/// A whole token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinToken {
    /// The authority of the server's certificate.
    pub authority: AuthorityHash,
    /// What is sent once the server has shown that certificate.
    pub credential: JoinCredential,
}

/// A text is no token. The text is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not a whole token: expected plinth-join. and 64 hexadecimal digits, an ID of 6 and a secret of 32 characters, with dots between them")]
pub struct MalformedJoinToken;

/// The system has no random numbers.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system's source of random numbers failed")]
pub struct NoRandomness;

impl JoinCredential {
    /// A new credential.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn generate() -> Result<JoinCredential, NoRandomness> {
        let random = SystemRandom::new();
        Ok(JoinCredential { id: digits(&random, ID_LENGTH)?, secret: digits(&random, SECRET_LENGTH)? })
    }

    /// Reads `ID.SECRET`.
    ///
    /// # Errors
    /// [`MalformedJoinToken`].
    pub fn parse(text: &str) -> Result<JoinCredential, MalformedJoinToken> {
        let (id, secret) = text.split_once('.').ok_or(MalformedJoinToken)?;
        let fits =
            |part: &str, length: usize| part.len() == length && part.bytes().all(|b| ALPHABET.contains(&b));
        match fits(id, ID_LENGTH) && fits(secret, SECRET_LENGTH) {
            true => Ok(JoinCredential { id: id.to_owned(), secret: secret.to_owned() }),
            false => Err(MalformedJoinToken),
        }
    }

    /// The ID, which is no secret.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// `ID.SECRET`, for the header of the one request that has it.
    pub fn expose(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }

    /// What the cluster keeps: who reads it cannot join. The ID is part of it, so the hash of one Secret is
    /// of no use in another one.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        for part in [PREFIX, &self.id, &self.secret] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hex::lower(&hash.finalize())
    }

    /// Whether a stored hash is that of this credential, in constant time.
    pub fn matches(&self, hash: &str) -> bool {
        constant_time_eq(&self.hash(), hash)
    }
}

impl fmt::Debug for JoinCredential {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.…", self.id)
    }
}

impl JoinToken {
    /// Reads a whole token.
    ///
    /// # Errors
    /// [`MalformedJoinToken`], also without an authority.
    pub fn parse(text: &str) -> Result<JoinToken, MalformedJoinToken> {
        let rest =
            text.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix('.')).ok_or(MalformedJoinToken)?;
        let (authority, credential) = rest.split_once('.').ok_or(MalformedJoinToken)?;
        let authority =
            hex::decode(authority).and_then(|hash| hash.try_into().ok()).ok_or(MalformedJoinToken)?;
        Ok(JoinToken { authority, credential: JoinCredential::parse(credential)? })
    }

    /// The token as it is handed over.
    pub fn expose(&self) -> String {
        format!("{PREFIX}.{}.{}", hex::lower(&self.authority), self.credential.expose())
    }
}

/// The hash of a certificate's public key: what kubeadm calls `--discovery-token-ca-cert-hash sha256:…`. None
/// for what is no certificate.
pub fn authority_hash(certificate: &[u8]) -> Option<AuthorityHash> {
    let (rest, certificate) = X509Certificate::from_der(certificate).ok()?;
    rest.is_empty().then(|| Sha256::digest(certificate.tbs_certificate.subject_pki.raw).into())
}

/// Compares in constant time; the length is no secret.
pub fn constant_time_eq(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differ, (x, y)| differ | (x ^ y)) == 0
}

fn digits(random: &SystemRandom, length: usize) -> Result<String, NoRandomness> {
    /// Bytes from here on would make some digits more likely than others.
    const LIMIT: u8 = 252;
    let mut text = String::with_capacity(length);
    while text.len() < length {
        let mut bytes = [0; SECRET_LENGTH];
        random.fill(&mut bytes).map_err(|_| NoRandomness)?;
        let fair = bytes.iter().filter(|byte| **byte < LIMIT);
        let digits = fair.map(|byte| char::from(ALPHABET[usize::from(byte % 36)]));
        text.extend(digits.take(length - text.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_one_form() {
        let credential = JoinCredential::generate().unwrap();
        let token = JoinToken { authority: [0xa7; 32], credential };
        let text = token.expose();
        assert_eq!(JoinToken::parse(&text).unwrap(), token);
        for cut in 0..text.len() {
            assert_eq!(JoinToken::parse(&text[..cut]), Err(MalformedJoinToken), "{cut}");
            assert_eq!(JoinToken::parse(&text[cut + 1..]), Err(MalformedJoinToken), "{cut}");
        }
        let (hash, credential) = (hex::lower(&token.authority), token.credential.expose());
        for bad in [
            credential.clone(),
            format!("plinth-join.{credential}"),
            format!("plinth-join..{credential}"),
            format!("plinth-join.{}.{credential}", hash.to_uppercase()),
            format!("plinth-join.{hash}.abcdef.0123456789abcdef"),
            format!("{text} "),
            format!("{text}.x"),
            text.replace("plinth-join", "plinth_join"),
            text.to_uppercase(),
        ] {
            assert_eq!(JoinToken::parse(&bad), Err(MalformedJoinToken), "{bad}");
        }
    }

    #[test]
    fn a_secret_is_neither_shown_nor_kept() {
        let credential = JoinCredential::parse("abcdef.0123456789abcdefghijklmnopqrstuv").unwrap();
        let token = JoinToken { authority: [0; 32], credential: credential.clone() };
        assert!(!format!("{token:?}").contains("0123456789abcdef"));
        assert!(format!("{token:?}").contains("abcdef"));
        let hash = credential.hash();
        assert!(credential.matches(&hash) && hash.len() == 64 && !hash.contains("ghij"));
        // Neither that of another secret nor of the same one with another ID.
        for other in ["abcdef.0123456789abcdefghijklmnopqrstuw", "abcdeg.0123456789abcdefghijklmnopqrstuv"] {
            assert!(!JoinCredential::parse(other).unwrap().matches(&hash), "{other}");
        }
        assert!(!credential.matches("") && !credential.matches(&hash[1..]));
    }

    #[test]
    fn credentials_differ() {
        let made: std::collections::HashSet<String> =
            (0..1000).map(|_| JoinCredential::generate().unwrap().expose()).collect();
        assert_eq!(made.len(), 1000);
        assert!(made.iter().all(|text| JoinCredential::parse(text).is_ok()));
        // Every digit occurs: 32,000 draws of 36.
        assert!(ALPHABET.iter().all(|digit| made.iter().any(|text| text.as_bytes()[7..].contains(digit))));
    }

    #[test]
    fn the_hash_is_of_the_public_key() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = |name: &str| {
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.self_signed(&key).unwrap()
        };
        let (one, other) = (certificate("a"), certificate("b"));
        assert_ne!(one.der(), other.der());
        let hash = authority_hash(one.der()).unwrap();
        assert_eq!(authority_hash(other.der()), Some(hash));
        let spki: [u8; 32] = Sha256::digest(rcgen::PublicKeyData::subject_public_key_info(&key)).into();
        assert_eq!(hash, spki);
        let mut longer = one.der().to_vec();
        longer.push(0);
        assert_eq!(authority_hash(&longer), None);
        assert_eq!(authority_hash(b"text"), None);
    }
}
