use serde_json::json;

use super::config::of_flags;
use super::*;
use plinth_pki::JwtError;
use std::collections::BTreeMap;

const ISSUER: &str = "https://issuer.example";

fn write(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// A certificate authority for the configuration.
fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::default().self_signed(&key).unwrap().pem()
}

fn file(jwt: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n{jwt}")
}

fn jwt(issuer: &str, rest: &str) -> String {
    let ca: String = authority().lines().map(|line| format!("      {line}\n")).collect();
    file(&format!("jwt:\n- issuer:\n    {issuer}\n    certificateAuthority: |\n{ca}  {rest}\n"))
}

/// The user of the claims at that time, after the signature has been verified.
fn user(issuer: &Issuer, claims: Value, now: i64) -> Result<User, OidcError> {
    let claims = serde_json::from_value(claims).unwrap();
    issuer.rules.check(&claims, now)?;
    issuer.user(&claims)
}

const MAPPINGS: &str = "claimMappings: {username: {claim: sub, prefix: 'x:'}, groups: {claim: groups, prefix: 'g:'}, uid: {claim: oid}}";

fn issuer(rest: &str) -> Issuer {
    let text = jwt(&format!("url: {ISSUER}\n    audiences: [a, b]\n    audienceMatchPolicy: MatchAny"), rest);
    let configuration = Configuration::read(write(&text).path(), &[]).unwrap();
    Issuer::new(configuration.jwt[0].clone()).unwrap()
}

#[test]
fn configurations_by_table() {
    let good = format!("url: {ISSUER}\n    audiences: [a]");
    let rows = [
        (jwt(&good, MAPPINGS), ""),
        (file("anonymous: {enabled: true, conditions: [{path: /livez}]}"), ""),
        (file("anonymous: {enabled: false, conditions: [{path: /livez}]}"), "enabled should be set to true"),
        (file("jwts: []"), "unknown field \"jwts\""),
        ("kind: Pod\napiVersion: v1".into(), "expected AuthenticationConfiguration of"),
        (jwt("url: http://issuer.example\n    audiences: [a]", MAPPINGS), "URL scheme must be https"),
        (jwt("url: https://u:p@issuer.example\n    audiences: [a]", MAPPINGS), "must not contain a username"),
        (jwt("url: https://issuer.example?x=1\n    audiences: [a]", MAPPINGS), "must not contain a query"),
        (
            jwt("url: https://own.example\n    audiences: [a]", MAPPINGS),
            "must not overlap with disallowed issuers",
        ),
        (jwt(&format!("url: {ISSUER}\n    audiences: []"), MAPPINGS), "audiences is required"),
        (
            jwt(&format!("url: {ISSUER}\n    audiences: [a, b]"), MAPPINGS),
            "must be MatchAny for multiple audiences",
        ),
        (
            jwt(&format!("{good}\n    discoveryURL: {ISSUER}/"), MAPPINGS),
            "discoveryURL must be different from URL",
        ),
        (jwt(&good, "claimMappings: {}"), "claim or expression is required"),
        (jwt(&good, "claimMappings: {username: {claim: sub}}"), "prefix is required when claim is set"),
        (jwt(&good, "claimMappings: {username: {prefix: x}}"), "non-empty claim name is required"),
        (jwt(&good, "claimMappings: {username: {expression: claims.sub}}"), ""),
        (
            jwt(&good, "claimMappings: {username: {expression: claims.sub, prefix: x}}"),
            "prefix may not be specified when expression is set",
        ),
        (
            jwt(&good, "claimMappings: {username: {expression: claims.email}}"),
            "claims.email_verified must be used in",
        ),
        (
            jwt(&good, "claimMappings: {username: {expression: 'claims.email_verified ? claims.email : claims.sub'}}"),
            "",
        ),
        (
            jwt(&good, "claimMappings: {username: {expression: nope}}"),
            "claimMappings.username.expression: Invalid value: \"nope\": compilation failed: ERROR",
        ),
        (jwt(&good, &format!("{MAPPINGS}\n  userValidationRules: [{{expression: 'true'}}]")), ""),
        (
            jwt(&good, &format!("{MAPPINGS}\n  userValidationRules: [{{expression: user.name}}]")),
            "undefined field 'name'",
        ),
        (
            jwt(&good, &format!("{MAPPINGS}\n  userValidationRules: [{{expression: 'user.username'}}]")),
            "must evaluate to bool but got string",
        ),
        (
            jwt(&good, &format!("{MAPPINGS}\n  claimValidationRules: [{{claim: a, expression: 'true'}}]")),
            "claim and expression can't both be set",
        ),
        (
            jwt(&good, "claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: A.example/x, valueExpression: claims.a}]}"),
            "must be lowercase",
        ),
        (
            jwt(&good, "claimMappings: {username: {claim: sub, prefix: ''}, extra: [{key: a.k8s.io/x, valueExpression: claims.a}]}"),
            "are reserved for Kubernetes use",
        ),
        (
            jwt(&good, &format!("{MAPPINGS}\n  claimValidationRules: [{{}}]")),
            "claim or expression is required",
        ),
    ];
    for (text, expected) in rows {
        let outcome = Configuration::read(write(&text).path(), &["https://own.example".to_owned()]);
        match (outcome, expected) {
            (Ok(_), "") => {}
            (Ok(_), expected) => panic!("{text} was accepted without {expected}"),
            (Err(error), expected) => {
                assert!(!expected.is_empty() && error.to_string().contains(expected), "{text}: {error}");
            }
        }
    }
}

