//! `MutatingAdmissionWebhook` and `ValidatingAdmissionWebhook`.
//!
//! | module | subject |
//! |---|---|
//! | `review` | request and response (`AdmissionReview` v1) |
//! | [`plinth_apiserver::egress::webhook`] | the HTTP client |
//!
//! Mutating webhooks are called one after the other, in the order of their configurations' names; each gets
//! the object as the previous ones left it. Those with `reinvocationPolicy: IfNeeded` are called again when a
//! later one has changed the object. Validating webhooks are called concurrently. Requests are matched by
//! rules and selectors (`super::matching`), and by match conditions (`super::expressions`), which are
//! compiled once for each version of a configuration. Upstream: k8s.io/apiserver
//! `pkg/admission/plugin/webhook`.

pub(crate) mod review;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_codec::json;
use plinth_codec::names::qualified_name_errors;
use plinth_codec::{patch, Value};
use serde::Deserialize;
use tokio::task::JoinSet;

use self::review::Answer;
use super::call::Call;
use super::expressions::{CelAuthorizer, Conditions, Subject};
use super::reinvocation::Id;
use super::section::decode_section;
use super::{conversions, matching, mutated, static_manifests};
use plinth_api::{metadata_text, record_step, timed, ApiError, ConfigKind, Layer, Reason};
use plinth_apiserver::context::Server;
use plinth_apiserver::egress::client::Bounds;
use plinth_apiserver::egress::webhook::WebhookError;
use plinth_apiserver::egress::webhook_credentials::WebhookCredentials;
use plinth_apiserver::metrics::{Stage, WebhookOutcome};
use plinth_kinds::policy_environment as environment;
use plinth_registry::ResourceType;
use plinth_storage::DerivedCache;

/// Name of the plugin for mutating webhooks.
pub(super) const MUTATING: &str = "MutatingAdmissionWebhook";
/// Name of the plugin for validating webhooks.
pub(super) const VALIDATING: &str = "ValidatingAdmissionWebhook";
/// Prefixes of audit annotations: whether a webhook changed the object, its patch, and webhooks that failed
/// open.
const MUTATION: &str = "mutation.webhook.admission.k8s.io/";
const PATCH: &str = "patch.webhook.admission.k8s.io/";
const FAILED_OPEN_MUTATING: &str = "failed-open.mutation.webhook.admission.k8s.io/";
const FAILED_OPEN_VALIDATING: &str = "failed-open.validating.webhook.admission.k8s.io/";
/// Default timeout of a webhook, in seconds.
const TIMEOUT: i64 = 10;
/// Maximum size of a response, in bytes: a patch of the largest object, with a margin.
const MAX_RESPONSE: usize = 8 << 20;

/// The compiled match conditions of a configuration's webhooks, in order. Immutable.
#[derive(Debug)]
pub struct Hooks(Vec<Conditions>);

impl Hooks {
    /// Compiles the conditions; errors are reported when a condition is evaluated.
    pub fn read(configuration: &Value) -> Hooks {
        let environment = environment(false, true);
        Hooks(hooks(configuration).iter().map(|hook| Conditions::read(hook, environment)).collect())
    }
}

/// The configurations of webhooks.
pub(super) type Configurations = Arc<DerivedCache<Hooks>>;

/// The section of the plugins' configuration file.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Section {
    kube_config_file: String,
    static_manifests_dir: String,
}

const KIND: ConfigKind =
    ConfigKind { kind: "WebhookAdmissionConfiguration", versions: &["apiserver.config.k8s.io/v1"] };
/// The kind before.
const OLD_KIND: ConfigKind =
    ConfigKind { kind: "WebhookAdmission", versions: &["apiserver.config.k8s.io/v1alpha1"] };

/// Loads the section of one of the plugins; `None` where it names no kubeconfig.
///
/// # Errors
/// Another kind, unknown members, a kubeconfig that cannot be read.
pub(super) fn read_section(part: &Value) -> Result<Option<Arc<WebhookCredentials>>, String> {
    let kind = if part.str_at(&["kind"]) == Some(OLD_KIND.kind) { OLD_KIND } else { KIND };
    let section: Section = decode_section(part, kind)?;
    static_manifests::refuse(&section.static_manifests_dir)?;
    let file = section.kube_config_file;
    if file.is_empty() {
        return Ok(None);
    }
    if !Path::new(&file).is_absolute() {
        return Err(format!("kubeConfigFile: Invalid value: {file:?}: must be an absolute file path"));
    }
    let credentials = WebhookCredentials::read(Path::new(&file)).map_err(|error| error.to_string())?;
    Ok(Some(Arc::new(credentials)))
}

