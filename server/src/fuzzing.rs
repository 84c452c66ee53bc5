//! Entry points for fuzz targets of this crate and their tests on stable Rust. Not part of the interface.
//!
//! Each function accepts arbitrary bytes and returns: its input is either rejected or decoded consistently.
//! `fuzz/README.md` describes how to run them.

use std::path::PathBuf;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::Method;
use percent_encoding::percent_decode_str;
use plinth_codec::json;

use crate::admission;
use plinth_api::{parse_route, query_parameter, query_parameters, OptionsOf, Query, Route};
use plinth_apiserver::authn::oidc::authenticators::Configuration as OidcConfiguration;
use plinth_apiserver::authn::token_file::TokenFile;
use plinth_apiserver::authn::{impersonation, websocket};
use plinth_apiserver::egress::kubeconfig::Kubeconfig;
use plinth_apiserver::{audit, authn, authz, custom_resources};
use plinth_pki::{jwt_header, unverified_claims, verify_jwt, RegisteredClaims, SigningKey, VerifyingKey};
use plinth_storage::{
    parse_encryption_config, stored_header_bytes, ContinueTokens, Header, SealedValue, Stored,
};

/// A fuzz target.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this crate by name.
pub const ALL: [Target; 11] = [
    ("request_path", request_path),
    ("query", query),
    ("webhook_answers", webhook_answers),
    ("kubeconfig", kubeconfig),
    ("configuration", configuration),
    ("continue_token", continue_token),
    ("stored", stored_value),
    ("identity_headers", identity_headers),
    ("jwt", json_web_token),
    ("pem", plinth_pki::fuzzing::pem_blocks),
    ("certificate_request", plinth_pki::fuzzing::certificate_request),
];

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// The first byte, and the rest.
fn choice(input: &[u8]) -> (usize, &[u8]) {
    input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest))
}

