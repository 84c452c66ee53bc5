//! Reading and checking the configuration of OpenID Connect issuers: the flags `--oidc-*` and the file of
//! `--authentication-config`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use plinth_api::{read_config, ConfigFileError, ConfigKind};
use plinth_pki::JwtAlgorithm;

use super::authenticators::{
    ClaimMappings, ClaimRule, Configuration, IssuerConfig, JwtAuthenticator, PrefixedClaim,
};
use super::expressions::Expressions;
use super::options::OidcOptions;
use crate::egress::tls;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {source}")]
    Io {
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file cannot be read or decoded.
    #[error(transparent)]
    File(#[from] ConfigFileError),
    /// Validation errors, each with its field.
    #[error("invalid authentication configuration: {}", .0.join(", "))]
    Invalid(Vec<String>),
}

/// The versions do not differ in the supported fields.
const KIND: ConfigKind = ConfigKind {
    kind: "AuthenticationConfiguration",
    versions: &[
        "apiserver.config.k8s.io/v1",
        "apiserver.config.k8s.io/v1beta1",
        "apiserver.config.k8s.io/v1alpha1",
    ],
};

impl Configuration {
    /// Reads and validates the file. `own_issuers` issue service account tokens; no other issuer may have
    /// their URL.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path, own_issuers: &[String]) -> Result<Configuration, ConfigError> {
        let configuration: Configuration = read_config(path, KIND)?;
        configuration.check(own_issuers)?;
        Ok(configuration)
    }

    fn check(&self, own_issuers: &[String]) -> Result<(), ConfigError> {
        let mut errors = Vec::new();
        if self.jwt.len() > 64 {
            errors.push(format!("jwt: Too many: {}: must have at most 64 items", self.jwt.len()));
        }
        let (mut issuers, mut discoveries) = (BTreeSet::new(), BTreeSet::new());
        for (i, jwt) in self.jwt.iter().enumerate() {
            let path = format!("jwt[{i}]");
            jwt.check(&path, own_issuers, &mut errors);
            if !issuers.insert(&jwt.issuer.url) {
                errors.push(format!("{path}.issuer.url: Duplicate value: {:?}", jwt.issuer.url));
            }
            let discovery = &jwt.issuer.discovery_url;
            if !discovery.is_empty() && !discoveries.insert(discovery) {
                errors.push(format!("{path}.issuer.discoveryURL: Duplicate value: {discovery:?}"));
            }
        }
        if self.anonymous.as_ref().is_some_and(|a| !a.enabled && !a.conditions.is_empty()) {
            errors.push(
                "anonymous.conditions: enabled should be set to true when conditions are defined".into(),
            );
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(ConfigError::Invalid(errors)),
        }
    }
}

/// Appends an error to a field.
type Report<'r> = &'r mut dyn FnMut(&str, &str);

impl JwtAuthenticator {
    fn check(&self, path: &str, own_issuers: &[String], errors: &mut Vec<String>) {
        let mut error = |field: &str, what: &str| errors.push(format!("{path}.{field}: {what}"));
        self.issuer.check(own_issuers, &mut error);
        for rule in &self.claim_validation_rules {
            match (rule.claim.is_empty(), rule.expression.is_empty()) {
                (true, true) => error("claimValidationRules", "claim or expression is required"),
                (false, false) => error("claimValidationRules", "claim and expression can't both be set"),
                (true, false) => {}
                (false, true) if !rule.message.is_empty() => {
                    error("claimValidationRules", "message may not be specified when claim is set");
                }
                (false, true) => {}
            }
        }
        self.claim_mappings.check(&mut error);
        if let Some(bad) = self.algorithms.iter().find(|name| JwtAlgorithm::of(name).is_none()) {
            error("signing-algs", &format!("oidc: unsupported signing alg: {bad:?}"));
        }
        Expressions::compile(self, path, errors);
    }
}

impl IssuerConfig {
    fn check(&self, own_issuers: &[String], error: Report<'_>) {
        if self.url.is_empty() {
            error("issuer.url", "Required value");
        } else if own_issuers.contains(&self.url) {
            error(
                "issuer.url",
                &format!(
                    "Invalid value: {:?}: URL must not overlap with disallowed issuers: [{}]",
                    self.url,
                    own_issuers.join(" ")
                ),
            );
        }
        for (field, url) in [("issuer.url", &self.url), ("issuer.discoveryURL", &self.discovery_url)] {
            if !url.is_empty() {
                if let Some(why) = url_error(url) {
                    error(field, &format!("Invalid value: {url:?}: {why}"));
                }
            }
        }
        if !self.discovery_url.is_empty()
            && self.url.trim_end_matches('/') == self.discovery_url.trim_end_matches('/')
        {
            error("issuer.discoveryURL", "discoveryURL must be different from URL");
        }
        if self.audiences.is_empty() {
            error("issuer.audiences", "Required value: at least one issuer.audiences is required");
        }
        if self.audiences.iter().any(String::is_empty) {
            error("issuer.audiences", "Required value");
        }
        let any = self.audience_match_policy == "MatchAny";
        if self.audiences.len() > 1 && !any {
            error(
                "issuer.audienceMatchPolicy",
                "audienceMatchPolicy must be MatchAny for multiple audiences",
            );
        } else if !any && !self.audience_match_policy.is_empty() {
            error(
                "issuer.audienceMatchPolicy",
                "audienceMatchPolicy must be empty or MatchAny for single audience",
            );
        }
        if !self.certificate_authority.is_empty() {
            if let Err(why) = tls::authorities(self.certificate_authority.as_bytes()) {
                error("issuer.certificateAuthority", &format!("Invalid value: \"<omitted>\": {why}"));
            }
        }
        if !self.egress_selector_type.is_empty() {
            error("issuer.egressSelectorType", "egress selectors are not supported");
        }
    }
}

