//! Keeps the objects of flow control and what follows from them: creates and heals the ones that every server has,
//! takes over changes, tells schemas whether their level exists, and lets levels borrow from each other.
//!
//! Upstream: k8s.io/kubernetes `pkg/registry/flowcontrol/{rest,ensurer}` and k8s.io/apiserver
//! `pkg/util/flowcontrol/apf_controller.go`.

use std::sync::Arc;
use std::time::Duration;

use plinth_codec::{Map, Value};
use plinth_engine::{KeyRange, Subscribe};

use plinth_api::api_error::ApiError;
use plinth_api::conditions;
use plinth_api::request_info::Verb;
use plinth_apiserver::context::{end_if_over, Context, Server};
use plinth_apiserver::flow_control::bootstrap::{self, Bootstrap, AUTO_UPDATE};
use plinth_apiserver::flow_control::config::{Levels, Reference};
use plinth_apiserver::handlers::{delete, internal};
use plinth_registry::key;
use plinth_storage::object;

/// How often seats are divided anew.
const BORROWING_PERIOD: Duration = Duration::from_secs(10);
/// How often the server's own objects are looked at.
const HEALING_PERIOD: Duration = Duration::from_secs(60);
/// Changes are taken over together when they come within this time.
const GATHER: Duration = Duration::from_millis(50);
/// Pause after something went wrong.
const RETRY: Duration = Duration::from_secs(1);

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// Makes the objects that are missing and reads the configuration, then keeps both in a task of its own.
///
/// # Errors
/// When an object cannot be written; the task runs nevertheless, and tries again.
pub async fn start(server: &Arc<Server>, mut levels: Levels) -> Result<(), ApiError> {
    let healed = heal(server).await;
    let applied = take_over(server, &mut levels).await;
    let keeper = server.clone();
    server.spawn(async move { keep_on(&keeper, &mut levels).await });
    healed.and(applied)
}

async fn keep_on(server: &Arc<Server>, levels: &mut Levels) {
    loop {
        let Err(error) = keep(server, levels).await;
        end_if_over().await;
        tracing::warn!(%error, "the keeper of flow control starts again");
        tokio::time::sleep(RETRY).await;
    }
}

async fn keep(server: &Arc<Server>, levels: &mut Levels) -> Result<std::convert::Infallible, ApiError> {
    let engine = server.store.engine();
    let range: KeyRange = key::range(format!("{GROUP}/").as_bytes());
    let mut changes = engine.subscribe(Subscribe::new(range))?;
    // What changed before the subscription began.
    take_over(server, levels).await?;
    let mut borrowing = tokio::time::interval(BORROWING_PERIOD);
    let mut healing = tokio::time::interval(HEALING_PERIOD);
    loop {
        tokio::select! {
            change = changes.next() => {
                change?;
                tokio::time::sleep(GATHER).await;
                take_over(server, levels).await?;
            }
            _ = borrowing.tick() => levels.rebalance(),
            _ = healing.tick() => heal(server).await?,
        }
    }
}

/// Reads all objects, puts the configuration in place and tells schemas what became of their levels.
async fn take_over(server: &Arc<Server>, levels: &mut Levels) -> Result<(), ApiError> {
    let level_objects = read_all(server, "prioritylevelconfigurations").await?;
    let schemas = read_all(server, "flowschemas").await?;
    let (config, references) = levels.digest(&level_objects, &schemas);
    server.flow_control.put_in_place(config);
    for (schema, reference) in schemas.iter().zip(references) {
        tell_status(server, schema, &reference).await?;
    }
    Ok(())
}

async fn read_all(server: &Arc<Server>, plural: &str) -> Result<Vec<Value>, ApiError> {
    let registry = server.registry();
    let resource = registry.get(GROUP, "v1", plural).ok_or_else(ApiError::no_such_resource)?.clone();
    let Some(form) = &resource.storage else { return Err(ApiError::no_such_resource()) };
    let range = key::range(form.prefix.as_bytes());
    let (records, _) = server.store.survey(range, |entry| Some(entry.to_record())).await?;
    let tree = |record| object::to_tree(&resource, &server.store.fetched(record)?);
    // One object that cannot be read must not take flow control with it.
    Ok(records.into_iter().filter_map(|record| tree(record).ok()).collect())
}

