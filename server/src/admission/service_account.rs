//! `ServiceAccount`: sets the service account of each pod, and mounts a token of it into its containers
//! (kubernetes `plugin/pkg/admission/serviceaccount`).

use std::collections::HashSet;
use std::time::Duration;

use plinth_codec::{tree, Value};

use super::call::Call;
use plinth_api::{generated_suffix, metadata_text, ApiError, Verb};
use plinth_apiserver::context::Context;
use plinth_apiserver::context::Operation;
use plinth_kinds::MIRROR_ANNOTATION;
use plinth_storage::decode_object;

/// The service account of pods that specify none.
const DEFAULT: &str = "default";
/// Annotation of service accounts whose pods may use only the Secrets that it lists.
const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
/// Prefix of the token volume's name.
const VOLUME: &str = "kube-api-access-";
/// Mount path of the token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Attempts and interval of waiting for the account `default` of a new namespace.
const WAIT: (u32, Duration) = (10, Duration::from_millis(100));

/// Sets the account, the token volume and the account's pull secrets.
///
/// # Errors
/// 403 when the account does not exist, and all errors of [`validate`].
pub(super) async fn admit(call: &Call<'_>, pod: &mut Value) -> Result<(), ApiError> {
    // Updates are validated as they will be stored: the body of a subresource may lack the account.
    if call.operation != Operation::Create {
        return Ok(());
    }
    if is_mirror(pod) {
        return validate(call, pod).await;
    }
    if account_name(pod).is_empty() {
        set_spec(pod, "serviceAccountName", DEFAULT.into());
    }
    let name = account_name(pod).to_owned();
    // Also sets the deprecated field.
    set_spec(pod, "serviceAccount", name.as_str().into());
    let account = account(call, pod, &name).await?;
    if mounts_token(&account, pod) {
        mount_token(pod);
    }
    let has_pull_secrets =
        pod.at(&["spec", "imagePullSecrets"]).and_then(Value::as_array).is_some_and(|s| !s.is_empty());
    if !has_pull_secrets {
        let secrets: Vec<Value> =
            names(account.get("imagePullSecrets")).map(|name| tree!({ "name": name })).collect();
        if !secrets.is_empty() {
            set_spec(pod, "imagePullSecrets", secrets.into());
        }
    }
    limit(call, pod, &account)
}

/// Denies pods without an account, and Secrets that the account does not list if it limits them.
///
/// # Errors
/// 403.
pub(super) async fn validate(call: &Call<'_>, pod: &Value) -> Result<(), ApiError> {
    let ephemeral = call.cx.info.subresource == "ephemeralcontainers";
    if call.operation != Operation::Create && !ephemeral {
        return Ok(());
    }
    if call.operation == Operation::Create && is_mirror(pod) {
        return mirror_error(pod).map_or(Ok(()), |why| Err(call.forbidden(pod, why)));
    }
    let name = account_name(pod);
    if name.is_empty() {
        let pod_name = metadata_text(pod, "name");
        let why = format!("no service account specified for pod {}/{pod_name}", call.namespace);
        return Err(call.forbidden(pod, &why));
    }
    limit(call, pod, &account(call, pod, name).await?)
}

fn is_mirror(pod: &Value) -> bool {
    pod.at(&["metadata", "annotations", MIRROR_ANNOTATION]).is_some()
}

fn account_name(pod: &Value) -> &str {
    pod.str_at(&["spec", "serviceAccountName"]).unwrap_or_default()
}

fn set_spec(pod: &mut Value, key: &str, value: Value) {
    if let Some(spec) = pod.object_at_mut(&["spec"]) {
        spec.insert(key, value);
    }
}

fn names(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).unwrap_or_default().iter().filter_map(|item| item.str_at(&["name"]))
}

fn containers<'a>(pod: &'a Value, kind: &str) -> &'a [Value] {
    pod.get("spec").map(|spec| spec.list_at(&[kind])).unwrap_or_default()
}

/// The account of a pod. In a new namespace the controller that creates the default account may need a
/// second.
async fn account(call: &Call<'_>, pod: &Value, name: &str) -> Result<Value, ApiError> {
    let server = &call.cx.server;
    let cx = Context::internal(server, ("", "v1", "serviceaccounts"), call.namespace, name, Verb::Get)?;
    let form = cx.resource.storage.as_ref().ok_or_else(ApiError::no_such_resource)?;
    let attempts = if name == DEFAULT { WAIT.0 } else { 1 };
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(WAIT.1).await;
        }
        if let Some(record) = call.cx.stored(form, call.namespace, name).await? {
            return decode_object(&cx.resource, &record);
        }
    }
    let why = format!(
        "error looking up service account {}/{name}: serviceaccount {name:?} not found",
        call.namespace
    );
    Err(call.forbidden(pod, &why))
}