impl ClaimMappings {
    fn check(&self, error: Report<'_>) {
        const BOTH: &str = "claim and expression can't both be set";
        const NO_PREFIX: &str = "Required value: prefix is required when claim is set. \
            It can be set to an empty string to disable prefixing";
        for (name, mapping, required) in [("username", &self.username, true), ("groups", &self.groups, false)]
        {
            let field = format!("claimMappings.{name}");
            let (claim, prefix) = (format!("{field}.claim"), format!("{field}.prefix"));
            match (mapping.claim.is_empty(), mapping.prefix.is_some()) {
                (true, true) if !mapping.expression.is_empty() => {
                    error(&prefix, "prefix may not be specified when expression is set");
                }
                (true, false) if !mapping.expression.is_empty() => {}
                (true, true) => error(&claim, "non-empty claim name is required when prefix is set"),
                (true, false) if required => error(&field, "Required value: claim or expression is required"),
                (false, false) => error(&prefix, NO_PREFIX),
                (false, true) if !mapping.expression.is_empty() => error(&field, BOTH),
                _ => {}
            }
        }
        if !self.uid.claim.is_empty() && !self.uid.expression.is_empty() {
            error("claimMappings.uid", BOTH);
        }
    }
}

fn url_error(url: &str) -> Option<&'static str> {
    let Ok(parsed) = url.parse::<hyper::Uri>() else { return Some("no URL") };
    if parsed.scheme_str() != Some("https") {
        return Some("URL scheme must be https");
    }
    if parsed.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Some("URL must not contain a username or password");
    }
    if parsed.query().is_some() {
        return Some("URL must not contain a query");
    }
    url.contains('#').then_some("URL must not contain a fragment")
}

/// The configuration given by flags; `None` without an issuer.
///
/// # Errors
/// [`ConfigError`].
pub(crate) fn of_flags(
    options: &OidcOptions,
    own_issuers: &[String],
) -> Result<Option<Configuration>, ConfigError> {
    let invalid = |what: &str| ConfigError::Invalid(vec![what.to_owned()]);
    let (url, client) =
        match (&options.oidc_issuer_url, &options.oidc_client_id) {
            (None, None) => return Ok(None),
            (Some(url), Some(client)) => (url.clone(), client.clone()),
            _ => return Err(invalid(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            )),
        };
    let certificate_authority = match &options.oidc_ca_file {
        None => String::new(),
        Some(path) => {
            std::fs::read_to_string(path).map_err(|source| ConfigError::Io { path: path.clone(), source })?
        }
    };
    // User names of several issuers must not collide: the default prefix is the issuer.
    let prefix = match options.oidc_username_prefix.as_str() {
        "-" => String::new(),
        "" if options.oidc_username_claim != "email" => format!("{url}#"),
        prefix => prefix.to_owned(),
    };
    let claim = |claim: &str, prefix: String| PrefixedClaim {
        claim: claim.to_owned(),
        prefix: Some(prefix),
        expression: String::new(),
    };
    let groups = options.oidc_groups_claim.as_deref();
    let rules = options.oidc_required_claim.iter().map(|pair| {
        let (claim, value) = pair.split_once('=').unwrap_or((pair, ""));
        ClaimRule { claim: claim.to_owned(), required_value: value.to_owned(), ..ClaimRule::default() }
    });
    let jwt = JwtAuthenticator {
        issuer: IssuerConfig {
            url,
            certificate_authority,
            audiences: vec![client],
            ..IssuerConfig::default()
        },
        claim_validation_rules: rules.collect(),
        claim_mappings: ClaimMappings {
            username: claim(&options.oidc_username_claim, prefix),
            groups: groups.map(|name| claim(name, options.oidc_groups_prefix.clone())).unwrap_or_default(),
            ..ClaimMappings::default()
        },
        algorithms: options.oidc_signing_algs.clone(),
        ..JwtAuthenticator::default()
    };
    let configuration = Configuration { jwt: vec![jwt], ..Configuration::default() };
    configuration.check(own_issuers)?;
    Ok(Some(configuration))
}
