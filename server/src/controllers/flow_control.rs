//! The controller of priority and fairness: creates and repairs the default objects, applies configuration
//! changes, sets the condition Dangling of FlowSchemas, and adjusts borrowing between priority levels.
//!
//! Upstream: k8s.io/kubernetes `pkg/registry/flowcontrol/{rest,ensurer}` and k8s.io/apiserver
//! `pkg/util/flowcontrol/apf_controller.go`.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plinth_codec::{Map, Value};
use plinth_engine::Event;

use crate::reconciler::{self, Action, Reconciler, Settings, Start};
use plinth_api::{find_condition, set_condition, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::flow_control::bootstrap::{self, BootstrapConfig, AUTO_UPDATE};
use plinth_apiserver::flow_control::config::{LevelReference, Levels};
use plinth_apiserver::handlers::{delete, internal};
use plinth_registry::prefix_range;
use plinth_storage::decode_object;

/// Interval at which borrowed seats are recomputed.
const BORROWING_PERIOD: Duration = Duration::from_secs(10);
/// Interval at which the default objects are reconciled.
const RECONCILE_PERIOD: Duration = Duration::from_secs(60);
/// Delay to batch changes.
const GATHER: Duration = Duration::from_millis(50);
/// First and longest delay after an error.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

const GROUP: &str = "flowcontrol.apiserver.k8s.io";

/// The controller. It alone changes the levels.
struct Controller {
    server: Arc<Server>,
    levels: Mutex<Levels>,
}

/// A task of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Task {
    /// Applies the objects to the levels.
    Configuration,
    /// Creates and repairs the default objects.
    DefaultObjects,
    /// Adjusts borrowing between levels.
    Borrowing,
}

/// Creates missing objects and loads the configuration, then starts the controller, which keeps both up to
/// date.
///
/// # Errors
/// When an object cannot be written; the controller runs nevertheless, and retries.
pub async fn start(server: &Arc<Server>, levels: Levels) -> Result<(), ApiError> {
    let controller = Controller { server: server.clone(), levels: Mutex::new(levels) };
    let reconciled = reconcile(server).await;
    let applied = apply_configuration(server, &controller.levels).await;
    reconciler::spawn(server, controller);
    reconciled.and(applied)
}

impl Reconciler for Controller {
    type Key = Task;

    fn settings(&self) -> Settings {
        Settings { name: "flow-control-controller", workers: 1, retry: RETRY, gather: GATHER }
    }

    async fn start(&self) -> Result<Start<Task>, ApiError> {
        // Changes before this revision are found by the first task.
        let revision = self.server.store.engine().current_revision();
        let tasks = [Task::Configuration, Task::DefaultObjects, Task::Borrowing];
        Start::new(tasks).watch(&self.server, &format!("{GROUP}/"), revision)
    }

    async fn changed(&self, _: &[Arc<Event>]) -> Result<Vec<Task>, ApiError> {
        Ok(vec![Task::Configuration])
    }

    async fn reconcile(&self, task: Task) -> Result<Action, ApiError> {
        match task {
            Task::Configuration => apply_configuration(&self.server, &self.levels).await?,
            Task::DefaultObjects => {
                reconcile(&self.server).await?;
                return Ok(Action::RequeueAfter(RECONCILE_PERIOD));
            }
            Task::Borrowing => {
                self.levels.lock().rebalance();
                return Ok(Action::RequeueAfter(BORROWING_PERIOD));
            }
        }
        Ok(Action::AwaitChange)
    }
}

/// Reads all objects, applies the configuration and updates the status of FlowSchemas.
async fn apply_configuration(server: &Arc<Server>, levels: &Mutex<Levels>) -> Result<(), ApiError> {
    let level_objects = read_all(server, "prioritylevelconfigurations").await?;
    let schemas = read_all(server, "flowschemas").await?;
    let (config, references) = levels.lock().apply_objects(&level_objects, &schemas);
    server.flow_control.set_config(config);
    for (schema, reference) in schemas.iter().zip(references) {
        write_status(server, schema, &reference).await?;
    }
    Ok(())
}

