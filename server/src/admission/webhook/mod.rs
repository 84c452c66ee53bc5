//! `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`: services of others that are asked about requests.
//!
//! | module | subject |
//! |---|---|
//! | `review` | the question and the answer (`AdmissionReview` v1) |
//! | [`plinth_apiserver::outward::webhook`] | the way there and back |
//!
//! Mutating webhooks are asked one after the other, in the order of their configurations' names; each sees what those before
//! it made of the object. Those that ask for it (`reinvocationPolicy: IfNeeded`) are asked once more when a later one has
//! changed something. Validating webhooks are asked all at once. Which webhooks a request concerns is said by rules and
//! selectors (`super::matching`), and by match conditions (`super::expressions`), which are compiled once for each version of
//! a configuration. Upstream: k8s.io/apiserver `pkg/admission/plugin/webhook`.

pub(crate) mod review;

use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_codec::json;
use plinth_codec::names::qualified_name_errors;
use plinth_codec::{patch, Value};
use tokio::task::JoinSet;

use self::review::Answer;
use super::expressions::{Asker, Conditions, Subject};
use super::reinvocation::Id;
use super::{made, matching, Call};
use plinth_api::api_error::{ApiError, Reason};
use plinth_api::latency::{timed, took, Layer};
use plinth_api::metadata;
use plinth_apiserver::context::Server;
use plinth_apiserver::outward::client::Bounds;
use plinth_apiserver::outward::webhook::WebhookError;
use plinth_kinds::policy_environment as environment;
use plinth_registry::conversion;
use plinth_registry::ResourceType;

/// The plugin that asks the mutating ones.
pub(super) const MUTATING: &str = "MutatingAdmissionWebhook";
/// Begin the names of audit annotations: whether a webhook changed the object, by which patch, and which one failed to answer and
/// was passed over.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";
const FAILED_OPEN_MUTATING: &str = "failed-open.mutation.webhook.admission.k8s.io/";
const FAILED_OPEN_VALIDATING: &str = "failed-open.validating.webhook.admission.k8s.io/";
/// How long a webhook may take that says nothing of it, in seconds.
const TIMEOUT: i64 = 10;
/// The longest answer, in bytes: a patch of the largest object, and some.
const ANSWER: usize = 8 << 20;

/// The compiled match conditions of a configuration's webhooks, in their order. Immutable.
#[derive(Debug)]
pub struct Hooks(Vec<Conditions>);

impl Hooks {
    /// Compiles; a error shows when the condition is asked.
    pub fn read(configuration: &Value) -> Hooks {
        let environment = environment(false, true);
        Hooks(hooks(configuration).iter().map(|hook| Conditions::read(hook, environment)).collect())
    }
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

    /// An audit annotation about it, with the members that follow.
    fn told(&self, members: &[(&str, &Value)]) -> String {
        let mut text = Vec::from("{\"configuration\":");
        json::write_string(&self.configuration, &mut text);
        text.extend_from_slice(b",\"webhook\":");
        json::write_string(self.name(), &mut text);
        for (key, value) in members {
            text.push(b',');
            json::write_string(key, &mut text);
            text.push(b':');
            json::write_untyped(value, &mut text);
        }
        text.push(b'}');
        String::from_utf8(text).unwrap_or_default()
    }

    fn id(&self) -> Id {
        (self.configuration.clone(), self.name().to_owned(), String::new())
    }

    /// What a failed call answers with.
    fn failure(&self, why: &str) -> ApiError {
        ApiError::internal(format!("failed calling webhook {:?}: {why}", self.name()))
    }

    /// What stands against asking: side effects in a dry run, versions that nobody here knows.
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
        None
    }
}

