//! Answers of webhooks, as upstream's client decodes them: JSON of a kind that was asked for, with fields of
//! the types that this kind has.
//!
//! A field of another type is an error and never one that is absent: an answer decides who somebody is and
//! what is allowed. Upstream: k8s.io/client-go `rest` (`Result.Into`), k8s.io/apimachinery
//! `pkg/runtime/serializer/json`.

use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::{schema, DecodeError, Value};

/// Why an answer is no review.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// It is not JSON, or has a field of another type.
    #[error("the answer cannot be read: {0}")]
    Decode(#[from] DecodeError),
    /// It is of another kind.
    #[error("no {kind} of {group} but {found_kind:?} of {found:?}")]
    Kind {
        /// The kind that was asked for.
        kind: &'static str,
        /// The group of that kind.
        group: &'static str,
        /// The kind of the answer.
        found_kind: String,
        /// The API version of the answer.
        found: String,
    },
}

/// Decodes an answer of the given group, version and kind, which it need not say.
///
/// # Errors
/// [`ReviewError`].
pub fn decode_review(
    answer: &[u8],
    (group, version, kind): (&'static str, &str, &'static str),
) -> Result<Value, ReviewError> {
    conform_review(json::parse(answer)?, (group, version, kind))
}

/// The same of an answer that has been parsed.
///
/// # Errors
/// [`ReviewError`].
pub fn conform_review(
    answer: Value,
    (group, version, kind): (&'static str, &str, &'static str),
) -> Result<Value, ReviewError> {
    let given = |key: &str| answer.str_at(&[key]).unwrap_or_default();
    let (found, found_kind) = (given("apiVersion"), given("kind"));
    let is_expected = (found.is_empty() || found.split_once('/') == Some((group, version)))
        && (found_kind.is_empty() || found_kind == kind);
    let builtin = schema::builtin();
    let expected = is_expected.then(|| schema::GVK::new(group, version, kind));
    let root = expected.and_then(|kind| builtin.kind(&kind));
    let Some(root) = root else {
        let (found, found_kind) = (found.to_owned(), found_kind.to_owned());
        return Err(ReviewError::Kind { kind, group, found_kind, found });
    };
    Ok(json::conform(answer, builtin, root, &DecodeOptions::default())?.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_has_the_requested_kind_and_its_types() {
        const ASKED: (&str, &str, &str) = ("authentication.k8s.io", "v1", "TokenReview");
        // answer, the authenticated name or part of the error
        let rows = [
            (r#"{"status":{"user":{"username":"a"}}}"#, Ok("a")),
            (
                r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","status":{"user":{"username":"a"}}}"#,
                Ok("a"),
            ),
            (
                r#"{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1beta1"}"#,
                Err("no TokenReview of"),
            ),
            (r#"{"kind":"TokenReview","apiVersion":"v1"}"#, Err("no TokenReview of")),
            (r#"{"kind":"Status","apiVersion":"v1"}"#, Err(r#"but "Status" of "v1""#)),
            (r#"{"status":{"user":{"username":1}}}"#, Err("cannot unmarshal number")),
            (r#"{"status":{"authenticated":"true"}}"#, Err("cannot unmarshal string")),
            (r#"{"status":{"user":{"groups":"system:masters"}}}"#, Err("cannot unmarshal string")),
            (r#"{"kind":7}"#, Err("cannot")),
            ("[]", Err("cannot")),
            ("{", Err("the answer cannot be read")),
        ];
        for (answer, expected) in rows {
            match (decode_review(answer.as_bytes(), ASKED).map_err(|error| error.to_string()), expected) {
                (Ok(review), Ok(name)) => {
                    assert_eq!(review.str_at(&["status", "user", "username"]), Some(name), "{answer}");
                }
                (Err(error), Err(part)) => assert!(error.contains(part), "{answer}: {error}"),
                (found, _) => panic!("{answer}: {found:?}"),
            }
        }
    }
}
