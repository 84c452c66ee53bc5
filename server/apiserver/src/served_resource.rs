//! The resource that a request is about, in the registry of its moment: here, at another API server, or
//! nowhere.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::context::Server;
use crate::handlers;
use plinth_api::{ApiError, RequestInfo, Route, Verb};
use plinth_registry::{Registry, RemoteVersion, ResourceType};

/// The resource of a request, looked up once.
pub(crate) struct ServedResource {
    pub(crate) registry: Arc<Registry>,
    /// The resource; `None` for other paths and for what is not served.
    pub(crate) resource: Option<Arc<ResourceType>>,
}

impl ServedResource {
    pub(crate) fn of(registry: Arc<Registry>, route: &Route) -> ServedResource {
        match route {
            Route::Resource(info) => ServedResource::of_resource(registry, info),
            Route::NonResource(_) => ServedResource { registry, resource: None },
        }
    }

    fn of_resource(registry: Arc<Registry>, info: &RequestInfo) -> ServedResource {
        let resource = registry.get(&info.group, &info.version, &info.resource).cloned();
        ServedResource { registry, resource }
    }

    /// The same once this replica knows of a definition that another one has accepted. Bounded, as such names
    /// may be anything.
    pub(crate) async fn sync_to_latest(self, server: &Server, info: &RequestInfo) -> ServedResource {
        /// Longest time for which a replica lags behind another one while both follow the journal.
        const LONGEST_LAG: Duration = Duration::from_secs(2);
        let may_be_late = self.resource.is_none()
            && !self.registry.has_builtin_group(&info.group)
            && self.remote(info).is_none();
        if !may_be_late || !server.store.engine().is_replica() {
            return self;
        }
        let deadline = Instant::now().checked_add(LONGEST_LAG);
        // Without the journal nothing more is known here.
        let _ = server.store.reach_definition(&info.group, &info.resource, deadline).await;
        self.refresh(server.registry(), info)
    }

    /// The version of another API server that the request belongs to.
    pub(crate) fn remote(&self, info: &RequestInfo) -> Option<Arc<RemoteVersion>> {
        self.registry.remote(&info.group, &info.version).cloned()
    }

    /// The same in the current registry, which may have changed while the request was queued.
    pub(crate) fn refresh(self, current: Arc<Registry>, info: &RequestInfo) -> ServedResource {
        match Arc::ptr_eq(&self.registry, &current) {
            true => self,
            false => ServedResource::of_resource(current, info),
        }
    }
}

/// Paths that are authorized by their would-be meaning but have no handler in upstream's router: empty
/// segments, segments after a subresource, the verb `proxy`.
pub(crate) fn is_served_nowhere(info: &RequestInfo) -> bool {
    let has_place_for_tail = info.subresource == "proxy";
    info.has_empty_segment || info.verb == Verb::Proxy || (info.has_tail() && !has_place_for_tail)
}

/// The resource of a request; `None` where upstream answers in plain text: groups that are not built in, and
/// paths that do not match the scope of a custom resource.
pub(crate) fn find_resource(
    registry: &Registry,
    resource: Option<Arc<ResourceType>>,
    info: &RequestInfo,
) -> Result<Option<Arc<ResourceType>>, ApiError> {
    match resource {
        Some(resource) if resource.is_custom() && !handlers::fits_scope(&resource.row, info) => Ok(None),
        Some(resource) => Ok(Some(resource)),
        None if registry.has_builtin_group(&info.group) => Err(ApiError::no_such_resource()),
        None => Ok(None),
    }
}
