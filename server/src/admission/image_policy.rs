//! `ImagePolicyWebhook`: a webhook decides which images may run. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/imagepolicy`. Responses are cached.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use plinth_codec::{json, tree, Value};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::call::Call;
use plinth_api::{decode_config_part, ApiError, Strictness};
use plinth_apiserver::egress::{decode_review, AnswerCache, ReviewError, Service};

pub(super) const NAME: &str = "ImagePolicyWebhook";
/// The member of a configuration file without a kind that has its part.
pub(super) const PART_WITHOUT_KIND: &str = "imagePolicy";
/// Prefix of audit annotations.
const AUDIT: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// Pod annotations that contain this are sent to the webhook.
const SENT_ANNOTATIONS: &str = ".image-policy.k8s.io/";
/// Maximum number of cached responses.
const CACHE_SIZE: usize = 1024;
/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(30);
const GROUP: &str = "imagepolicy.k8s.io";
const VERSION: &str = "v1alpha1";
const KIND: &str = "ImageReview";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageReview {
    pub(crate) allowed: bool,
    reason: String,
    annotations: Vec<(String, String)>,
}

/// The member `imagePolicy` of the configuration.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ImagePolicyEntry {
    kube_config_file: String,
    #[serde(rename = "allowTTL")]
    allow_ttl: i64,
    #[serde(rename = "denyTTL")]
    deny_ttl: i64,
    retry_backoff: i64,
    default_allow: bool,
}

/// The webhook and its cached responses, by the hash of what was sent.
pub(super) struct ImagePolicy {
    service: Service,
    allow: Duration,
    deny: Duration,
    /// Whether images are allowed when the webhook fails.
    default_allow: bool,
    cache: AnswerCache<[u8; 32], ImageReview>,
}

impl std::fmt::Debug for ImagePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImagePolicy").field("default_allow", &self.default_allow).finish_non_exhaustive()
    }
}

/// A duration of the configuration: 0 is the default, -1 is zero, others count in `unit`.
fn time(
    given: i64,
    unit: Duration,
    default: Duration,
    bounds: (Duration, Duration),
) -> Result<Duration, String> {
    match given {
        0 => Ok(default),
        -1 => Ok(Duration::ZERO),
        given => {
            let (least, most) = bounds;
            let time = u32::try_from(given).ok().and_then(|given| unit.checked_mul(given));
            time.filter(|time| (least..=most).contains(time))
                .ok_or_else(|| format!("valid value is between {least:?} and {most:?}, got {given}"))
        }
    }
}

impl ImagePolicy {
    /// Loads the configuration.
    ///
    /// # Errors
    /// Unknown members, durations out of range, an invalid kubeconfig.
    pub(super) fn read(part: &Value) -> Result<ImagePolicy, String> {
        const HALF_AN_HOUR: Duration = Duration::from_secs(30 * 60);
        let config = part.get("imagePolicy").unwrap_or(&Value::Null);
        let config: ImagePolicyEntry = decode_config_part(config, Strictness::Strict)
            .map_err(|error| format!("imagePolicy: {error}"))?;
        let second = Duration::from_secs(1);
        let seconds = |given: i64, default: u64| {
            time(given, second, Duration::from_secs(default), (second, HALF_AN_HOUR))
        };
        let (milli, minutes) = (Duration::from_millis(1), Duration::from_secs(300));
        let pause = time(config.retry_backoff, milli, Duration::from_millis(500), (milli, minutes))?;
        let file = Path::new(&config.kube_config_file);
        let service = Service::from_kubeconfig(file, TIMEOUT).map_err(|error| error.to_string())?;
        Ok(ImagePolicy {
            service: service.with_backoff(pause),
            allow: seconds(config.allow_ttl, 300)?,
            deny: seconds(config.deny_ttl, 30)?,
            default_allow: config.default_allow,
            cache: AnswerCache::new(CACHE_SIZE),
        })
    }

    async fn answer(&self, question: Bytes) -> Result<ImageReview, String> {
        let hash: [u8; 32] = Sha256::digest(&question).into();
        if let Some(answer) = self.cache.get(&hash) {
            return Ok(answer);
        }
        let document = self.service.post_with_retries(question).await.map_err(|f| f.to_string())?;
        let answer = answer_of(&document).map_err(|error| error.to_string())?;
        let time = if answer.allowed { self.allow } else { self.deny };
        self.cache.insert(hash, answer.clone(), time);
        Ok(answer)
    }
}

pub(crate) fn answer_of(document: &[u8]) -> Result<ImageReview, ReviewError> {
    let document = decode_review(document, (GROUP, VERSION, KIND))?;
    let annotations = document.at(&["status", "auditAnnotations"]).and_then(Value::as_object);
    let all = annotations.into_iter().flat_map(|all| all.iter());
    Ok(ImageReview {
        allowed: document.at(&["status", "allowed"]).and_then(Value::as_bool).unwrap_or(false),
        reason: document.str_at(&["status", "reason"]).unwrap_or_default().to_owned(),
        annotations: all
            .map(|(key, value)| (key.to_string(), value.as_str().unwrap_or_default().to_owned()))
            .collect(),
    })
}

