//! `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`: services of others that are asked about requests.
//!
//! | module | subject |
//! |---|---|
//! | `matching` | which webhooks a request concerns |
//! | `review` | the question and the answer (`AdmissionReview` v1) |
//! | `client` | the way there and back |
//!
//! Mutating webhooks are asked one after the other, in the order of their configurations' names; each sees what those before
//! it made of the object. Those that ask for it (`reinvocationPolicy: IfNeeded`) are asked once more when a later one has
//! changed something. Validating webhooks are asked all at once. Match conditions are CEL; until that is there a
//! webhook that has some fails as its `failurePolicy` says. Upstream: k8s.io/apiserver `pkg/admission/plugin/webhook`.

pub mod client;
mod matching;
mod review;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::{patch, Value};
use tokio::task::JoinSet;

use self::matching::Asked;
use self::review::Answer;
use super::Call;
use crate::conversion;
use crate::metadata;
use crate::registry::ResourceType;
use crate::status::{ApiError, Reason};
use crate::storage::stored::Head;

/// The plugin that asks the mutating ones.
pub(super) const MUTATING: &str = "MutatingAdmissionWebhook";
/// How long a webhook may take that says nothing of it, in seconds.
const TIMEOUT: i64 = 10;
/// The group whose configurations no webhook is asked about, so that a bad one can be mended.
const EXEMPT_GROUP: &str = "admissionregistration.k8s.io";

/// What a request remembers of its first round of mutating webhooks.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// Whether this is the second round.
    pub second: bool,
    /// Whether something was changed, so that there has to be a second round.
    pub changed: bool,
    /// Webhooks to ask again, by configuration and name.
    again: HashSet<(String, String)>,
    /// Webhooks that were asked and want to be asked again when something changes.
    asked: HashSet<(String, String)>,
}

/// A webhook that a request concerns.
struct Invocation {
    configuration: String,
    hook: Value,
    /// The resource in the version that the rule names.
    resource: Arc<ResourceType>,
}

impl Invocation {
    fn text(&self, key: &str) -> &str {
        self.hook.str_at(&[key]).unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.text("name")
    }

    fn ignores_failure(&self) -> bool {
        self.text("failurePolicy") == "Ignore"
    }

    fn timeout(&self) -> Duration {
        let seconds = self.hook.get("timeoutSeconds").and_then(Value::as_int).unwrap_or(TIMEOUT);
        Duration::from_secs(seconds.clamp(1, 30).unsigned_abs())
    }

    fn id(&self) -> (String, String) {
        (self.configuration.clone(), self.name().to_owned())
    }

    /// What a failed call answers with.
    fn failure(&self, why: &str) -> ApiError {
        ApiError::internal(format!("failed calling webhook {:?}: {why}", self.name()))
    }

    /// What stands against asking: side effects in a dry run, versions and conditions that nobody here knows.
    fn obstacle(&self, dry_run: bool) -> Option<Result<String, ApiError>> {
        if dry_run && !matches!(self.text("sideEffects"), "None" | "NoneOnDryRun") {
            let what = format!("admission webhook {:?} does not support dry run", self.name());
            return Some(Err(ApiError::bad_request(what)));
        }
        let list = |key: &str| self.hook.get(key).and_then(Value::as_array).unwrap_or_default();
        if !list("admissionReviewVersions").iter().any(|version| version.as_str() == Some("v1")) {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1)";
            return Some(Ok(why.to_owned()));
        }
        let conditions = !list("matchConditions").is_empty();
        conditions.then(|| Ok("match conditions are not evaluated by this version of plinth".to_owned()))
    }
}

/// Asks the mutating webhooks and patches the object.
///
/// # Errors
/// What a webhook refuses with; 500 when one that must be asked cannot be.
pub(super) async fn mutate(call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
    let server = &call.cx.server;
    let configurations = server.admission.mutating_webhooks.objects(server, "").await?;
    if configurations.is_empty() {
        return Ok(());
    }
    for configuration in &configurations {
        for hook in hooks(configuration) {
            let Some(invocation) = concerned(call, configuration, hook, object).await? else { continue };
            let id = invocation.id();
            let skip = {
                let rounds = call.rounds.lock();
                rounds.second && !rounds.again.contains(&id)
            };
            if skip {
                continue;
            }
            let changed = match ask(call, &invocation, object, true).await? {
                Some(answer) => apply(call, &invocation, object, answer)?,
                None => false,
            };
            let mut rounds = call.rounds.lock();
            if changed {
                rounds.changed = true;
                let before = rounds.asked.clone();
                rounds.again.extend(before);
            }
            if invocation.text("reinvocationPolicy") == "IfNeeded" {
                rounds.asked.insert(id);
            }
        }
    }
    Ok(())
}