/// The pod's setting takes precedence over the account's; the default is to mount a token.
fn mounts_token(account: &Value, pod: &Value) -> bool {
    let automount =
        |object: Option<&Value>| object?.get("automountServiceAccountToken").and_then(Value::as_bool);
    automount(pod.get("spec")).or_else(|| automount(Some(account))).unwrap_or(true)
}

/// Mounts the token into each container without a mount at its path, and adds the volume if needed.
fn mount_token(pod: &mut Value) {
    let volumes = containers(pod, "volumes");
    let present =
        names(pod.at(&["spec", "volumes"])).find(|name| name.starts_with(VOLUME)).map(str::to_owned);
    let taken: Vec<&str> = volumes.iter().filter_map(|volume| volume.str_at(&["name"])).collect();
    let fresh = || loop {
        let name = format!("{VOLUME}{}", generated_suffix());
        if !taken.contains(&name.as_str()) {
            return name;
        }
    };
    let has_volume = present.is_some();
    let volume = present.unwrap_or_else(fresh);
    let mut needed = false;
    for kind in ["initContainers", "containers"] {
        let list = pod.get_mut("spec").and_then(|spec| spec.get_mut(kind)).and_then(Value::as_array_mut);
        for container in list.into_iter().flatten() {
            let at_place = |mount: &Value| mount.str_at(&["mountPath"]) == Some(MOUNT_PATH);
            if container.list_at(&["volumeMounts"]).iter().any(at_place) {
                continue;
            }
            needed = true;
            let mount = tree!({ "name": volume.as_str(), "readOnly": true, "mountPath": MOUNT_PATH });
            push(container, "volumeMounts", mount);
        }
    }
    if needed && !has_volume {
        if let Some(spec) = pod.get_mut("spec") {
            push(spec, "volumes", token_volume(&volume));
        }
    }
}

fn push(object: &mut Value, key: &str, item: Value) {
    let Some(object) = object.as_object_mut() else { return };
    let list = object.entry(key);
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = vec![item].into(),
    }
}

/// The volume with the account's token, the CA of the cluster and the namespace.
fn token_volume(name: &str) -> Value {
    use plinth_apiserver::authn::service_account::WARN_ONLY_EXPIRATION;
    /// `0644`: the API's default for projected volumes.
    const MODE: i64 = 0o644;
    let token = tree!({ "path": "token", "expirationSeconds": WARN_ONLY_EXPIRATION });
    let authority = tree!({
        "name": "kube-root-ca.crt",
        "items": tree!([tree!({ "key": "ca.crt", "path": "ca.crt" })]),
    });
    let namespace = tree!({
        "path": "namespace",
        "fieldRef": tree!({ "apiVersion": "v1", "fieldPath": "metadata.namespace" }),
    });
    tree!({
        "name": name,
        "projected": tree!({
            "defaultMode": MODE,
            "sources": tree!([
                tree!({ "serviceAccountToken": token }),
                tree!({ "configMap": authority }),
                tree!({ "downwardAPI": tree!({ "items": tree!([namespace]) }) }),
            ]),
        }),
    })
}

/// Fields that a mirror pod must not have.
fn mirror_error(pod: &Value) -> Option<&'static str> {
    if !account_name(pod).is_empty() {
        return Some("a mirror pod may not reference service accounts");
    }
    let volumes = containers(pod, "volumes");
    let pulls = names(pod.at(&["spec", "imagePullSecrets"])).next().is_some();
    let env = ["initContainers", "containers", "ephemeralContainers"];
    let in_env = env.iter().flat_map(|kind| containers(pod, kind)).any(|c| secrets_of(c).next().is_some());
    if pulls || in_env || volumes.iter().any(mounts_secret) {
        return Some("a mirror pod may not reference secrets");
    }
    let projects_token = |volume: &Value| {
        let sources =
            volume.get("projected").map(|projected| projected.list_at(&["sources"])).unwrap_or_default();
        sources.iter().any(|source| source.get("serviceAccountToken").is_some())
    };
    match volumes.iter().any(projects_token) {
        true => Some("a mirror pod may not use ServiceAccountToken volume projections"),
        false => None,
    }
}

