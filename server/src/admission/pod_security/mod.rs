//! `PodSecurity`: enforces the Pod Security Standards according to a namespace's labels.
//!
//! Upstream: k8s.io/pod-security-admission. Violations of the enforced level deny pods; those of the warned
//! level are warnings for pods and workloads; those of the audited level are audit annotations.

mod checks;
mod policy;
mod settings;

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use plinth_codec::Value;

use self::checks::{detail, violations, Pod};
use self::policy::{Level, NamespacePolicy, Standard};
pub(super) use self::settings::PodSecuritySettings;
use super::call::Call;
use plinth_api::{metadata_text, ApiError, Cause};
use plinth_apiserver::context::Operation;
use plinth_engine::At;
use plinth_registry::{collection_prefix, prefix_range};
use plinth_storage::Header;

pub(super) const NAME: &str = "PodSecurity";
/// Audit annotation with the standard that was enforced.
const ENFORCED_POLICY: &str = "pod-security.kubernetes.io/enforce-policy";
/// Audit annotation with the reason of an exemption.
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";
/// Audit annotation with violations of the audited standard.
const AUDIT_VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
/// Subresources of pods that do not change their privileges.
const HARMLESS: &[&str] = &["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];
/// Maximum number of existing pods that are checked when a namespace's level changes.
const PODS_CHECKED: u64 = 3000;
/// For so long they are.
const CHECK_TIME: Duration = Duration::from_secs(1);

/// The path of the pod template in a workload.
fn template_path(plural: &str) -> &'static [&'static str] {
    match plural {
        "cronjobs" => &["spec", "jobTemplate", "spec", "template"],
        "podtemplates" => &["template"],
        _ => &["spec", "template"],
    }
}

/// Checks a namespace's labels, a pod, or a workload.
///
/// # Errors
/// 403 for a pod that violates the enforced level, 422 for invalid labels.
pub(super) async fn validate(
    call: &Call<'_>,
    settings: &PodSecuritySettings,
    object: &Value,
) -> Result<(), ApiError> {
    match call.cx.resource.plural() {
        "namespaces" => validate_namespace(call, settings, object).await,
        "pods" => validate_pod(call, settings, object).await,
        plural => match object.at(template_path(plural)) {
            Some(template) if call.cx.info.subresource.is_empty() => {
                if is_exempt(call, settings, template) {
                    return Ok(());
                }
                let policy = policy_of(call, settings).await?;
                annotate(call, template, policy.audit);
                warn(call, template, policy.warn);
                Ok(())
            }
            _ => Ok(()),
        },
    }
}

/// The policy of the namespace, from the labels in its stored header.
async fn policy_of(call: &Call<'_>, settings: &PodSecuritySettings) -> Result<NamespacePolicy, ApiError> {
    let server = &call.cx.server;
    let default = &settings.default;
    let read = |namespace: Header<'_>| NamespacePolicy::of(default, |key| namespace.label(key)).0;
    let policy = server.namespaces.read(&server.store, call.namespace, read).await?;
    Ok(policy.unwrap_or_else(|| NamespacePolicy::of(default, |_| None).0))
}

fn pod_of(object: &Value) -> Option<Pod<'_>> {
    let annotations = object.at(&["metadata", "annotations"]).and_then(Value::as_object);
    Some(Pod { annotations, spec: object.get("spec")? })
}

/// Adds violations of the audited level as an audit annotation.
fn annotate(call: &Call<'_>, object: &Value, standard: Standard) {
    if !call.cx.audit.is_on() {
        return;
    }
    let Some(pod) = pod_of(object) else { return };
    let found = violations(&pod, standard);
    if !found.is_empty() {
        let text = format!("would violate PodSecurity \"{standard}\": {}", detail(&found));
        call.cx.audit.annotate(AUDIT_VIOLATIONS, text);
    }
}

fn warn(call: &Call<'_>, object: &Value, standard: Standard) {
    let Some(pod) = pod_of(object) else { return };
    let found = violations(&pod, standard);
    if !found.is_empty() {
        call.cx.warnings.add(format!("would violate PodSecurity \"{standard}\": {}", detail(&found)));
    }
}

