use std::io::Write as _;

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use serde_json::{json, Value};

use super::*;

fn signing_key() -> SigningKey {
    SigningKey::from_pkcs8(&rcgen::KeyPair::generate().unwrap().serialize_der()).unwrap()
}

fn encode(part: &Value) -> String {
    URL_SAFE_NO_PAD.encode(part.to_string())
}

#[test]
fn what_was_signed_is_read_back() {
    let key = signing_key();
    let token = sign_jwt(&key, &json!({ "iss": "me", "n": 1 })).unwrap();
    assert_eq!(unverified_claims::<Value>(&token).unwrap()["iss"], "me");
    assert_eq!(
        verify_jwt::<Value>(&token, [key.public()].into_iter()).unwrap(),
        json!({ "iss": "me", "n": 1 })
    );
    let header: Value = part(token.split('.').next().unwrap()).unwrap();
    assert_eq!(header, json!({ "alg": "ES256", "kid": key.public().id() }), "the key and nothing else");
}

#[test]
fn forged_tokens_by_table() {
    for (pem, other) in [(forms::P256_SEC1, "RS256"), (forms::P521_SEC1, "ES256")] {
        forged(&SigningKey::read(file(pem).path()).unwrap(), other);
    }
}

/// `another` is an algorithm that is not the key's.
fn forged(key: &SigningKey, another: &str) {
    let other = signing_key();
    let own = key.public().algorithms()[0].name();
    let claims = json!({ "iss": "me" });
    let good = sign_jwt(key, &claims).unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let [head, body, signature] = parts.as_slice() else { panic!("three parts") };
    let public = key.public().to_jwk().0;
    // The public key taken for a shared secret: its coordinates, as an attacker has them.
    let secret = format!("{}{}", public["x"], public["y"]);
    let hs256 = {
        let message = format!("{}.{body}", encode(&json!({ "alg": "HS256" })));
        let mac = ::ring::hmac::sign(
            &::ring::hmac::Key::new(::ring::hmac::HMAC_SHA256, secret.as_bytes()),
            message.as_bytes(),
        );
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(mac))
    };
    let mut flipped = URL_SAFE_NO_PAD.decode(signature).unwrap();
    flipped[10] ^= 1;
    let rows = [
        ("another key", sign_jwt(&other, &claims).unwrap(), JwtError::Signature),
        ("no signature", format!("{head}.{body}."), JwtError::Signature),
        (
            "a changed signature",
            format!("{head}.{body}.{}", URL_SAFE_NO_PAD.encode(flipped)),
            JwtError::Signature,
        ),
        (
            "other claims",
            format!("{head}.{}.{signature}", encode(&json!({ "iss": "you" }))),
            JwtError::Signature,
        ),
        ("alg none", format!("{}.{body}.", encode(&json!({ "alg": "none" }))), JwtError::Signature),
        (
            "alg None",
            format!("{}.{body}.{signature}", encode(&json!({ "alg": "None" }))),
            JwtError::Signature,
        ),
        ("a public key as secret", hs256, JwtError::Signature),
        (
            "another algorithm",
            format!("{}.{body}.{signature}", encode(&json!({ "alg": another }))),
            JwtError::Signature,
        ),
        (
            "an extension",
            format!("{}.{body}.{signature}", encode(&json!({ "alg": own, "crit": ["exp"] }))),
            JwtError::Critical,
        ),
        ("no algorithm", format!("{}.{body}.{signature}", encode(&json!({}))), JwtError::Malformed),
        ("no header", format!(".{body}.{signature}"), JwtError::Malformed),
        ("two parts", format!("{head}.{body}"), JwtError::Malformed),
        ("four parts", format!("{good}.x"), JwtError::Malformed),
        ("nothing", String::new(), JwtError::Malformed),
    ];
    for (what, token, error) in rows {
        assert_eq!(verify_jwt::<Value>(&token, [key.public()].into_iter()).unwrap_err(), error, "{what}");
    }
    for end in 0..good.len() {
        assert!(verify_jwt::<Value>(&good[..end], [key.public()].into_iter()).is_err(), "cut at {end}");
    }
    assert_eq!(verify_jwt::<Value>(&good, std::iter::empty()).unwrap_err(), JwtError::NoKey);
    assert!(verify_jwt::<Value>(&good, [other.public(), key.public()].into_iter()).is_ok());
}