/// Asks the mutating webhooks and patches the object.
///
/// # Errors
/// What a webhook refuses with; 500 when one that must be asked cannot be.
pub(super) async fn mutate(call: &Call<'_>, object: &mut Value) -> Result<(), ApiError> {
    let server = &call.cx.server;
    let configurations = call.admission.mutating_webhooks.entries(&server.store).await?;
    if configurations.is_empty() || matching::is_exempt(call) {
        return Ok(());
    }
    let asker = Asker::new(call.cx);
    let second = {
        let mut rounds = call.rounds.lock();
        let second = rounds.second;
        rounds.webhooks.begin(second, object);
        second
    };
    let mut index = 0;
    for (configuration, compiled) in configurations.iter() {
        for (hook, conditions) in hooks(configuration).iter().zip(&compiled.0) {
            let hook = Hook { configuration, hook, conditions };
            let place = index;
            index += 1;
            let Some(invocation) = concerned(call, hook, object, &asker).await? else { continue };
            let id = invocation.id();
            if call.rounds.lock().webhooks.passes_by(second, &id) {
                continue;
            }
            let place = format!("round_{}_index_{place}", u8::from(second));
            // On the heap, as what few requests wait for: each write has room for the rest.
            let asked = Box::pin(ask(call, &invocation, object, true));
            let asked = timed(Layer::MutatingWebhooks, asked).await;
            let outcome = match asked {
                Ok(Some(answer)) => apply(call, &invocation, object, answer, &place),
                Ok(None) => {
                    call.cx.audit.annotate(format!("{FAILED_OPEN_MUTATING}{place}"), invocation.name());
                    Ok(false)
                }
                Err(error) => Err(error),
            };
            let told = invocation.told(&[("mutated", &Value::from(matches!(outcome, Ok(true))))]);
            call.cx.audit.annotate(format!("{MUTATION}{place}"), told);
            let changed = outcome?;
            let mut rounds = call.rounds.lock();
            if changed {
                rounds.changed = true;
                rounds.webhooks.changed();
            }
            if invocation.text("reinvocationPolicy") == "IfNeeded" {
                rounds.webhooks.wait(id);
            }
        }
    }
    call.rounds.lock().webhooks.end(object);
    Ok(())
}