/// Whether a volume uses a Secret, in any of the possible ways.
fn mounts_secret(volume: &Value) -> bool {
    let reference = |kind: &str, field: &str| volume.at(&[kind, field]).is_some_and(|r| !r.is_null());
    let sources =
        volume.get("projected").map(|projected| projected.list_at(&["sources"])).unwrap_or_default();
    reference("secret", "secretName")
        || reference("azureFile", "secretName")
        || sources.iter().any(|source| source.get("secret").is_some())
        || ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"]
            .iter()
            .any(|k| reference(k, "secretRef"))
        || reference("csi", "nodePublishSecretRef")
}

/// The Secrets in a container's environment, with the variable, or none for `envFrom`.
fn secrets_of(container: &Value) -> impl Iterator<Item = (Option<&str>, &str)> {
    let variables = container.list_at(&["env"]).iter().filter_map(|variable| {
        let name = variable.str_at(&["valueFrom", "secretKeyRef", "name"])?;
        Some((Some(variable.str_at(&["name"]).unwrap_or_default()), name))
    });
    let whole = container
        .list_at(&["envFrom"])
        .iter()
        .filter_map(|from| Some((None, from.str_at(&["secretRef", "name"])?)));
    variables.chain(whole)
}

/// Checks the Secrets of a pod if its account limits them to those that it lists.
fn limit(call: &Call<'_>, pod: &Value, account: &Value) -> Result<(), ApiError> {
    let enforced = account.str_at(&["metadata", "annotations", ENFORCE]);
    if !enforced.is_some_and(is_true) {
        return Ok(());
    }
    let error = match call.cx.info.subresource.as_str() {
        "" => secret_error(pod, account),
        _ => environment_error(pod, account, &[("ephemeralContainers", "ephemeral container")]),
    };
    error.map_or(Ok(()), |why| Err(call.forbidden(pod, &why)))
}

