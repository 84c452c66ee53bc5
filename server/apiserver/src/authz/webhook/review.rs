//! Encoding and decoding of SubjectAccessReviews.

use plinth_codec::selector::Operator;
use plinth_codec::{json, tree, Map, Value};

use crate::authz::{Attributes, ResourceTarget, Selectors, Target};
use crate::egress::{decode_review, ReviewError};
use plinth_api::UserFields;

const GROUP: &str = "authorization.k8s.io";
const KIND: &str = "SubjectAccessReview";

/// API version of the SubjectAccessReview.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AccessReviewVersion {
    /// `authorization.k8s.io/v1`.
    #[value(name = "v1")]
    V1,
    /// `authorization.k8s.io/v1beta1`: groups are called `group`.
    #[value(name = "v1beta1")]
    V1Beta1,
}

impl AccessReviewVersion {
    fn as_str(self) -> &'static str {
        match self {
            AccessReviewVersion::V1 => "v1",
            AccessReviewVersion::V1Beta1 => "v1beta1",
        }
    }
}

/// `SubjectAccessReviewStatus`, without `evaluationError`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessReviewStatus {
    /// The request is allowed.
    pub allowed: bool,
    /// The request is denied without running further authorizers.
    pub denied: bool,
    pub(super) reason: String,
}

/// Encodes a review.
pub(super) fn encode(version: AccessReviewVersion, attributes: &Attributes<'_>) -> Vec<u8> {
    let mut spec = Map::new();
    match attributes.target {
        Target::Resource(target) => {
            spec.insert("resourceAttributes", resource_attributes(attributes.verb, &target));
        }
        Target::Path(path) => {
            spec.insert("nonResourceAttributes", filled(&[("path", path), ("verb", attributes.verb)]));
        }
    }
    let fields = match version {
        AccessReviewVersion::V1 => UserFields::ACCESS_REVIEW,
        AccessReviewVersion::V1Beta1 => UserFields::ACCESS_REVIEW_V1BETA1,
    };
    attributes.user.insert_into(&mut spec, fields);
    let review = tree!({
        "apiVersion": format!("{GROUP}/{}", version.as_str()),
        "kind": KIND,
        "metadata": Map::new(),
        "spec": spec,
    });
    let mut out = Vec::with_capacity(512);
    json::write_untyped(&review, &mut out);
    out
}

/// The non-empty members.
fn filled(members: &[(&str, &str)]) -> Map {
    let mut map = Map::new();
    for (key, text) in members.iter().filter(|(_, text)| !text.is_empty()) {
        map.insert(*key, *text);
    }
    map
}

/// `resourceAttributes` with its non-empty members.
pub(super) fn resource_attributes(verb: &str, target: &ResourceTarget<'_>) -> Map {
    let mut map = filled(&[
        ("group", target.group),
        ("name", target.name),
        ("namespace", target.namespace),
        ("resource", target.resource),
        ("subresource", target.subresource),
        ("verb", verb),
        ("version", target.version),
    ]);
    let Some(Selectors { fields, labels }) = target.selectors else { return map };
    let requirement = |key: &str, operator: &str, values: Vec<Value>| {
        let mut map = filled(&[("key", key), ("operator", operator)]);
        if !values.is_empty() {
            map.insert("values", values);
        }
        Value::Object(map)
    };
    let fields: Vec<Value> = fields
        .iter()
        .map(|r| {
            let operator = if r.equal { "In" } else { "NotIn" };
            requirement(&r.field, operator, vec![r.value.clone().into()])
        })
        .collect();
    // Operators that a review cannot express are omitted: the check is then broader.
    let labels: Vec<Value> = labels
        .iter()
        .filter_map(|r| {
            let operator = match r.operator() {
                Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
                Operator::NotIn | Operator::NotEquals => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                _ => return None,
            };
            Some(requirement(r.key(), operator, r.values().iter().cloned().map(Value::from).collect()))
        })
        .collect();
    for (member, requirements) in [("fieldSelector", fields), ("labelSelector", labels)] {
        if !requirements.is_empty() {
            map.insert(member, tree!({ "requirements": requirements }));
        }
    }
    map
}

/// Decodes the answer.
///
/// # Errors
/// [`ReviewError`].
pub fn decode(document: &[u8], version: AccessReviewVersion) -> Result<AccessReviewStatus, ReviewError> {
    let review = decode_review(document, (GROUP, version.as_str(), KIND))?;
    let flag = |key: &str| review.at(&["status", key]).and_then(Value::as_bool).unwrap_or(false);
    let reason = review.str_at(&["status", "reason"]).unwrap_or_default().to_owned();
    Ok(AccessReviewStatus { allowed: flag("allowed"), denied: flag("denied"), reason })
}