async fn validate_pod(
    call: &Call<'_>,
    settings: &PodSecuritySettings,
    object: &Value,
) -> Result<(), ApiError> {
    if HARMLESS.contains(&call.cx.info.subresource.as_str()) {
        return Ok(());
    }
    if call.operation == Operation::Update && !call.old.is_none_or(|old| is_significant_update(object, old)) {
        return Ok(());
    }
    if is_exempt(call, settings, object) {
        return Ok(());
    }
    let NamespacePolicy { enforce, audit: audited, warn: warned } = policy_of(call, settings).await?;
    let Some(pod) = pod_of(object) else { return Ok(()) };
    if call.cx.audit.is_on() {
        call.cx.audit.annotate(ENFORCED_POLICY, enforce.to_string());
        annotate(call, object, audited);
    }
    let found = violations(&pod, enforce);
    if !found.is_empty() {
        let why = format!("violates PodSecurity \"{enforce}\": {}", detail(&found));
        return Err(call.forbidden(object, &why));
    }
    if warned != enforce {
        warn(call, object, warned);
    }
    Ok(())
}

/// Whether an update of a pod changes anything that the standards check (`isSignificantPodUpdate` of v1.36,
/// which no longer compares the seccomp annotations that kubelets ignore since v1.27).
fn is_significant_update(new: &Value, old: &Value) -> bool {
    fn containers<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
        pod.list_at(&["spec", list])
    }
    fn text<'a>(container: &'a Value, member: &str) -> &'a str {
        container.str_at(&[member]).unwrap_or_default()
    }
    let differs = |new: &Value, old: &Value| text(new, "image") != text(old, "image");
    let positional = ["containers", "initContainers"].into_iter().any(|list| {
        let (new, old) = (containers(new, list), containers(old, list));
        new.len() != old.len() || new.iter().zip(old).any(|(new, old)| differs(new, old))
    });
    let mut ephemeral: HashMap<&str, &Value> = HashMap::new();
    for container in containers(old, "ephemeralContainers") {
        ephemeral.entry(text(container, "name")).or_insert(container);
    }
    let is_changed = |container: &Value| {
        let old = ephemeral.get(text(container, "name"));
        old.is_none_or(|old| differs(container, old))
    };
    positional || containers(new, "ephemeralContainers").iter().any(is_changed)
}

/// Whether the configuration exempts the namespace, the user or the runtime class of a pod; recorded as an
/// audit annotation.
fn is_exempt(call: &Call<'_>, settings: &PodSecuritySettings, pod: &Value) -> bool {
    let class = pod.str_at(&["spec", "runtimeClassName"]).unwrap_or_default();
    let reason = settings.exempts(call.namespace, &call.cx.user.name, class);
    if let Some(reason) = reason {
        call.cx.audit.annotate(EXEMPT, reason);
    }
    reason.is_some()
}