/// What calls of webhooks are made of. Cheap to clone.
#[derive(Clone, Copy)]
pub(super) struct Caller<'c> {
    pub configurations: &'c Configurations,
    pub credentials: &'c Option<Arc<WebhookCredentials>>,
}

/// A matching webhook.
struct Invocation {
    configuration: String,
    hook: Value,
    /// The resource in the version of the rule.
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

    /// An audit annotation about it, with further members.
    fn annotation(&self, members: &[(&str, &Value)]) -> String {
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

    /// The error of a failed call.
    fn failure(&self, why: &str) -> ApiError {
        ApiError::internal(format!("failed calling webhook {:?}: {why}", self.name()))
    }

    /// The error of a call that was not made; the client is to try again.
    fn not_called(&self, why: &str) -> ApiError {
        let why = format!("webhook {:?} was not called: {why}", self.name());
        ApiError::new(429, Reason::TooManyRequests, why).retry_after(1)
    }

    /// Whether a configuration has the webhook as it was matched.
    fn is_of(&self, configuration: &Value) -> bool {
        metadata_text(configuration, "name") == self.configuration
            && hooks(configuration).contains(&self.hook)
    }

    /// Errors that prevent a call: side effects in a dry run, unsupported review versions.
    fn precondition_error(&self, dry_run: bool) -> Option<Result<String, ApiError>> {
        if dry_run && !matches!(self.text("sideEffects"), "None" | "NoneOnDryRun") {
            let what = format!("admission webhook {:?} does not support dry run", self.name());
            return Some(Err(ApiError::bad_request(what)));
        }
        let list = |key: &str| self.hook.list_at(&[key]);
        if !list("admissionReviewVersions").iter().any(|version| version.as_str() == Some("v1")) {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview versions (v1)";
            return Some(Ok(why.to_owned()));
        }
        None
    }
}

/// Calls the mutating webhooks and patches the object.
///
/// # Errors
/// The denial of a webhook; 500 when a required one fails.
pub(super) async fn mutate(call: &Call<'_>, caller: Caller<'_>, object: &mut Value) -> Result<(), ApiError> {
    let server = &call.cx.server;
    let configurations = caller.configurations.entries(&server.store).await?;
    if configurations.is_empty() || matching::is_exempt(call) {
        return Ok(());
    }
    let cel_authorizer = CelAuthorizer::new(call.cx);
    let second = {
        let mut reinvocation = call.reinvocation.lock();
        let second = reinvocation.second;
        reinvocation.webhooks.begin(second, object);
        second
    };
    let mut index = 0;
    for (configuration, compiled) in configurations.iter() {
        for (hook, conditions) in hooks(configuration).iter().zip(&compiled.0) {
            let hook = Hook { configuration, hook, conditions };
            let place = index;
            index += 1;
            let Some(invocation) = match_webhook(call, hook, object, &cel_authorizer).await? else {
                continue;
            };
            let id = invocation.id();
            if call.reinvocation.lock().webhooks.skips(second, &id) {
                continue;
            }
            let place = format!("round_{}_index_{place}", u8::from(second));
            let begun = Instant::now();
            // Boxed because few requests need it and its size would be part of each write's future.
            let call_result = Box::pin(call_mutating(call, caller, &invocation, object));
            let call_result = timed(Layer::MutatingWebhooks, call_result).await;
            call.cx.meter.as_ref().inspect(|meter| meter.spent_waiting(begun.elapsed()));
            let called = (&call_result).into();
            let outcome = match call_result {
                Ok(Some(answer)) => apply(call, &invocation, object, answer, &place).await,
                Ok(None) => {
                    call.cx.audit.annotate(format!("{FAILED_OPEN_MUTATING}{place}"), invocation.name());
                    Ok(false)
                }
                Err(error) => Err(error),
            };
            observe(call, &invocation, Stage::Mutating, called, outcome.as_ref().err(), begun.elapsed());
            let annotation = invocation.annotation(&[("mutated", &Value::from(matches!(outcome, Ok(true))))]);
            call.cx.audit.annotate(format!("{MUTATION}{place}"), annotation);
            let changed = outcome?;
            let mut reinvocation = call.reinvocation.lock();
            if changed {
                reinvocation.changed = true;
                reinvocation.webhooks.record_change();
            }
            if invocation.text("reinvocationPolicy") == "IfNeeded" {
                reinvocation.webhooks.record_call(id);
            }
        }
    }
    call.reinvocation.lock().webhooks.end(object);
    Ok(())
}

/// Calls the validating webhooks concurrently; of several denials the first in their order is returned.
///
/// # Errors
/// As [`mutate`].
pub(super) async fn validate(call: &Call<'_>, caller: Caller<'_>, object: &Value) -> Result<(), ApiError> {
    let server = &call.cx.server;
    let configurations = caller.configurations.entries(&server.store).await?;
    if configurations.is_empty() || matching::is_exempt(call) {
        return Ok(());
    }
    let cel_authorizer = CelAuthorizer::new(call.cx);
    let failed_open = |place: usize, invocation: &Invocation| {
        let key = format!("{FAILED_OPEN_VALIDATING}round_0_index_{place}");
        call.cx.audit.annotate(key, invocation.name());
    };
    let (mut running, mut slowest) = (JoinSet::new(), Duration::ZERO);
    let mut outcomes: Vec<Result<(), ApiError>> = Vec::new();
    for (configuration, compiled) in configurations.iter() {
        for (hook, conditions) in hooks(configuration).iter().zip(&compiled.0) {
            let hook = Hook { configuration, hook, conditions };
            let Some(invocation) = match_webhook(call, hook, object, &cel_authorizer).await? else {
                continue;
            };
            let place = outcomes.len();
            outcomes.push(Ok(()));
            match prepare(call, &invocation, object).await? {
                Prepared::Call { uid, review } => {
                    let (server, configurations) = (server.clone(), caller.configurations.clone());
                    let credentials = caller.credentials.clone();
                    running.spawn(async move {
                        let begun = Instant::now();
                        let caller = Caller { configurations: &configurations, credentials: &credentials };
                        let answer = post(&server, caller, &invocation, &review).await;
                        (place, uid, invocation, answer, begun.elapsed())
                    });
                }
                Prepared::Skip => failed_open(place, &invocation),
            }
        }
    }
    while let Some(ended) = running.join_next().await {
        let (place, uid, invocation, answer, time) = ended.map_err(ApiError::internal)?;
        record_step(Layer::ValidatingWebhooks, time);
        slowest = slowest.max(time);
        let answer = answer.and_then(|review| decode(review, &uid, false));
        let answer = apply_failure_policy(call, &invocation, answer);
        let called = (&answer).into();
        let judged = answer.and_then(|answer| match answer {
            Some(answer) => allowed(&invocation, &answer),
            None => {
                failed_open(place, &invocation);
                Ok(())
            }
        });
        observe(call, &invocation, Stage::Validating, called, judged.as_ref().err(), time);
        if let Some(outcome) = outcomes.get_mut(place) {
            *outcome = judged;
        }
    }
    call.cx.meter.as_ref().inspect(|meter| meter.spent_waiting(slowest));
    outcomes.into_iter().collect()
}

/// How the call of a webhook ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Called {
    Answered,
    FailedOpen,
    Failed,
}