/// Asks the validating webhooks, all at once; of several refusals the first in their order counts.
///
/// # Errors
/// As [`mutate`].
pub(super) async fn validate(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let server = &call.cx.server;
    let configurations = server.admission.validating_webhooks.objects(server, "").await?;
    if configurations.is_empty() {
        return Ok(());
    }
    let mut running = JoinSet::new();
    let mut outcomes: Vec<Result<(), ApiError>> = Vec::new();
    for configuration in &configurations {
        for hook in hooks(configuration) {
            let Some(invocation) = concerned(call, configuration, hook, object).await? else { continue };
            let place = outcomes.len();
            outcomes.push(Ok(()));
            match prepare(call, &invocation, object)? {
                Prepared::Ask { uid, review } => {
                    let server = server.clone();
                    running.spawn(async move {
                        let config = invocation.hook.get("clientConfig").cloned().unwrap_or_default();
                        let answer = client::ask(&server, &config, &review, invocation.timeout()).await;
                        (place, uid, invocation, answer)
                    });
                }
                Prepared::Skip => {}
            }
        }
    }
    while let Some(ended) = running.join_next().await {
        let (place, uid, invocation, answer) = ended.map_err(ApiError::internal)?;
        let answer = answer.and_then(|review| review::answer(&review, &uid, false));
        let judged = believed(call, &invocation, answer).and_then(|answer| match answer {
            Some(answer) => allowed(&invocation, &answer),
            None => Ok(()),
        });
        if let Some(outcome) = outcomes.get_mut(place) {
            *outcome = judged;
        }
    }
    outcomes.into_iter().collect()
}

fn hooks(configuration: &Value) -> &[Value] {
    configuration.get("webhooks").and_then(Value::as_array).unwrap_or_default()
}

/// The webhook with the version that it is asked in, if the request concerns it.
async fn concerned(
    call: &Call<'_>,
    configuration: &Value,
    hook: &Value,
    object: &Value,
) -> Result<Option<Invocation>, ApiError> {
    let resource = &call.cx.resource;
    if resource.group() == EXEMPT_GROUP {
        return Ok(None);
    }
    let Some(matched) = matched_version(call, hook) else { return Ok(None) };
    if !matching::object_selected(hook, object, call.old) || !namespace_selected(call, hook, object).await? {
        return Ok(None);
    }
    Ok(Some(Invocation {
        configuration: metadata::text(configuration, "name").to_owned(),
        hook: hook.clone(),
        resource: matched,
    }))
}

/// The resource as the request names it, or in another version that a rule names.
fn matched_version(call: &Call<'_>, hook: &Value) -> Option<Arc<ResourceType>> {
    let resource = &call.cx.resource;
    let matches = |resource: &ResourceType| {
        let asked = Asked {
            operation: call.operation,
            group: resource.group(),
            version: &resource.row.version,
            resource: resource.plural(),
            subresource: &call.cx.info.subresource,
            namespaced: resource.row.namespaced,
        };
        matching::rules_match(hook, &asked)
    };
    if matches(resource) {
        return Some(resource.clone());
    }
    if hook.str_at(&["matchPolicy"]) == Some("Exact") {
        return None;
    }
    let prefix = &resource.storage.as_ref()?.prefix;
    let same = |other: &&Arc<ResourceType>| other.storage.as_ref().is_some_and(|s| s.prefix == *prefix);
    call.cx.registry.resources.iter().filter(same).find(|other| matches(other)).cloned()
}

/// A namespace is selected by its own labels, what is in it by those of the namespace, everything else always.
async fn namespace_selected(call: &Call<'_>, hook: &Value, object: &Value) -> Result<bool, ApiError> {
    const KEY: &str = "namespaceSelector";
    if call.cx.resource.plural() == "namespaces" && call.cx.resource.group().is_empty() {
        let object = if object.is_null() { call.old.unwrap_or(object) } else { object };
        return Ok(matching::selects(hook, KEY, |key| object.str_at(&["metadata", "labels", key])));
    }
    if call.namespace.is_empty() || hook.get(KEY).is_none_or(Value::is_null) {
        return Ok(true);
    }
    let namespaces = call.cx.registry.get("", "v1", "namespaces").ok_or_else(ApiError::no_such_resource)?;
    let Some(form) = &namespaces.storage else { return Ok(true) };
    let record = call.cx.server.store.get(form, "", call.namespace).await?;
    let record = record.ok_or_else(|| ApiError::not_found("", "namespaces", call.namespace))?;
    let head = Head::parse(&record.value).map_err(ApiError::internal)?;
    Ok(matching::selects(hook, KEY, |key| head.labels().find(|(k, _)| *k == key).map(|(_, v)| v)))
}