#[test]
fn flags_by_table() {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        oidc: OidcOptions,
    }
    let ca = write(&authority());
    let ca = format!("--oidc-ca-file={}", ca.path().display());
    let name = |flags: &[&str]| {
        use clap::Parser as _;
        let all = ["plinth", "--oidc-issuer-url=https://issuer.example", "--oidc-client-id=me", &ca];
        let flags = Flags::parse_from(all.iter().chain(flags));
        let configuration = of_flags(&flags.oidc, &[]).unwrap().unwrap();
        Issuer::new(configuration.jwt[0].clone())
            .unwrap()
            .name(&serde_json::from_value(json!({ "sub": "s", "email": "e@x" })).unwrap())
    };
    let rows: &[(&[&str], &str)] = &[
        (&[], "https://issuer.example#s"),
        (&["--oidc-username-prefix=p:"], "p:s"),
        (&["--oidc-username-prefix=-"], "s"),
        (&["--oidc-username-claim=email"], "e@x"),
    ];
    for (flags, expected) in rows {
        assert_eq!(name(flags).unwrap(), *expected, "{flags:?}");
    }
    use clap::Parser as _;
    assert!(of_flags(&Flags::parse_from(["plinth"]).oidc, &[]).unwrap().is_none());
    assert!(of_flags(&Flags::parse_from(["plinth", "--oidc-client-id=me"]).oidc, &[]).is_err());
    let bad =
        ["plinth", "--oidc-issuer-url=https://x", "--oidc-client-id=me", &ca, "--oidc-signing-algs=HS256"];
    assert!(of_flags(&Flags::parse_from(bad).oidc, &[])
        .unwrap_err()
        .to_string()
        .contains("unsupported signing alg"));
}

#[test]
fn claims_by_table() {
    let issuer =
        issuer(&format!("{MAPPINGS}\n  claimValidationRules: [{{claim: hd, requiredValue: example.com}}]"));
    let good = json!({ "aud": "b", "exp": 2000, "sub": "jane", "oid": "u", "hd": "example.com", "groups": ["a", "b"], "jti": "j" });
    let ask = |change: Value| {
        let mut claims = good.clone();
        for (key, value) in change.as_object().unwrap() {
            claims[key] = value.clone();
        }
        user(&issuer, claims, 1000)
    };
    let made = ask(json!({})).unwrap();
    assert_eq!((made.name.as_str(), made.uid.as_str()), ("x:jane", "u"));
    assert_eq!(made.groups, ["g:a", "g:b", "system:authenticated"]);
    assert_eq!(made.credential_id(), Some("JTI=j"));
    assert_eq!(ask(json!({ "groups": "a" })).unwrap().groups, ["g:a", "system:authenticated"]);
    assert_eq!(ask(json!({ "groups": null })).unwrap().groups, ["system:authenticated"]);
    // At the edge of its validity, and issued by a clock that is fast.
    for good in [json!({ "exp": 1000 }), json!({ "nbf": 1060 }), json!({ "iat": 5000 })] {
        assert!(ask(good.clone()).is_ok(), "{good}");
    }
    let rows = [
        (json!({ "aud": "c" }), "expected audience"),
        (json!({ "aud": [] }), "expected audience"),
        (json!({ "exp": 999 }), "expired"),
        (json!({ "exp": null }), "parse claims"),
        (json!({ "nbf": 1061 }), "not valid yet"),
        (json!({ "_claim_names": "src" }), "failed to unmarshal claims"),
        (json!({ "_claim_names": { "a": 1 } }), "failed to unmarshal claims"),
        (json!({ "_claim_names": { "a": "" } }), "failed to obtain source from claim name"),
        (json!({ "_claim_names": { "a": "src" } }), "source does not exist"),
        (json!({ "_claim_names": { "a": "src" }, "_claim_sources": { "b": {} } }), "source does not exist"),
        (json!({ "_claim_names": { "a": "src" }, "_claim_sources": "b" }), "failed to unmarshal claims"),
        (json!({ "hd": "other" }), "required claim hd value does not match"),
        (json!({ "sub": 1 }), "parse claims"),
        (json!({ "sub": "" }), "empty username"),
        (json!({ "groups": [1] }), "parse groups claim"),
        (json!({ "oid": 1 }), "parse uid claim"),
    ];
    for (change, expected) in rows {
        let error = ask(change.clone()).unwrap_err().to_string();
        assert!(error.contains(expected), "{change}: {error}");
    }
}