impl From<&Result<Option<Answer>, ApiError>> for Called {
    fn from(outcome: &Result<Option<Answer>, ApiError>) -> Called {
        match outcome {
            Ok(Some(_)) => Called::Answered,
            Ok(None) => Called::FailedOpen,
            Err(_) => Called::Failed,
        }
    }
}

/// Metrics of a call; `refusal` is the error that the request is answered with.
fn observe(
    call: &Call<'_>,
    invocation: &Invocation,
    stage: Stage,
    called: Called,
    refusal: Option<&ApiError>,
    took: Duration,
) {
    let metrics = &call.cx.server.metrics.admission;
    let outcome = match (called, refusal) {
        (Called::FailedOpen, _) => WebhookOutcome::FailedOpen,
        (Called::Failed, _) => WebhookOutcome::CallFailed,
        (Called::Answered, None) => WebhookOutcome::Allowed,
        (Called::Answered, Some(error)) => WebhookOutcome::Denied(error.code),
    };
    metrics.webhook(invocation.name(), (stage, call.operation.as_str()), outcome, took);
}

fn hooks(configuration: &Value) -> &[Value] {
    configuration.list_at(&["webhooks"])
}

/// A webhook of a configuration.
struct Hook<'h> {
    configuration: &'h Value,
    hook: &'h Value,
    conditions: &'h Conditions,
}

