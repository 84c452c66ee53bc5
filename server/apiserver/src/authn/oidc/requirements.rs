//! What every token of an issuer must meet, and those that its distributed claims come in.

use plinth_pki::{JwtAlgorithm, JwtError, RegisteredClaims};

use super::claims::{sources, Claims, OidcError};
use super::provider::Provider;

/// Requirements on every token, including those of distributed claims.
pub(super) struct TokenRequirements {
    pub(super) algorithms: Vec<JwtAlgorithm>,
    /// A token must have one of these audiences.
    pub(super) audiences: Vec<String>,
}

impl TokenRequirements {
    /// Verifies a token of this issuer and returns its claims. `now` in seconds since 1970.
    ///
    /// # Errors
    /// [`OidcError`].
    pub(super) async fn verify(
        &self,
        provider: &Provider,
        token: &str,
        now: i64,
    ) -> Result<Claims, OidcError> {
        let claims = provider.verify(token, &self.algorithms).await?;
        self.check(&claims, now)?;
        Ok(claims)
    }

    /// Checks audience and validity as go-oidc does: `exp` without leeway, `nbf` with a minute of leeway;
    /// `iat` is ignored.
    pub(super) fn check(&self, claims: &Claims, now: i64) -> Result<(), OidcError> {
        let registered = serde_json::to_value(claims).and_then(serde_json::from_value);
        let RegisteredClaims { aud, exp, nbf, .. } =
            registered.map_err(|error| OidcError::Claims(format!("parse claims: {error}")))?;
        sources(claims)?;
        if !aud.iter().any(|audience| self.audiences.contains(audience)) {
            return Err(OidcError::Audience { wanted: self.audiences.clone(), tokens: aud });
        }
        // A token without `exp` is expired.
        if exp.unwrap_or(0) < now {
            return Err(OidcError::Jwt(JwtError::Expired));
        }
        RegisteredClaims { nbf, ..RegisteredClaims::default() }.check_time(now)?;
        Ok(())
    }
}