/// The input as a file, for functions that read a path.
fn file(input: &[u8]) -> Option<PathBuf> {
    let name = format!("plinth-fuzz-{}-{:?}", std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(name.replace(['(', ')'], "-"));
    std::fs::write(&path, input).ok()?;
    Some(path)
}

/// A method and a path with its query, as the authorizer and the handlers see them: the authorized parts are
/// those of the path, each once and in order.
pub fn request_path(input: &[u8]) {
    let (method, rest) = choice(input);
    let Ok(text) = std::str::from_utf8(rest) else { return };
    // hyper accepts only URIs.
    let Ok(uri) = text.parse::<hyper::Uri>() else { return };
    let method = &METHODS[method % METHODS.len()];
    let Ok(Route::Resource(info)) = parse_route(method, uri.path(), uri.query()) else { return };
    if !info.is_below_namespace && !info.namespace.is_empty() {
        // Authorization in a namespace is for requests in it, or on the namespace itself.
        assert_eq!((info.resource.as_str(), &info.namespace), ("namespaces", &info.name), "{info:?}");
    }
    let mut parts = Vec::new();
    if info.verb_in_path {
        parts.push(info.verb.as_str());
    }
    if info.is_below_namespace {
        parts.extend(["namespaces", &info.namespace]);
    }
    parts.extend([info.resource.as_str(), &info.name, &info.subresource]);
    let trim = |text: &str| text.trim_matches('/').to_owned();
    let decode = |text: &str| trim(&percent_decode_str(text).decode_utf8_lossy());
    let (decoded, tail) = (decode(uri.path()), decode(&info.tail));
    let (group, version, parts) = (&info.group, &info.version, parts.join("/"));
    let heads = [format!("apis/{group}/{version}/{parts}"), format!("api/{version}/{parts}")];
    let found = if group.is_empty() { heads.iter() } else { heads[..1].iter() };
    let mut behind = found.filter_map(|header| decoded.strip_prefix(&trim(header)).map(trim));
    assert!(behind.any(|behind| behind == tail), "{uri} is {info:?}");
}

/// The query of a request.
pub fn query(input: &[u8]) {
    let Ok(raw) = std::str::from_utf8(input) else { return };
    for (name, value) in query_parameters(raw) {
        let first = query_parameter(raw, &name);
        assert!(first.is_some(), "{name} is there and is not found");
        drop(value);
    }
    if let Ok(query) = Query::parse(Some(raw), OptionsOf::DeleteCollection) {
        let _ = query.check_write_options("CreateOptions");
        assert_eq!(query.is_dry_run(), !query.dry_run.is_empty());
        let first = query_parameter(raw, "resourceVersion");
        assert_eq!(first.as_deref().unwrap_or_default(), query.resource_version);
    }
}

/// Responses of webhooks for admission, authorization, authentication, images and conversion.
pub fn webhook_answers(input: &[u8]) {
    let (kind, rest) = choice(input);
    // Only a review that allows may allow.
    if let Ok(answer) = authz::webhook::review::decode(rest, authz::webhook::review::AccessReviewVersion::V1)
    {
        assert!(!answer.allowed || is_true_at(rest, &["status", "allowed"]));
        assert!(!answer.denied || is_true_at(rest, &["status", "denied"]));
    }
    let Ok(review) = json::parse(rest) else { return };
    if let Ok(answer) = admission::webhook::review::answer(review.clone(), "u", kind % 2 == 0) {
        assert!(!answer.allowed || is_true_at(rest, &["response", "allowed"]));
        assert!(kind % 2 == 0 || answer.patch.is_none(), "a validating webhook patches");
    }
    let audiences = ["a".to_owned(), "b".to_owned()];
    let token = authn::webhook::decode(rest, "v1").map_err(|error| error.to_string());
    let token = token.and_then(|review| {
        authn::webhook::parse_review(&review, &audiences[..kind % 3], &audiences[1..])
            .map_err(|error| error.to_string())
    });
    if let Ok(Some((user, granted))) = token {
        assert!(is_true_at(rest, &["status", "authenticated"]));
        assert!(granted.iter().all(|audience| audiences[..kind % 3].contains(audience)));
        drop(user);
    }
    if let Ok(answer) = admission::image_policy::answer_of(rest) {
        assert!(!answer.allowed || is_true_at(rest, &["status", "allowed"]));
    }
    let version = if kind % 2 == 0 { "v1" } else { "v1beta1" };
    if let Ok(objects) = custom_resources::webhook::converted_objects(version, "u", review) {
        let original = json::parse(br#"{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n","uid":"i"}}"#);
        let Ok(original) = original else { return };
        for object in objects {
            if let Ok(object) = custom_resources::webhook::checked(&original, object, "g/v2") {
                assert_eq!(object.str_at(&["metadata", "name"]), Some("n"));
                assert_eq!(object.str_at(&["metadata", "uid"]), Some("i"));
                assert_eq!(object.str_at(&["apiVersion"]), Some("g/v2"));
            }
        }
    }
}

/// Whether the document has `true` at a path, according to another parser.
fn is_true_at(document: &[u8], path: &[&str]) -> bool {
    let document: serde_json::Value = serde_json::from_slice(document).unwrap_or_default();
    // Of a member that is there twice two parsers may take two; what counts is that one of them is true.
    let last = path.iter().try_fold(&document, |value, key| value.get(key));
    last.is_some_and(|value| *value == true) || document.is_null()
}

/// A kubeconfig file of a webhook.
pub fn kubeconfig(input: &[u8]) {
    if let Some(path) = file(input) {
        drop(Kubeconfig::read(&path));
    }
}

/// Other configuration files: audit policy, encryption, authentication, admission.
pub fn configuration(input: &[u8]) {
    drop(audit::policy::Policy::parse(input));
    drop(parse_encryption_config(input));
    let Some(path) = file(input) else { return };
    drop(authz::config::read(&path));
    drop(admission::configuration::read(Some(&path), &|_| true));
    drop(OidcConfiguration::read(&path, &["https://127.0.0.1".to_owned()]));
    drop(TokenFile::read(&path));
}

/// A continue token: only tokens of this server are accepted.
pub fn continue_token(input: &[u8]) {
    let tokens = ContinueTokens::new(&[7; 32]);
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(position) = tokens.decode(text) {
        assert_eq!(tokens.decode(&tokens.encode(&position)), Ok(position));
    }
    // A signed token decodes to the same position, and not with another secret.
    let (number, start) = choice(input);
    let Ok(start) = std::str::from_utf8(start) else { return };
    let revision = (number % 2 == 0).then_some(number as u64);
    let position = plinth_storage::ContinuePosition { revision, start: start.into(), returned: 3 };
    let token = tokens.encode(&position);
    if let Ok(back) = tokens.decode(&token) {
        assert_eq!(back, position);
    }
    assert!(ContinueTokens::new(&[8; 32]).decode(&token).is_err());
}

/// A stored value: its header and its body, encrypted or not.
pub fn stored_value(input: &[u8]) {
    if let Ok(header) = stored_header_bytes(input) {
        assert!(header.len() <= input.len());
    }
    if let Ok(header) = Header::parse(input) {
        walk(&header);
    }
    if let Ok(value) = Stored::parse(input) {
        assert_eq!(value.body().get(13..).unwrap_or_default(), value.after_splice());
        let _ = value.metadata();
        let _ = value.metadata_after_splice();
        walk(&value);
    }
    if let Ok(sealed) = SealedValue::read(input) {
        let mut header = Vec::new();
        sealed.write_header(&mut header);
        assert!(header.len() <= input.len(), "longer than it was");
    }
}

fn walk(header: &Header<'_>) {
    for (key, _) in header.labels() {
        assert!(header.label(key).is_some(), "{key} is there and is not found");
    }
    let _ = (header.deleting(), header.version(), header.uid(), header.schema(), header.owners().count());
    for index in 0..4 {
        let _ = header.field(index);
    }
}

/// Headers for identity and impersonation: one per line.
pub fn identity_headers(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n').take(64) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else { continue };
        let name = match name {
            b"u" => Ok(HeaderName::from_static("impersonate-user")),
            b"g" => Ok(HeaderName::from_static("impersonate-group")),
            b"i" => Ok(HeaderName::from_static("impersonate-uid")),
            b"p" => Ok(HeaderName::from_static("sec-websocket-protocol")),
            other => HeaderName::from_bytes(other),
        };
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    // Ignoring an impersonation header would make the request run as its sender.
    let wishes = headers.keys().any(|name| {
        let known = ["impersonate-user", "impersonate-group", "impersonate-uid"].contains(&name.as_str());
        known && headers.get_all(name).iter().any(|value| !value.is_empty())
    });
    if let Ok(wanted) = impersonation::requested(&headers) {
        assert!(wanted.is_some() || !wishes, "impersonation is overlooked: {headers:?}");
    }
    let token = websocket::token(&headers);
    websocket::remove_tokens(&mut headers);
    if token.is_ok() {
        assert!(
            websocket::token(&headers).is_ok_and(|token| token.is_none()),
            "a token is shown on: {headers:?}"
        );
    }
}

/// A bearer token, and a key that verifies it.
pub fn json_web_token(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (token, key) = text.split_once('\n').unwrap_or((text, ""));
    drop(jwt_header(token));
    drop(unverified_claims::<RegisteredClaims>(token).map(|claims| claims.check_time(0)));
    let key = serde_json::from_str(key).ok().and_then(|jwk| VerifyingKey::from_jwk(&jwk));
    drop(verify_jwt::<RegisteredClaims>(token, key.iter()));
    drop(VerifyingKey::from_spki(input));
    drop(SigningKey::from_pkcs8(input));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// xorshift64*: the same inputs in every run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap_or(0) % bound.max(1)
        }
    }

    /// The committed seeds of a target, which libFuzzer uses as well.
    fn seeds(target: &str) -> Vec<Vec<u8>> {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
        let files = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut paths: Vec<PathBuf> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
    }

    fn mutate(random: &mut Random, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        for _ in 0..1 + random.below(4) {
            let at = random.below(input.len() + 1);
            match random.below(6) {
                0 if at < input.len() => input[at] ^= 1 << random.below(8),
                1 => input.truncate(at),
                2 => input.insert(at, b"\0/{}[]\",:%&=.\n \x7f\xff"[random.below(17)]),
                3 if at < input.len() => drop(input.remove(at)),
                4 => {
                    let end = at + random.below(input.len() - at + 1);
                    let piece = input[at..end].to_vec();
                    input.splice(at..at, piece);
                }
                _ => {
                    let other = &seeds[random.below(seeds.len())];
                    let from = random.below(other.len());
                    input.splice(at..at, other[from..].iter().take(48).copied());
                }
            }
        }
    }

    #[test]
    fn parsers_return_for_mutated_seeds() {
        let rounds = std::env::var("PLINTH_SMOKE_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000);
        for (name, target) in ALL {
            let seeds = seeds(name);
            assert!(!seeds.is_empty(), "{name} has no seeds");
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            for seed in &seeds {
                target(seed);
            }
            for _ in 0..rounds {
                let mut input = seeds[random.below(seeds.len())].clone();
                mutate(&mut random, &mut input, &seeds);
                let outcome = std::panic::catch_unwind(|| target(&input));
                assert!(outcome.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&input));
            }
        }
    }
}