/// The webhook with the version of its request, if it matches.
async fn match_webhook(
    call: &Call<'_>,
    hook: Hook<'_>,
    object: &Value,
    cel_authorizer: &CelAuthorizer<'_>,
) -> Result<Option<Invocation>, ApiError> {
    let Some(matched) = matching::by_webhook(call, hook.hook, object).await? else { return Ok(None) };
    let invocation = Invocation {
        configuration: metadata_text(hook.configuration, "name").to_owned(),
        hook: hook.hook.clone(),
        resource: matched,
    };
    let holds = hook.conditions.is_empty()
        || conditions_hold(call, &invocation, hook.conditions, object, cel_authorizer).await?;
    Ok(holds.then_some(invocation))
}

async fn conditions_hold(
    call: &Call<'_>,
    invocation: &Invocation,
    conditions: &Conditions,
    object: &Value,
    cel_authorizer: &CelAuthorizer<'_>,
) -> Result<bool, ApiError> {
    let matched = &invocation.resource;
    let (new, old) = conversions::converted_both(call, matched, object).await?;
    let request = review::attributes(call, matched, &new);
    let subject = Subject {
        call,
        request: &request,
        object: &new,
        old: &old,
        namespace: &Value::Null,
        params: &Value::Null,
    };
    let activation = subject.activation_with_authorizer(environment(false, true));
    conditions.hold(&activation, cel_authorizer, !invocation.ignores_failure()).await.map_err(|why| {
        tracing::warn!(
            webhook = invocation.name(),
            error = why,
            "match conditions cannot be evaluated, failing closed"
        );
        let (group, plural) = (call.cx.resource.group(), call.cx.resource.plural());
        ApiError::forbidden(group, plural, call.object_name(object), &why)
    })
}

enum Prepared {
    Call { uid: String, review: Value },
    Skip,
}

/// The request to a webhook, or an error that prevents the call.
async fn prepare(call: &Call<'_>, invocation: &Invocation, object: &Value) -> Result<Prepared, ApiError> {
    match invocation.precondition_error(call.dry_run) {
        Some(Err(refusal)) => return Err(refusal),
        Some(Ok(why)) if invocation.ignores_failure() => {
            tracing::warn!(
                webhook = invocation.name(),
                error = why,
                "webhook cannot be called, failing open"
            );
            return Ok(Prepared::Skip);
        }
        Some(Ok(why)) => return Err(invocation.failure(&why)),
        None => {}
    }
    let uid = uuid::Uuid::new_v4().to_string();
    let matched = &invocation.resource;
    let (new, old) = conversions::converted_both(call, matched, object).await?;
    let review = review::request(call, matched, &uid, &new, &old);
    Ok(Prepared::Call { uid, review })
}

/// Calls a mutating webhook; `None` when the call failed and failures are ignored.
async fn call_mutating(
    call: &Call<'_>,
    caller: Caller<'_>,
    invocation: &Invocation,
    object: &Value,
) -> Result<Option<Answer>, ApiError> {
    let Prepared::Call { uid, review } = prepare(call, invocation, object).await? else { return Ok(None) };
    let answer = post(&call.cx.server, caller, invocation, &review).await;
    apply_failure_policy(call, invocation, answer.and_then(|review| decode(review, &uid, true)))
}

fn decode(review: Value, uid: &str, mutating: bool) -> Result<Answer, Unanswered> {
    review::answer(review, uid, mutating).map_err(Unanswered::Failed)
}

/// Why a webhook has not answered.
enum Unanswered {
    /// It was not called, whatever its failure policy is: a user's own load must not get past it.
    NotCalled(ApiError),
    /// It has failed; formatted as upstream does.
    Failed(String),
}