/// The review of the containers of the given lists.
fn review_of(pod: &Value, namespace: &str, lists: &[&str]) -> Value {
    let containers: Vec<Value> = lists
        .iter()
        .flat_map(|list| pod.list_at(&["spec", list]))
        .map(|container| tree!({ "image": container.str_at(&["image"]).unwrap_or_default() }))
        .collect();
    let mut spec = tree!({ "containers": containers, "namespace": namespace });
    let given = pod.at(&["metadata", "annotations"]).and_then(Value::as_object);
    for (key, value) in
        given.into_iter().flat_map(|given| given.iter()).filter(|(key, _)| key.contains(SENT_ANNOTATIONS))
    {
        if let Some(annotations) = spec.object_at_mut(&["annotations"]) {
            annotations.insert(key.as_str(), value.clone());
        }
    }
    tree!({
        "apiVersion": format!("{GROUP}/{VERSION}"),
        "kind": KIND,
        "metadata": tree!({ "creationTimestamp": Value::Null }),
        "spec": spec,
        "status": tree!({ "allowed": false }),
    })
}

/// Calls the webhook for the images of a pod.
///
/// # Errors
/// 403 when it denies, or fails and the configuration does not allow images then.
pub(super) async fn validate(
    call: &Call<'_>,
    policy: Option<&ImagePolicy>,
    pod: &Value,
) -> Result<(), ApiError> {
    let Some(policy) = policy else { return Ok(()) };
    let lists: &[&str] = match call.cx.info.subresource.as_str() {
        "ephemeralcontainers" => &["ephemeralContainers"],
        _ => &["containers", "initContainers"],
    };
    let mut review = Vec::new();
    json::write_untyped(&review_of(pod, call.namespace, lists), &mut review);
    let answer = match policy.answer(review.into()).await {
        Ok(answer) => answer,
        Err(error) if policy.default_allow => {
            tracing::warn!(%error, "image policy webhook failed, failing open");
            call.cx.audit.annotate(format!("{AUDIT}failed-open"), "true");
            return Ok(());
        }
        Err(error) => return Err(call.forbidden(pod, &error)),
    };
    for (key, value) in answer.annotations {
        call.cx.audit.annotate(format!("{AUDIT}{key}"), value);
    }
    match (answer.allowed, answer.reason.as_str()) {
        (true, _) => Ok(()),
        (false, "") => Err(call.forbidden(pod, "one or more images rejected by webhook backend")),
        (false, why) => {
            Err(call
                .forbidden(pod, &format!("image policy webhook backend denied one or more images: {why}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_name_images_and_annotations_for_the_service() {
        let pod = json::parse(
            br#"{"metadata":{"annotations":{"a":"b","x.image-policy.k8s.io/t":"v"}},
                "spec":{"containers":[{"image":"i"}],"initContainers":[{"image":"j"}],"ephemeralContainers":[{"image":"k"}]}}"#,
        )
        .unwrap();
        let review = review_of(&pod, "n", &["containers", "initContainers"]);
        let expected = r#"{"annotations":{"x.image-policy.k8s.io/t":"v"},"containers":[{"image":"i"},{"image":"j"}],"namespace":"n"}"#;
        assert_eq!(review.get("spec"), Some(&json::parse(expected.as_bytes()).unwrap()));
        let review = review_of(&pod, "n", &["ephemeralContainers"]);
        let containers = review.at(&["spec", "containers"]).and_then(Value::as_array).unwrap();
        assert_eq!(containers.len(), 1);
    }

    #[test]
    fn answers_must_be_reviews() {
        let read = |text: &str| answer_of(text.as_bytes());
        let yes = read(r#"{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"allowed":true,"auditAnnotations":{"a":"b"}}}"#).unwrap();
        assert_eq!((yes.allowed, yes.annotations), (true, vec![("a".to_owned(), "b".to_owned())]));
        let no = read(
            r#"{"apiVersion":"imagepolicy.k8s.io/v1alpha1","kind":"ImageReview","status":{"reason":"old"}}"#,
        )
        .unwrap();
        assert_eq!((no.allowed, no.reason.as_str()), (false, "old"));
        assert!(read(r#"{"kind":"Status"}"#).is_err());
        assert!(read(r#"{"status":{"allowed":"true"}}"#).is_err());
    }

    #[test]
    fn times_of_the_configuration() {
        let second = Duration::from_secs(1);
        let read = |given| time(given, second, Duration::from_secs(7), (second, Duration::from_secs(60)));
        assert_eq!(read(0), Ok(Duration::from_secs(7)));
        assert_eq!(read(-1), Ok(Duration::ZERO));
        assert_eq!(read(60), Ok(Duration::from_secs(60)));
        assert!(read(61).is_err() && read(-2).is_err());
    }
}
