//! Parameter objects of a policy: `paramKind` of the policy, `paramRef` of its binding
//! (k8s.io/apiserver `pkg/admission/plugin/policy/generic`).

use std::sync::Arc;

use plinth_codec::selector::LabelSelector;
use plinth_codec::Value;
use plinth_engine::Entry;

use super::super::call::Call;
use plinth_api::ApiError;
use plinth_apiserver::stored_objects::read;
use plinth_registry::{collection_prefix, prefix_range, ResourceType};
use plinth_storage::{decode_object, Fetched, Header};

/// `paramKind`.
#[derive(Clone, Debug)]
pub(super) struct ParamKind {
    api_version: String,
    kind: String,
}

impl ParamKind {
    /// Reads the spec of a policy; `None` when it has no parameters.
    pub(super) fn read(spec: &Value) -> Option<ParamKind> {
        let kind = spec.get("paramKind").filter(|kind| !kind.is_null())?;
        let text = |key: &str| kind.str_at(&[key]).unwrap_or_default().to_owned();
        Some(ParamKind { api_version: text("apiVersion"), kind: text("kind") })
    }

    /// The resource of the parameters.
    ///
    /// # Errors
    /// With upstream's message, when it is not served.
    pub(super) fn resource(&self, call: &Call<'_>) -> Result<Arc<ResourceType>, String> {
        let is_it = |r: &&Arc<ResourceType>| {
            r.api_version == self.api_version.as_str()
                && r.row.kind == self.kind.as_str()
                && r.storage.is_some()
        };
        call.cx.registry.resources.iter().find(is_it).cloned().ok_or_else(|| {
            let (group, version) = self.api_version.rsplit_once('/').unwrap_or(("", &self.api_version));
            format!(
                "failed to find resource referenced by paramKind: '{group}/{version}, Kind={}'",
                self.kind
            )
        })
    }
}

/// The parameters of a binding; empty when it allows requests without parameters. A policy without
/// parameters, and a binding without a reference, are evaluated once, with null.
///
/// # Errors
/// The configuration error of the binding, with upstream's message.
pub(super) async fn collect(
    call: &Call<'_>,
    resource: Option<&ResourceType>,
    binding: &Value,
) -> Result<Vec<Value>, String> {
    let reference = binding.get("spec").and_then(|spec| spec.get("paramRef")).filter(|r| !r.is_null());
    let (Some(resource), Some(reference)) = (resource, reference) else { return Ok(vec![Value::Null]) };
    let text = |key: &str| reference.str_at(&[key]).unwrap_or_default();
    let namespace = match (resource.row.namespaced, text("namespace")) {
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned())
        }
        (true, "") if call.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            )
        }
        (true, "") => call.namespace,
        (true, given) => given,
    };
    let selector = reference.get("selector").filter(|selector| !selector.is_null());
    let found = match text("name") {
        "" => selected(call, resource, namespace, selector).await,
        name => named(call, resource, namespace, name).await,
    };
    let found = found.map_err(|error| error.message)?;
    match found.is_empty() && text("parameterNotFoundAction") == "Deny" {
        true => Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned()),
        false => Ok(found),
    }
}

async fn named(
    call: &Call<'_>,
    resource: &ResourceType,
    namespace: &str,
    name: &str,
) -> Result<Vec<Value>, ApiError> {
    let Some(form) = &resource.storage else { return Ok(Vec::new()) };
    match call.cx.stored(form, namespace, name).await? {
        Some(record) => served(call, resource, vec![record]).await,
        None => Ok(Vec::new()),
    }
}

async fn selected(
    call: &Call<'_>,
    resource: &ResourceType,
    namespace: &str,
    selector: Option<&Value>,
) -> Result<Vec<Value>, ApiError> {
    let Some(form) = &resource.storage else { return Ok(Vec::new()) };
    let selector = LabelSelector::from_object(selector).map_err(ApiError::internal)?;
    let range = prefix_range(&collection_prefix(&form.prefix, namespace));
    let is_selected = move |entry: &Entry<'_>| {
        // One whose header cannot be read is left to whoever decodes it, with the error.
        let matches = |header: Header<'_>| selector.matches(|key| header.label(key));
        Header::parse(entry.value).map_or(true, matches).then(|| entry.to_record())
    };
    let store = &call.cx.server.store;
    let (records, _) = store.scan(range, is_selected).await?;
    let records = records.into_iter().map(|record| store.fetched(record));
    served(call, resource, records.collect::<Result<_, _>>()?).await
}

async fn served(
    call: &Call<'_>,
    resource: &ResourceType,
    records: Vec<Fetched>,
) -> Result<Vec<Value>, ApiError> {
    let records = read::records(&call.cx.server.reader, resource, records).await?;
    records.iter().map(|record| decode_object(resource, record)).collect()
}