fn policy_of_labels(default: &NamespacePolicy, namespace: &Value) -> (NamespacePolicy, Vec<Cause>) {
    let labels = namespace.at(&["metadata", "labels"]).and_then(Value::as_object);
    NamespacePolicy::of(default, |key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
}

async fn validate_namespace(
    call: &Call<'_>,
    settings: &PodSecuritySettings,
    namespace: &Value,
) -> Result<(), ApiError> {
    let read = |namespace: &Value| policy_of_labels(&settings.default, namespace);
    let (policy, errors) = read(namespace);
    let name = metadata_text(namespace, "name");
    let (before, old_errors) = call.old.map_or_else(|| (policy, Vec::new()), read);
    if !errors.is_empty() && errors != old_errors {
        return Err(ApiError::invalid("", "Namespace", name, errors));
    }
    let (new, old) = (policy.enforce, before.enforce);
    let stricter = new.version != old.version || new.level > old.level;
    let is_exempt = settings.exempts(name, "", "").is_some();
    if call.old.is_some() && (new == old || new.level == Level::Privileged || !stricter) {
        return Ok(());
    }
    if is_exempt {
        if let Some(ignored) = settings.ignored(&policy, namespace) {
            call.cx.warnings.add(format!(
                "namespace {name:?} is exempt from Pod Security, and the policy ({ignored}) will be ignored"
            ));
        }
    }
    if call.old.is_none() || is_exempt {
        return Ok(());
    }
    warn_of_existing_pods(call, name, new).await
}

/// What the existing pods of a namespace violate.
#[derive(Default)]
struct CheckedPods {
    /// By the reasons: the first pod, and how many there are.
    found: BTreeMap<String, (String, usize)>,
    count: u64,
}

impl CheckedPods {
    fn add(&mut self, pod: &Value, standard: Standard) {
        self.count += 1;
        let violated = pod_of(pod).map(|pod| violations(&pod, standard)).unwrap_or_default();
        if !violated.is_empty() {
            let reasons: Vec<String> = violated.into_iter().map(|v| v.reason).collect();
            let entry = self.found.entry(reasons.join(", "));
            let (_, count) = entry.or_insert_with(|| (metadata_text(pod, "name").to_owned(), 0));
            *count += 1;
        }
    }
}

/// Warns of existing pods that the new level would deny: each violation once, with the first pod and the
/// number of others.
async fn warn_of_existing_pods(call: &Call<'_>, namespace: &str, standard: Standard) -> Result<(), ApiError> {
    let pods = call.cx.registry.internal("", "v1", "pods").ok_or_else(ApiError::no_such_resource)?;
    let store = &call.cx.server.store;
    let range = pods.storage.as_ref().map(|form| collection_prefix(&form.prefix, namespace));
    let range = prefix_range(&range.ok_or_else(ApiError::no_such_resource)?);
    let existing = store.read(move |engine| engine.snapshot(At::Latest)?.count(&range)).await?;
    let until = Instant::now() + CHECK_TIME;
    let check = move |checked: &mut CheckedPods, pod: Value| {
        checked.add(&pod, standard);
        match checked.count < PODS_CHECKED && Instant::now() < until {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    };
    let CheckedPods { found, count } =
        store.visit(pods, namespace, |_| true, CheckedPods::default(), check).await?;
    let warnings = &call.cx.warnings;
    if count < existing {
        warnings.add(format!(
            "new PodSecurity enforce level only checked against the first {count} of {existing} existing pods"
        ));
    }
    if !found.is_empty() {
        warnings.add(format!(
            "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
        ));
    }
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(reasons, (pod, count))| match count {
            1 => format!("{pod}: {reasons}"),
            2 => format!("{pod} (and 1 other pod): {reasons}"),
            _ => format!("{pod} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    lines.sort_unstable();
    lines.into_iter().for_each(|line| warnings.add(line));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn significant_updates_are_those_of_upstream() {
        let pod = |spec: &str| json::parse(format!(r#"{{"spec":{spec}}}"#).as_bytes()).unwrap();
        const OLD: &str = r#"{"containers":[{"name":"c","image":"x"}],"initContainers":[{"name":"i","image":"x"}],"ephemeralContainers":[{"name":"e","image":"x"},{"name":"f","image":"x"}]}"#;
        // what is replaced in the old pod, by what, whether that is significant
        let rows = [
            (r#"{"name":"c","image":"x"}"#, r#"{"name":"c","image":"y"}"#, true),
            (r#"{"name":"c","image":"x"}"#, "", true),
            (r#"{"name":"c","image":"x"}"#, r#"{"name":"c","image":"x","tty":true}"#, false),
            // Validation rejects new names.
            (r#"{"name":"c","image":"x"}"#, r#"{"name":"d","image":"x"}"#, false),
            (r#"{"name":"i","image":"x"}"#, r#"{"name":"i","image":"y"}"#, true),
            (r#"{"name":"i","image":"x"}"#, r#"{"name":"i","image":"x"},{"name":"j","image":"x"}"#, true),
            (r#"{"name":"f","image":"x"}"#, r#"{"name":"f","image":"y"}"#, true),
            (r#"{"name":"f","image":"x"}"#, r#"{"name":"g","image":"x"}"#, true),
            // Those that stay, in any order.
            (
                r#"{"name":"e","image":"x"},{"name":"f","image":"x"}"#,
                r#"{"name":"f","image":"x"},{"name":"e","image":"x"}"#,
                false,
            ),
            (r#"{"name":"e","image":"x"},"#, "", false),
        ];
        for (from, to, significant) in rows {
            assert!(OLD.contains(from));
            assert_eq!(
                is_significant_update(&pod(&OLD.replace(from, to)), &pod(OLD)),
                significant,
                "{from} {to}"
            );
        }
        let labels = |label: &str| {
            json::parse(format!(r#"{{"metadata":{{"labels":{{"a":"{label}"}}}},"spec":{OLD}}}"#).as_bytes())
                .unwrap()
        };
        assert!(!is_significant_update(&labels("b"), &labels("c")));
    }
}
