//! The signature algorithms of tokens.

/// Signature algorithms (RFC 7518, 3.1): only asymmetric ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names are those of the RFC
pub enum JwtAlgorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    ES512,
}

impl JwtAlgorithm {
    /// All algorithms.
    pub const ALL: [JwtAlgorithm; 9] = {
        use JwtAlgorithm::*;
        [RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, PS512]
    };

    /// Name in tokens.
    pub fn name(self) -> &'static str {
        use JwtAlgorithm::*;
        match self {
            RS256 => "RS256",
            RS384 => "RS384",
            RS512 => "RS512",
            PS256 => "PS256",
            PS384 => "PS384",
            PS512 => "PS512",
            ES256 => "ES256",
            ES384 => "ES384",
            ES512 => "ES512",
        }
    }

    /// Parses a name.
    pub fn of(name: &str) -> Option<JwtAlgorithm> {
        JwtAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// The same in `jsonwebtoken`, which does not have all.
    pub(super) fn of_library(self) -> Option<jsonwebtoken::Algorithm> {
        self.name().parse().ok()
    }
}