/// Sends the request, as soon as it may be sent.
async fn post(
    server: &Server,
    caller: Caller<'_>,
    invocation: &Invocation,
    review: &Value,
) -> Result<Value, Unanswered> {
    let config = invocation.hook.get("clientConfig").unwrap_or(&Value::Null);
    let bounds = Bounds { time: invocation.timeout(), answer: MAX_RESPONSE };
    let unanswered = |error| match error {
        WebhookError::Url(_) | WebhookError::Authorities(_) => {
            Unanswered::Failed(format!("could not get REST client: {error}"))
        }
        WebhookError::Busy => Unanswered::NotCalled(invocation.not_called(&error.to_string())),
        error => Unanswered::Failed(format!("failed to call webhook: {error}")),
    };
    let webhooks = &server.reader.converter.webhooks;
    let begun = webhooks.begin(&server.store, config, caller.credentials.as_deref(), bounds).await;
    let begun = begun.map_err(unanswered)?;
    // Somebody may have removed it because calls of it wait.
    if begun.has_waited() {
        let configurations = caller.configurations.entries(&server.store).await;
        let configurations = configurations.map_err(Unanswered::NotCalled)?;
        if !configurations.iter().any(|(configuration, _)| invocation.is_of(configuration)) {
            let why = "its configuration has changed meanwhile";
            return Err(Unanswered::NotCalled(invocation.not_called(why)));
        }
    }
    begun.send(review).await.map_err(unanswered)
}

/// Applies the failure policy to a response.
fn apply_failure_policy(
    call: &Call<'_>,
    invocation: &Invocation,
    answer: Result<Answer, Unanswered>,
) -> Result<Option<Answer>, ApiError> {
    match answer {
        Ok(answer) => {
            answer.warnings.iter().for_each(|text| call.cx.warnings.add(text.as_str()));
            for (key, value) in &answer.audit_annotations {
                // An invalid key is ignored, as upstream does.
                let key = format!("{}/{key}", invocation.name());
                if key.split('/').count() == 2 && qualified_name_errors(&key).is_empty() {
                    call.cx.audit.annotate(key, value.as_str());
                }
            }
            Ok(Some(answer))
        }
        Err(Unanswered::NotCalled(refusal)) => Err(refusal),
        Err(Unanswered::Failed(why)) if invocation.ignores_failure() => {
            tracing::warn!(webhook = invocation.name(), error = why, "failed calling webhook, failing open");
            Ok(None)
        }
        Err(Unanswered::Failed(why)) => Err(invocation.failure(&why)),
    }
}

/// The denial of a response, with its own message (k8s.io/apiserver `pkg/admission/plugin/webhook/errors`).
fn allowed(invocation: &Invocation, answer: &Answer) -> Result<(), ApiError> {
    if answer.allowed {
        return Ok(());
    }
    let denied = format!("admission webhook {:?} denied the request", invocation.name());
    let result = answer.result.as_ref();
    let text = |key: &str| result.and_then(|r| r.str_at(&[key])).unwrap_or_default();
    let code = result.and_then(|r| r.get("code")).and_then(Value::as_int).unwrap_or(0);
    let code = u16::try_from(code).ok().filter(|code| (400..1000).contains(code)).unwrap_or(400);
    let message = match (text("message"), text("reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", reason) => format!("{denied}: {reason}"),
        (message, _) => format!("{denied}: {message}"),
    };
    Err(ApiError::of_status(code, message, result.cloned().unwrap_or_default()))
}

/// Patches the object; true when that changed it.
async fn apply(
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
    if object.is_null() {
        let name = invocation.name();
        return Err(ApiError::internal(format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        )));
    }
    let matched = &invocation.resource;
    let current = conversions::converted(call, matched, object).await?;
    let patched = patch::json_patch(current.clone(), document).map_err(ApiError::internal)?;
    mutated::check_kind(&current, &patched)?;
    let new = mutated::decode(call, matched, patched, false)?;
    let new = conversions::converted_back(call, matched, new).await?;
    if let Some(patch) = shown {
        call.cx.audit.annotate_content(format!("{PATCH}{place}"), || {
            invocation.annotation(&[("patch", &patch), ("patchType", &Value::from("JSONPatch"))])
        });
    }
    let changed = new != *object;
    *object = new;
    Ok(changed)
}