#[test]
fn expressions_make_and_check_users() {
    let rest = "claimMappings:
    username: {expression: \"'x:' + claims.sub\"}
    groups: {expression: \"claims.roles.split(',').map(r, 'r:' + r)\"}
    uid: {expression: claims.oid}
    extra:
    - {key: example.com/tenant, valueExpression: claims.tenant}
    - {key: example.com/none, valueExpression: \"has(claims.none) ? claims.none : ''\"}
  claimValidationRules:
  - {expression: claims.exp - claims.iat <= 3600, message: too long a life}
  userValidationRules:
  - {expression: \"!user.username.startsWith('x:system:')\", message: reserved}
  - {expression: \"user.groups.all(g, g != 'r:root')\", message: no root}";
    let issuer = issuer(rest);
    let good = json!({ "aud": "b", "iat": 1000, "exp": 2000, "sub": "jane", "oid": "u", "roles": "a,b", "tenant": ["t"] });
    let ask = |change: Value| {
        let mut claims = good.clone();
        for (key, value) in change.as_object().unwrap() {
            claims[key] = value.clone();
        }
        user(&issuer, claims, 1500)
    };
    let made = ask(json!({})).unwrap();
    assert_eq!((made.name.as_str(), made.uid.as_str()), ("x:jane", "u"));
    assert_eq!(made.groups, ["r:a", "r:b", "system:authenticated"]);
    assert_eq!(made.extra, BTreeMap::from([("example.com/tenant".to_owned(), vec!["t".to_owned()])]));
    let rows = [
        (json!({ "sub": 1 }), "parse claims"),
        (json!({ "oid": 1 }), "uid claim expression must return a string"),
        (json!({ "roles": ["a"] }), "error evaluating group claim expression"),
        (json!({ "tenant": 1 }), "must return a string or a list of strings"),
        (json!({ "iat": 1 , "exp": 9000}), "validation expression 'claims.exp - claims.iat <= 3600' failed: too long a life"),
        (json!({ "sub": "system:admin" }), "error evaluating user info validation rule: validation expression '!user.username.startsWith('x:system:')' failed: reserved"),
        (json!({ "roles": "root" }), "failed: no root"),
    ];
    for (change, expected) in rows {
        let error = ask(change.clone()).unwrap_err().to_string();
        assert!(error.contains(expected), "{change}: {error}");
    }
}

#[test]
fn unverified_mail_is_no_name() {
    let issuer = issuer("claimMappings: {username: {claim: email, prefix: ''}}");
    for (verified, named) in [(json!(true), true), (json!(false), false), (json!("true"), false)] {
        let claims = serde_json::from_value(json!({ "email": "e@x", "email_verified": verified })).unwrap();
        assert_eq!(issuer.name(&claims).is_ok(), named, "{verified}");
    }
}

#[tokio::test]
async fn tokens_of_others_are_left_to_others() {
    let mut configuration =
        Configuration::read(write(&jwt(&format!("url: {ISSUER}\n    audiences: [a]"), MAPPINGS)).path(), &[])
            .unwrap();
    configuration.jwt[0].algorithms = vec!["RS256".into()];
    let issuers = Issuers::new(&configuration).unwrap();
    assert_eq!(issuers.authenticate("abc").await, Ok(None));
    let key =
        plinth_pki::SigningKey::from_pkcs8(&rcgen::KeyPair::generate().unwrap().serialize_der()).unwrap();
    let other = plinth_pki::sign_jwt(&key, &json!({ "iss": "https://other.example" })).unwrap();
    assert_eq!(issuers.authenticate(&other).await, Ok(None));
    // ES256 is not allowed: the keys are not even fetched.
    let ours = plinth_pki::sign_jwt(&key, &json!({ "iss": ISSUER })).unwrap();
    assert_eq!(issuers.authenticate(&ours).await, Err(OidcError::Jwt(JwtError::Signature)));
}