async fn read_all(server: &Arc<Server>, plural: &str) -> Result<Vec<Value>, ApiError> {
    let registry = server.registry();
    let resource = registry.internal(GROUP, "v1", plural).ok_or_else(ApiError::no_such_resource)?.clone();
    let Some(form) = &resource.storage else { return Err(ApiError::no_such_resource()) };
    let range = prefix_range(form.prefix.as_bytes());
    let (records, _) = server.store.scan(range, |entry| Some(entry.to_record())).await?;
    let tree = |record| decode_object(&resource, &server.store.fetched(record)?);
    // An unreadable object must not disable flow control.
    Ok(records.into_iter().filter_map(|record| tree(record).ok()).collect())
}

/// Sets the condition `Dangling` of a FlowSchema.
async fn write_status(
    server: &Arc<Server>,
    schema: &Value,
    reference: &LevelReference,
) -> Result<(), ApiError> {
    let (status, reason, what) = match reference.found {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {:?} {what}",
        reference.level
    );
    let is_set = find_condition(schema, "Dangling").is_some_and(|condition| {
        [("status", status), ("reason", reason), ("message", &message)]
            .iter()
            .all(|(key, text)| condition.str_at(&[key]) == Some(*text))
    });
    if is_set {
        return Ok(());
    }
    let change = |live: &mut Value| set_condition(live, "Dangling", status, reason, &message);
    let cx = Context::internal(server, (GROUP, "v1", "flowschemas"), "", &reference.schema, Verb::Update)?;
    update(&cx.at_subresource("status"), &change).await
}

/// Reconciles the default objects.
async fn reconcile(server: &Arc<Server>) -> Result<(), ApiError> {
    let objects = bootstrap::objects();
    for resource in ["prioritylevelconfigurations", "flowschemas"] {
        let present = read_all(server, resource).await?;
        for own in objects.iter().filter(|own| own.resource == resource) {
            let live = present.iter().find(|v| v.str_at(&["metadata", "name"]) == Some(own.name));
            match live {
                None => internal::ensure(server, (GROUP, "v1", resource), "", own.object.clone()).await?,
                Some(live) => update_object(server, own, live).await?,
            }
        }
        remove_left_over(server, resource, &objects, &present).await?;
    }
    Ok(())
}

/// The value of an object's auto-update annotation; `None` if it is absent or invalid.
fn auto_update(object: &Value) -> Option<bool> {
    match object.at(&["metadata", "annotations"])?.str_at(&[AUTO_UPDATE])? {
        "true" | "True" | "TRUE" | "t" | "T" | "1" => Some(true),
        "false" | "False" | "FALSE" | "f" | "F" | "0" => Some(false),
        _ => None,
    }
}

/// Whether the server maintains the spec: always for mandatory objects, else according to the annotation,
/// else as long as it was never changed.
fn maintains_spec(own: &BootstrapConfig, live: &Value) -> bool {
    let untouched = || live.at(&["metadata", "generation"]).and_then(Value::as_int) == Some(1);
    own.mandatory || auto_update(live).unwrap_or_else(untouched)
}

async fn update_object(server: &Arc<Server>, own: &BootstrapConfig, live: &Value) -> Result<(), ApiError> {
    let maintains = maintains_spec(own, live);
    let wanted = own.object.get("spec").cloned().unwrap_or_default();
    let spec_differs = maintains && !covers(&wanted, live.get("spec").unwrap_or(&Value::default()));
    if !spec_differs && auto_update(live) == Some(maintains) {
        return Ok(());
    }
    let change = |live: &mut Value| {
        if let Some(object) = live.as_object_mut().filter(|_| spec_differs) {
            object.insert("spec", wanted.clone());
        }
        if let Some(metadata) = live.object_at_mut(&["metadata"]) {
            let mut annotations =
                metadata.get("annotations").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
            annotations.insert(AUTO_UPDATE, if maintains { "true" } else { "false" });
            metadata.insert("annotations", annotations);
        }
    };
    update(&Context::internal(server, (GROUP, "v1", own.resource), "", own.name, Verb::Update)?, &change)
        .await
}

/// Removes default objects of former versions that the server maintained.
async fn remove_left_over(
    server: &Arc<Server>,
    resource: &str,
    objects: &[BootstrapConfig],
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
            Err(error) if !error.has_changed() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Whether every member of `wanted` is in `live` with the same value; defaulted fields are ignored.
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
        // Deleted or changed concurrently: the next round reconciles it.
        Err(error) if error.has_changed() => Ok(()),
        outcome => outcome,
    }
}