/// Asks the validating webhooks, all at once; of several refusals the first in their order counts.
///
/// # Errors
/// As [`mutate`].
pub(super) async fn validate(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    let server = &call.cx.server;
    let configurations = call.admission.validating_webhooks.entries(&server.store).await?;
    if configurations.is_empty() || matching::is_exempt(call) {
        return Ok(());
    }
    let asker = Asker::new(call.cx);
    let passed_over = |place: usize, invocation: &Invocation| {
        let key = format!("{FAILED_OPEN_VALIDATING}round_0_index_{place}");
        call.cx.audit.annotate(key, invocation.name());
    };
    let mut running = JoinSet::new();
    let mut outcomes: Vec<Result<(), ApiError>> = Vec::new();
    for (configuration, compiled) in configurations.iter() {
        for (hook, conditions) in hooks(configuration).iter().zip(&compiled.0) {
            let hook = Hook { configuration, hook, conditions };
            let Some(invocation) = concerned(call, hook, object, &asker).await? else { continue };
            let place = outcomes.len();
            outcomes.push(Ok(()));
            match prepare(call, &invocation, object)? {
                Prepared::Ask { uid, review } => {
                    let server = server.clone();
                    running.spawn(async move {
                        let begun = Instant::now();
                        let answer = post(&server, &invocation, &review).await;
                        (place, uid, invocation, answer, begun.elapsed())
                    });
                }
                Prepared::Skip => passed_over(place, &invocation),
            }
        }
    }
    while let Some(ended) = running.join_next().await {
        let (place, uid, invocation, answer, time) = ended.map_err(ApiError::internal)?;
        took(Layer::ValidatingWebhooks, time);
        let answer = answer.and_then(|review| review::answer(&review, &uid, false));
        let judged = believed(call, &invocation, answer).and_then(|answer| match answer {
            Some(answer) => allowed(&invocation, &answer),
            None => {
                passed_over(place, &invocation);
                Ok(())
            }
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

/// A webhook of a configuration.
struct Hook<'h> {
    configuration: &'h Value,
    hook: &'h Value,
    conditions: &'h Conditions,
}

/// The webhook with the version that it is asked in, if the request concerns it.
async fn concerned(
    call: &Call<'_>,
    hook: Hook<'_>,
    object: &Value,
    asker: &Asker<'_>,
) -> Result<Option<Invocation>, ApiError> {
    let Some(matched) = matching::by_webhook(call, hook.hook, object).await? else { return Ok(None) };
    let invocation = Invocation {
        configuration: metadata::text(hook.configuration, "name").to_owned(),
        hook: hook.hook.clone(),
        resource: matched,
    };
    let holds = hook.conditions.is_empty()
        || conditions_hold(call, &invocation, hook.conditions, object, asker).await?;
    Ok(holds.then_some(invocation))
}

async fn conditions_hold(
    call: &Call<'_>,
    invocation: &Invocation,
    conditions: &Conditions,
    object: &Value,
    asker: &Asker<'_>,
) -> Result<bool, ApiError> {
    let matched = &invocation.resource;
    let new = matching::converted(call, matched, object)?;
    let old = matching::converted(call, matched, call.old.unwrap_or(&Value::Null))?;
    let request = review::attributes(call, matched, &new);
    let subject = Subject {
        call,
        request: &request,
        object: &new,
        old: &old,
        namespace: &Value::Null,
        params: &Value::Null,
    };
    let activation = subject.asking(environment(false, true));
    conditions.hold(&activation, asker, !invocation.ignores_failure()).await.map_err(|why| {
        tracing::warn!(
            webhook = invocation.name(),
            why,
            "match conditions cannot be evaluated, failing closed"
        );
        let (group, plural) = (call.cx.resource.group(), call.cx.resource.plural());
        ApiError::forbidden(group, plural, call.object_name(object), &why)
    })
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
    let new = matching::converted(call, matched, object)?;
    let old = matching::converted(call, matched, call.old.unwrap_or(&Value::Null))?;
    let review = review::request(call, matched, &uid, &new, &old);
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
    let answer = post(&call.cx.server, invocation, &review).await;
    believed(call, invocation, answer.and_then(|review| review::answer(&review, &uid, mutating)))
}

/// The way there and back, and what is said when it fails.
async fn post(server: &Server, invocation: &Invocation, review: &Value) -> Result<Value, String> {
    let config = invocation.hook.get("clientConfig").unwrap_or(&Value::Null);
    let bounds = Bounds { time: invocation.timeout(), answer: ANSWER };
    server.presenter.webhooks.ask(&server.store, config, review, bounds).await.map_err(|error| match error {
        WebhookError::Url(_) | WebhookError::Authorities(_) => format!("could not get REST client: {error}"),
        error => format!("failed to call webhook: {error}"),
    })
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
            for (key, value) in &answer.audit_annotations {
                // A key that is none is left out, as upstream does.
                let key = format!("{}/{key}", invocation.name());
                if key.split('/').count() == 2 && qualified_name_errors(&key).is_empty() {
                    call.cx.audit.annotate(key, value.as_str());
                }
            }
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
    place: &str,
) -> Result<bool, ApiError> {
    allowed(invocation, &answer)?;
    let Some(document) = answer.patch else { return Ok(false) };
    if document.as_array().is_some_and(<[Value]>::is_empty) {
        return Ok(false);
    }
    let shown = call.cx.audit.is_on().then(|| document.clone());
    let (own, matched) = (&call.cx.resource, &invocation.resource);
    let foreign = matched.api_version != own.api_version;
    let current = match foreign {
        true => conversion::between(object.clone(), own, matched)?,
        false => object.clone(),
    };
    let patched = patch::json_patch(current, document).map_err(ApiError::internal)?;
    let mut new = made::settled(call, matched, patched, false)?;
    if foreign {
        new = conversion::between(new, matched, own)?;
    }
    if let Some(patch) = shown {
        call.cx.audit.annotate_content(format!("{PATCH}{place}"), || {
            invocation.told(&[("patch", &patch), ("patchType", &Value::from("JSONPatch"))])
        });
    }
    let changed = new != *object;
    *object = new;
    Ok(changed)
}