enum Prepared {
    Ask { uid: String, review: Value },
    Skip,
}

/// The question to a webhook, unless something stands against asking it.
fn prepare(call: &Call<'_>, invocation: &Invocation, object: &Value) -> Result<Prepared, ApiError> {
    match invocation.obstacle(call.dry_run) {
        Some(Err(refusal)) => return Err(refusal),
        Some(Ok(why)) if invocation.ignores_failure() => {
            tracing::warn!(webhook = invocation.name(), why, "a webhook was not asked");
            return Ok(Prepared::Skip);
        }
        Some(Ok(why)) => return Err(invocation.failure(&why)),
        None => {}
    }
    let uid = uuid::Uuid::new_v4().to_string();
    let matched = &invocation.resource;
    let converted =
        |object: &Value| match matched.api_version == call.cx.resource.api_version || object.is_null() {
            true => Ok(object.clone()),
            false => conversion::between(object.clone(), &call.cx.resource, matched),
        };
    let (new, old) = (converted(object)?, call.old.map(converted).transpose()?);
    let review = review::request(call, matched, &uid, &new, old.as_ref());
    Ok(Prepared::Ask { uid, review })
}

/// Asks one webhook; `None` when it could not be asked and need not be.
async fn ask(
    call: &Call<'_>,
    invocation: &Invocation,
    object: &Value,
    mutating: bool,
) -> Result<Option<Answer>, ApiError> {
    let Prepared::Ask { uid, review } = prepare(call, invocation, object)? else { return Ok(None) };
    let config = invocation.hook.get("clientConfig").cloned().unwrap_or_default();
    let answer = client::ask(&call.cx.server, &config, &review, invocation.timeout()).await;
    believed(call, invocation, answer.and_then(|review| review::answer(&review, &uid, mutating)))
}

/// An answer, or what its absence means.
fn believed(
    call: &Call<'_>,
    invocation: &Invocation,
    answer: Result<Answer, String>,
) -> Result<Option<Answer>, ApiError> {
    match answer {
        Ok(answer) => {
            answer.warnings.iter().for_each(|text| call.cx.warnings.add(text.as_str()));
            Ok(Some(answer))
        }
        Err(why) if invocation.ignores_failure() => {
            tracing::warn!(webhook = invocation.name(), why, "failed calling webhook, failing open");
            Ok(None)
        }
        Err(why) => Err(invocation.failure(&why)),
    }
}

/// The refusal that an answer is, in its own words (k8s.io/apiserver `pkg/admission/plugin/webhook/errors`).
fn allowed(invocation: &Invocation, answer: &Answer) -> Result<(), ApiError> {
    if answer.allowed {
        return Ok(());
    }
    let denied = format!("admission webhook {:?} denied the request", invocation.name());
    let result = answer.result.as_ref();
    let text = |key: &str| result.and_then(|r| r.str_at(&[key])).unwrap_or_default();
    let code = result.and_then(|r| r.get("code")).and_then(Value::as_int).unwrap_or(0);
    let code = u16::try_from(code).ok().filter(|code| (400..600).contains(code)).unwrap_or(400);
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    Err(ApiError::new(code, Reason::parse(text("reason")), message))
}

/// Patches the object; true when that changed it.
fn apply(
    call: &Call<'_>,
    invocation: &Invocation,
    object: &mut Value,
    answer: Answer,
) -> Result<bool, ApiError> {
    allowed(invocation, &answer)?;
    let Some(document) = answer.patch else { return Ok(false) };
    let (own, matched) = (&call.cx.resource, &invocation.resource);
    let foreign = matched.api_version != own.api_version;
    let current = match foreign {
        true => conversion::between(object.clone(), own, matched)?,
        false => object.clone(),
    };
    let patched = patch::json_patch(current, document).map_err(ApiError::internal)?;
    let is_own_kind = call.cx.info.subresource.is_empty()
        || own.row.subresource(&call.cx.info.subresource).is_none_or(|row| row.gvk == own.row.gvk());
    let mut new = match is_own_kind {
        true => {
            let options = DecodeOptions::default();
            json::conform(patched, matched.schema, matched.root, &options).map_err(ApiError::internal)?.value
        }
        false => patched,
    };
    if foreign {
        new = conversion::between(new, matched, own)?;
    }
    let changed = new != *object;
    *object = new;
    Ok(changed)
}
