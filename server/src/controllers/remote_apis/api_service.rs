//! Reads of APIServices.

use std::sync::Arc;

use plinth_codec::Value;

use plinth_api::ApiError;
use plinth_apiserver::context::Server;
use plinth_registry::{resource_prefix, ResourceType};
use plinth_storage::decode_object;

/// Group, version and plural name of APIServices.
pub(super) const RESOURCE: (&str, &str, &str) = ("apiregistration.k8s.io", "v1", "apiservices");

pub(super) fn prefix() -> String {
    resource_prefix(RESOURCE.0, RESOURCE.2)
}

pub(super) fn resource(server: &Server) -> Result<Arc<ResourceType>, ApiError> {
    server
        .registry()
        .internal(RESOURCE.0, RESOURCE.1, RESOURCE.2)
        .cloned()
        .ok_or_else(ApiError::no_such_resource)
}

/// Reads an APIService.
pub(super) async fn read(server: &Server, name: &str) -> Result<Option<Value>, ApiError> {
    let resource = resource(server)?;
    let Some(form) = &resource.storage else { return Ok(None) };
    let record = server.store.get(form, "", name).await?;
    record.map(|record| decode_object(&resource, &record)).transpose()
}