#[test]
fn times_by_table() {
    let rows = [
        (json!({}), Ok(())),
        (json!({ "exp": 940 }), Ok(())),
        (json!({ "exp": 939 }), Err(JwtError::Expired)),
        (json!({ "exp": 939.5 }), Err(JwtError::Expired)),
        (json!({ "nbf": 1060 }), Ok(())),
        (json!({ "nbf": 1061 }), Err(JwtError::NotYet)),
        (json!({ "iat": 1060 }), Ok(())),
        (json!({ "iat": 1061 }), Err(JwtError::IssuedInFuture)),
        (json!({ "exp": -1, "nbf": i64::MAX }), Err(JwtError::NotYet)),
    ];
    for (claims, outcome) in rows {
        let registered: RegisteredClaims = serde_json::from_value(claims.clone()).unwrap();
        assert_eq!(registered.check_time(1000), outcome, "{claims}");
    }
    for claims in [json!({ "exp": "soon" }), json!({ "aud": 1 }), json!({ "nbf": [] })] {
        assert!(serde_json::from_value::<RegisteredClaims>(claims.clone()).is_err(), "{claims}");
    }
    for (claims, audiences) in
        [(json!({ "aud": "a" }), vec!["a"]), (json!({ "aud": ["a", "b"] }), vec!["a", "b"])]
    {
        assert_eq!(serde_json::from_value::<RegisteredClaims>(claims).unwrap().aud, audiences);
    }
}

/// Keys that OpenSSL made, in every form that upstream reads.
pub(super) mod forms {
    pub(crate) const P256_SEC1: &str = include_str!("testdata/p256-sec1.pem");
    pub(crate) const P256_PKCS8: &str = include_str!("testdata/p256-pkcs8.pem");
    pub(crate) const P256_PUBLIC: &str = include_str!("testdata/p256-public.pem");
    pub(crate) const P384_SEC1: &str = include_str!("testdata/p384-sec1.pem");
    pub(crate) const P521_SEC1: &str = include_str!("testdata/p521-sec1.pem");
    pub(crate) const P521_PKCS8: &str = include_str!("testdata/p521-pkcs8.pem");
    pub(crate) const P521_PUBLIC: &str = include_str!("testdata/p521-public.pem");
    pub(crate) const P521_PUBLIC_ID: &str = "e4MvNqQAd-V7OIXSX1bbq61d-GUy_CPG9Zf-LX4UIXI";
    pub(crate) const RSA_PKCS1: &str = include_str!("testdata/rsa-pkcs1.pem");
    pub(crate) const RSA_PKCS8: &str = include_str!("testdata/rsa-pkcs8.pem");
    pub(crate) const RSA_PUBLIC: &str = include_str!("testdata/rsa-public.pem");
    pub(crate) const RSA_PUBLIC_ID: &str = "CKFpOE04-KVZmucoGV7v38Uouy0LhOXFb6IrJo8hN7I";
    pub(crate) const P256_PUBLIC_ID: &str = "w55J8sXQ4xaqhA7Csb8Wc7SHMfDKIcC6MtUIEqcZkZQ";
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn every_form_of_key_signs_and_verifies() {
    use forms::*;
    for (private, public, id) in [
        (P256_SEC1, P256_PUBLIC, Some(P256_PUBLIC_ID)),
        (P256_PKCS8, P256_PUBLIC, Some(P256_PUBLIC_ID)),
        (P384_SEC1, P384_SEC1, None),
        (P521_SEC1, P521_PUBLIC, Some(P521_PUBLIC_ID)),
        (P521_PKCS8, P521_SEC1, Some(P521_PUBLIC_ID)),
        (RSA_PKCS1, RSA_PUBLIC, Some(RSA_PUBLIC_ID)),
        (RSA_PKCS8, RSA_PUBLIC, Some(RSA_PUBLIC_ID)),
    ] {
        let key = SigningKey::read(file(private).path()).unwrap();
        let keys = keys::read_public_keys(file(public).path()).unwrap();
        let token = sign_jwt(&key, &json!({})).unwrap();
        assert_eq!(verify_jwt::<Value>(&token, keys.iter()), Ok(json!({})));
        assert_eq!(keys[0].id(), key.public().id());
        if let Some(id) = id {
            assert_eq!(keys[0].id(), id);
        }
        let algorithm = jwt_header(&token).unwrap().algorithm().unwrap();
        assert_eq!(key.public().to_jwk().1, algorithm.name());
        // What relying parties read is the same key.
        let jwk = serde_json::from_value(key.public().to_jwk().0).unwrap();
        let again = VerifyingKey::from_jwk(&jwk).unwrap();
        assert_eq!(verify_jwt::<Value>(&token, [&again].into_iter()), Ok(json!({})));
    }
    let both = format!("{P256_PUBLIC}{RSA_PUBLIC}");
    assert_eq!(keys::read_public_keys(file(&both).path()).unwrap().len(), 2);
}

#[test]
fn files_without_a_key_are_refused() {
    for text in
        ["", "no PEM", "-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n"]
    {
        assert!(SigningKey::read(file(text).path()).is_err(), "{text}");
        assert!(keys::read_public_keys(file(text).path()).is_err(), "{text}");
    }
    assert!(SigningKey::read(file(forms::P256_PUBLIC).path()).is_err());
}

/// A token with that text as its claims, properly signed.
fn sign_text(key: &SigningKey, claims: &str) -> String {
    let Private::P521(private) = key.private() else { panic!("a key of P-521") };
    let header = encode(&json!({ "alg": "ES512" }));
    let message = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims));
    let signature = private.sign(message.as_bytes()).unwrap();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Members of claims: spelled in two ways, of types that they should not have, more than once.