/// The condition `Dangling` of a schema.
async fn tell_status(server: &Arc<Server>, schema: &Value, reference: &Reference) -> Result<(), ApiError> {
    let (status, reason, what) = match reference.found {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {:?} {what}",
        reference.level
    );
    let is_told = conditions::find(schema, "Dangling").is_some_and(|told| {
        [("status", status), ("reason", reason), ("message", &message)]
            .iter()
            .all(|(key, text)| told.str_at(&[key]) == Some(*text))
    });
    if is_told {
        return Ok(());
    }
    let change = |live: &mut Value| conditions::set(live, "Dangling", status, reason, &message);
    let cx = Context::internal(server, (GROUP, "v1", "flowschemas"), "", &reference.schema, Verb::Update)?;
    update(&cx.at_subresource("status"), &change).await
}

/// Puts right what every server has.
async fn heal(server: &Arc<Server>) -> Result<(), ApiError> {
    let objects = bootstrap::objects();
    for resource in ["prioritylevelconfigurations", "flowschemas"] {
        let present = read_all(server, resource).await?;
        for own in objects.iter().filter(|own| own.resource == resource) {
            let live = present.iter().find(|v| v.str_at(&["metadata", "name"]) == Some(own.name));
            match live {
                None => internal::ensure(server, (GROUP, "v1", resource), "", own.object.clone()).await?,
                Some(live) => revise(server, own, live).await?,
            }
        }
        remove_left_over(server, resource, &objects, &present).await?;
    }
    Ok(())
}

/// What the annotation of an object says; `None` when it says nothing that can be understood.
fn auto_update(object: &Value) -> Option<bool> {
    match object.at(&["metadata", "annotations"])?.str_at(&[AUTO_UPDATE])? {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Some(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Some(false),
        _ => None,
    }
}

/// Whether the spec is the server's to keep: always for mandatory objects, else as the annotation says, else as long
/// as nobody has changed it.
fn keeps_spec(own: &Bootstrap, live: &Value) -> bool {
    let untouched = || live.at(&["metadata", "generation"]).and_then(Value::as_int) == Some(1);
    own.mandatory || auto_update(live).unwrap_or_else(untouched)
}

async fn revise(server: &Arc<Server>, own: &Bootstrap, live: &Value) -> Result<(), ApiError> {
    let keeps = keeps_spec(own, live);
    let wanted = own.object.get("spec").cloned().unwrap_or_default();
    let spec_differs = keeps && !covers(&wanted, live.get("spec").unwrap_or(&Value::default()));
    if !spec_differs && auto_update(live) == Some(keeps) {
        return Ok(());
    }
    let change = |live: &mut Value| {
        if let Some(object) = live.as_object_mut().filter(|_| spec_differs) {
            object.insert("spec", wanted.clone());
        }
        if let Some(metadata) = live.object_at_mut(&["metadata"]) {
            let mut annotations =
                metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
            annotations.insert(AUTO_UPDATE, if keeps { "true" } else { "false" });
            metadata.insert("annotations", annotations);
        }
    };
    update(&Context::internal(server, (GROUP, "v1", own.resource), "", own.name, Verb::Update)?, &change)
        .await
}

/// Objects of former versions that the server was to keep, and that it does not have any more.
async fn remove_left_over(
    server: &Arc<Server>,
    resource: &str,
    objects: &[Bootstrap],
    present: &[Value],
) -> Result<(), ApiError> {
    for live in present {
        let name = live.str_at(&["metadata", "name"]).unwrap_or_default();
        let is_own = objects.iter().any(|own| own.resource == resource && own.name == name);
        if is_own || auto_update(live) != Some(true) {
            continue;
        }
        let uid = live.str_at(&["metadata", "uid"]).unwrap_or_default();
        let cx = Context::internal(server, (GROUP, "v1", resource), "", name, Verb::Delete)?;
        match delete::delete_one(&cx, "Background", uid, None).await {
            Err(error) if !matches!(error.code, 404 | 409) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether every member of `wanted` is in `live` with the same value; what defaults have added is no difference.
fn covers(wanted: &Value, live: &Value) -> bool {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| covers(value, live)))
        }
        (Value::Array(wanted), Value::Array(live)) => {
            wanted.len() == live.len() && wanted.iter().zip(live).all(|(w, l)| covers(w, l))
        }
        (wanted, live) => wanted == live,
    }
}

async fn update(cx: &Context, change: &(dyn Fn(&mut Value) + Send + Sync)) -> Result<(), ApiError> {
    let transform = |live: Option<&Value>| {
        let mut object = live.cloned().unwrap_or_default();
        change(&mut object);
        Ok(object)
    };
    match internal::update(cx, &transform).await {
        // It has gone, or somebody else was quicker: the next round sees to it.
        Err(error) if matches!(error.code, 404 | 409) => Ok(()),
        outcome => outcome,
    }
}