/// As Go's `strconv.ParseBool` reads it.
fn is_true(text: &str) -> bool {
    matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

fn secret_error(pod: &Value, account: &Value) -> Option<String> {
    let account_name = metadata_text(account, "name");
    let secrets: HashSet<&str> = names(account.get("secrets")).collect();
    let refused = format!("is not allowed because service account {account_name} does not reference that");
    let volume =
        containers(pod, "volumes").iter().filter_map(|volume| volume.str_at(&["secret", "secretName"]));
    if let Some(name) = volume.into_iter().find(|name| !secrets.contains(name)) {
        return Some(format!("volume with secret.secretName=\"{name}\" {refused} secret"));
    }
    let kinds = [("initContainers", "init container"), ("containers", "container")];
    if let Some(error) = environment_error(pod, account, &kinds) {
        return Some(error);
    }
    let pulls: HashSet<&str> = names(account.get("imagePullSecrets")).collect();
    let (at, name) =
        names(pod.at(&["spec", "imagePullSecrets"])).enumerate().find(|(_, name)| !pulls.contains(name))?;
    Some(format!("imagePullSecrets[{at}].name=\"{name}\" {refused} imagePullSecret"))
}

fn environment_error(pod: &Value, account: &Value, kinds: &[(&str, &str)]) -> Option<String> {
    let account_name = metadata_text(account, "name");
    let secrets: HashSet<&str> = names(account.get("secrets")).collect();
    for (kind, word) in kinds {
        for container in containers(pod, kind) {
            let Some((variable, name)) = secrets_of(container).find(|(_, name)| !secrets.contains(name))
            else {
                continue;
            };
            let place =
                variable.map_or_else(|| "envFrom".to_owned(), |variable| format!("envVar {variable}"));
            let container = container.str_at(&["name"]).unwrap_or_default();
            return Some(format!(
                "{word} {container} with {place} referencing secret.secretName=\"{name}\" is not allowed because service account {account_name} does not reference that secret"
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn who_decides_about_the_token() {
        let rows = [
            ("{}", "{}", true),
            (r#"{"automountServiceAccountToken":false}"#, "{}", false),
            (r#"{"automountServiceAccountToken":false}"#, r#"{"automountServiceAccountToken":true}"#, true),
            ("{}", r#"{"automountServiceAccountToken":false}"#, false),
        ];
        for (account, spec, mounts) in rows {
            let pod = parse(&format!(r#"{{"spec":{spec}}}"#));
            assert_eq!(mounts_token(&parse(account), &pod), mounts, "{account} {spec}");
        }
    }

    #[test]
    fn the_token_is_mounted_where_nothing_is_in_its_place() {
        let mut pod = parse(
            r#"{"spec":{"initContainers":[{"name":"i"}],"containers":[
                {"name":"a","volumeMounts":[{"name":"v","mountPath":"/x"}]},
                {"name":"b","volumeMounts":[{"name":"v","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}],
                "volumes":[{"name":"v","emptyDir":{}}]}}"#,
        );
        mount_token(&mut pod);
        let volumes = containers(&pod, "volumes");
        assert_eq!(volumes.len(), 2);
        let name = volumes[1].str_at(&["name"]).unwrap();
        assert!(name.starts_with(VOLUME) && name.len() == VOLUME.len() + 5);
        let token = &volumes[1].list_at(&["projected", "sources"])[0];
        assert_eq!(
            token.at(&["serviceAccountToken", "expirationSeconds"]).and_then(Value::as_int),
            Some(3607)
        );
        let mounts = |container: &Value| container.list_at(&["volumeMounts"]).len();
        assert_eq!(containers(&pod, "initContainers").iter().map(mounts).collect::<Vec<_>>(), [1]);
        assert_eq!(containers(&pod, "containers").iter().map(mounts).collect::<Vec<_>>(), [2, 1]);
        let before = pod.clone();
        mount_token(&mut pod);
        assert_eq!(pod, before, "a pod that has the mounts is left alone");
    }

    #[test]
    fn a_volume_of_that_name_is_used() {
        let mut pod = parse(
            r#"{"spec":{"containers":[{"name":"a"}],"volumes":[{"name":"kube-api-access-mine","emptyDir":{}}]}}"#,
        );
        mount_token(&mut pod);
        assert_eq!(containers(&pod, "volumes").len(), 1);
        let mount = &containers(&pod, "containers")[0].list_at(&["volumeMounts"])[0];
        assert_eq!(mount.str_at(&["name"]), Some("kube-api-access-mine"));
    }

    #[test]
    fn no_volume_without_a_container_that_needs_it() {
        let mut pod = parse(
            r#"{"spec":{"containers":[{"name":"b","volumeMounts":[{"name":"v","mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}]}}"#,
        );
        let before = pod.clone();
        mount_token(&mut pod);
        assert_eq!(pod, before);
    }

    #[test]
    fn mirror_pods_by_table() {
        let rows = [
            (r#"{"containers":[{"name":"a"}]}"#, None),
            (r#"{"serviceAccountName":"x"}"#, Some("a mirror pod may not reference service accounts")),
            (r#"{"imagePullSecrets":[{"name":"s"}]}"#, Some("a mirror pod may not reference secrets")),
            (
                r#"{"volumes":[{"name":"v","secret":{"secretName":"s"}}]}"#,
                Some("a mirror pod may not reference secrets"),
            ),
            (
                r#"{"containers":[{"name":"a","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}]}]}"#,
                Some("a mirror pod may not reference secrets"),
            ),
            (
                r#"{"volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"t"}}]}}]}"#,
                Some("a mirror pod may not use ServiceAccountToken volume projections"),
            ),
        ];
        for (spec, error) in rows {
            assert_eq!(mirror_error(&parse(&format!(r#"{{"spec":{spec}}}"#))), error, "{spec}");
        }
    }

    #[test]
    fn secrets_that_an_account_does_not_list() {
        let account = parse(
            r#"{"metadata":{"name":"sa"},"secrets":[{"name":"ok"}],"imagePullSecrets":[{"name":"pull"}]}"#,
        );
        let because = "is not allowed because service account sa does not reference that";
        let rows = [
            (
                r#"{"volumes":[{"name":"v","secret":{"secretName":"ok"}}],"imagePullSecrets":[{"name":"pull"}]}"#,
                None,
            ),
            (
                r#"{"volumes":[{"name":"v","secret":{"secretName":"no"}}]}"#,
                Some(format!("volume with secret.secretName=\"no\" {because} secret")),
            ),
            (
                r#"{"initContainers":[{"name":"i","env":[{"name":"E","valueFrom":{"secretKeyRef":{"name":"no"}}}]}]}"#,
                Some(format!(
                    "init container i with envVar E referencing secret.secretName=\"no\" {because} secret"
                )),
            ),
            (
                r#"{"containers":[{"name":"c","envFrom":[{"secretRef":{"name":"no"}}]}]}"#,
                Some(format!(
                    "container c with envFrom referencing secret.secretName=\"no\" {because} secret"
                )),
            ),
            (
                r#"{"imagePullSecrets":[{"name":"pull"},{"name":"no"}]}"#,
                Some(format!("imagePullSecrets[1].name=\"no\" {because} imagePullSecret")),
            ),
        ];
        for (spec, error) in rows {
            assert_eq!(secret_error(&parse(&format!(r#"{{"spec":{spec}}}"#)), &account), error, "{spec}");
        }
    }
}