fn claims() -> impl proptest::strategy::Strategy<Value = String> {
    use proptest::prelude::*;
    let name = prop::sample::select(vec!["iss", "\\u0069ss", "Iss", "sub", "aud", "exp", "nbf", "jti", "x"]);
    let value = prop::sample::select(vec![
        "\"a\"",
        "\"b\"",
        "\"\\u0061\"",
        "[\"a\",\"b\"]",
        "1",
        "1e30",
        "-1",
        "1.5",
        "null",
        "{}",
        "true",
    ]);
    let member = (name, value).prop_map(|(name, value)| format!("\"{name}\": {value}"));
    prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(", ")))
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Selection of the issuer's keys, checks of times and audiences, and the mapping to a user use the same
    /// claims.
    #[test]
    fn every_reader_sees_the_same_claims(text in claims()) {
        #[derive(Debug, serde::Deserialize)]
        struct Issuer {
            #[serde(default)]
            iss: String,
        }
        let key = SigningKey::read(file(forms::P521_SEC1).path()).unwrap();
        let token = sign_text(&key, &text);
        let verified = |token: &str| verify_jwt::<serde_json::Map<String, Value>>(token, [key.public()].into_iter());
        let all = verified(&token).unwrap();
        let untrusted = unverified_claims::<serde_json::Map<String, Value>>(&token);
        proptest::prop_assert_eq!(untrusted.as_ref(), Ok(&all));
        if let Ok(Issuer { iss }) = unverified_claims(&token) {
            proptest::prop_assert_eq!(all.get("iss").map_or("", |iss| iss.as_str().unwrap()), iss);
        }
        if let Ok(registered) = verify_jwt::<RegisteredClaims>(&token, [key.public()].into_iter()) {
            let of_all: RegisteredClaims = serde_json::from_value(Value::Object(all)).unwrap();
            proptest::prop_assert_eq!(of_all, registered);
        }
    }
}

#[test]
fn a_claim_that_is_there_twice_is_refused() {
    let key = SigningKey::read(file(forms::P521_SEC1).path()).unwrap();
    for text in [r#"{"iss":"a","iss":"b"}"#, r#"{"iss":"a","\u0069ss":"b"}"#, r#"{"sub":"a","sub":"a"}"#] {
        let token = sign_text(&key, text);
        let read = verify_jwt::<RegisteredClaims>(&token, [key.public()].into_iter());
        assert_eq!(read, Err(JwtError::Malformed), "{text}");
    }
}
