//! How the metrics of requests show a request.

use std::sync::Arc;

use hyper::header::HeaderMap;

use super::zpages;
use crate::documents;
use crate::metrics::{MeteredTarget, PathLabels, COMPONENT};
use plinth_api::Route;
use plinth_registry::ResourceType;

/// What a request is counted as; `None` when its resource is not served, or its path is not counted.
pub(crate) fn metered_target<'a>(
    route: &'a Route,
    resource: Option<&'a Arc<ResourceType>>,
    headers: &HeaderMap,
) -> Option<MeteredTarget<'a>> {
    match route {
        Route::Resource(info) => resource.map(|resource| MeteredTarget::Resource(info, resource)),
        Route::NonResource(path) => path_labels(path, headers).map(MeteredTarget::Path),
    }
}

/// How the metrics of requests show a path; `None` for one that upstream does not count.
fn path_labels(path: &str, headers: &HeaderMap) -> Option<PathLabels> {
    let counted = |subresource| Some(PathLabels { subresource, ..PathLabels::default() });
    let aggregated = |subresource| {
        let is_aggregated = documents::is_aggregated(headers);
        is_aggregated.then(|| PathLabels { subresource, component: COMPONENT, ..PathLabels::default() })
    };
    match path {
        "/healthz" => counted("/healthz"),
        "/livez" => counted("/livez"),
        "/readyz" => counted("/readyz"),
        "/openapi/v3" => counted("openapi/v3"),
        path if path.starts_with("/openapi/v3/") => counted("openapi/v3/"),
        "/api" | "/api/" => aggregated("api"),
        "/apis" => aggregated("apis"),
        "/statusz" => Some(zpages::metric_labels("statusz", headers)),
        "/flagz" => Some(zpages::metric_labels("flagz", headers)),
        _ => None,
    }
}
