//! What was authorized: the only thing that a handler acts on.
//!
//! [`Authorized`] is made by the [`Authorizer`] alone, when a request was allowed, and cannot be changed. Handlers read group,
//! resource, subresource, namespace and name from it, and derive the keys of stored objects from it, so that what is
//! acted on is what somebody was allowed to act on. To create an object takes a `CreateGrant`, which a request that was
//! authorized for another verb gets only by asking the authorizers again.

use std::ops::Deref;

use super::{settle, Attributes, Authorizer, Decision, RequestAttributes, ResourceTarget};
use plinth_api::api_error::ApiError;
use plinth_api::request_info::{RequestInfo, Verb};
use plinth_api::user::User;
use plinth_registry::key;
use plinth_registry::ResourceType;

/// A request for a resource that was allowed. Reads as its [`RequestInfo`]; there is no way to change it.
#[derive(Clone, Debug)]
pub struct Authorized {
    info: RequestInfo,
    /// The name that stood for the collection in the question, from the field selector.
    selected_name: Option<String>,
}

impl Deref for Authorized {
    type Target = RequestInfo;

    fn deref(&self) -> &RequestInfo {
        &self.info
    }
}

impl Authorized {
    /// What the server does of its own accord, as `system:apiserver` in `system:masters`, who may do everything before anybody is
    /// asked (`simple::masters`).
    pub(crate) fn by_server(
        resource: &ResourceType,
        subresource: &str,
        (namespace, name): (&str, &str),
        verb: Verb,
    ) -> Authorized {
        let info = RequestInfo {
            group: resource.row.group.to_string(),
            version: resource.row.version.to_string(),
            namespace: namespace.to_owned(),
            resource: resource.row.plural.to_string(),
            subresource: subresource.to_owned(),
            name: name.to_owned(),
            tail: String::new(),
            verb,
            verb_in_path: false,
            has_empty_segment: false,
            is_below_namespace: resource.row.namespaced && !namespace.is_empty(),
        };
        Authorized { info, selected_name: None }
    }

    /// The one object that a list or watch was authorized for by its field selector, where it was: no other may be shown.
    pub(crate) fn selected_name(&self) -> Option<&str> {
        self.selected_name.as_deref()
    }

    /// The namespace part of the keys of a resource's objects: that of the request, empty for cluster-scoped resources.
    pub(crate) fn key_namespace(&self, resource: &ResourceType) -> &str {
        match resource.row.namespaced {
            true => &self.info.namespace,
            false => "",
        }
    }

    /// The key of the object that the request names.
    ///
    /// # Errors
    /// 405 for a resource that is not stored, 500 for one that was not authorized.
    pub(crate) fn object_key(&self, resource: &ResourceType) -> Result<Vec<u8>, ApiError> {
        if self.info.name.is_empty() {
            return Err(ApiError::internal("a request for a collection has no object"));
        }
        Ok(key::object(self.prefix(resource)?, self.key_namespace(resource), &self.info.name))
    }

    /// What the keys of the collection that the request names start with.
    ///
    /// # Errors
    /// 405 for a resource that is not stored, 500 for one that was not authorized.
    pub(crate) fn collection_key(&self, resource: &ResourceType) -> Result<Vec<u8>, ApiError> {
        Ok(key::collection(self.prefix(resource)?, self.key_namespace(resource)))
    }

    /// The right to create objects, where that is what the request was authorized for.
    pub(crate) fn grant(&self) -> Option<CreateGrant<'_>> {
        (self.info.verb == Verb::Create).then_some(CreateGrant { authorized: self })
    }

    /// The prefix of a resource's keys.
    fn prefix<'a>(&self, resource: &'a ResourceType) -> Result<&'a str, ApiError> {
        let form = resource.storage.as_ref().ok_or_else(ApiError::method_not_allowed)?;
        let row = &resource.row;
        match row.group == self.info.group && row.plural == self.info.resource {
            true => Ok(&form.prefix),
            false => Err(ApiError::internal(format!(
                "{} in group {:?} was authorized, not {}",
                self.info.resource, self.info.group, row.plural
            ))),
        }
    }
}

/// The right to create an object: any of the collection when the request had no name, else that of this name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreateGrant<'a> {
    authorized: &'a Authorized,
}

impl CreateGrant<'_> {
    /// The key of a new object.
    ///
    /// # Errors
    /// 400 for another name than the one that was authorized, 405 and 500 as [`Authorized::object_key`].
    pub(crate) fn key(&self, resource: &ResourceType, name: &str) -> Result<Vec<u8>, ApiError> {
        let Authorized { info, .. } = self.authorized;
        if !info.name.is_empty() && info.name != name {
            return Err(other_name(name, &info.name));
        }
        Ok(key::object(self.authorized.prefix(resource)?, self.authorized.key_namespace(resource), name))
    }
}

/// 400: the object of a body is not that of the path (k8s.io/apiserver `pkg/endpoints/handlers`, `checkName`).
pub(crate) fn other_name(in_body: &str, in_path: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({in_body}) does not match the name on the URL ({in_path})"
    ))
}

/// A path that is no resource, and was allowed.
#[derive(Clone, Debug)]
pub struct AuthorizedPath(String);

impl AuthorizedPath {
    /// The path, unescaped.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Authorizer {
    /// Whether a user may make a request for a resource; if so, what was allowed.
    pub async fn authorize_resource(
        &self,
        user: &User,
        info: RequestInfo,
        asked: &RequestAttributes,
    ) -> (Decision, Result<Authorized, ApiError>) {
        let attributes = asked.of_resource(user, &info);
        let decision = self.authorize(&attributes).await;
        if let Err(denied) = settle(&decision, &attributes) {
            return (decision, Err(denied));
        }
        let name = asked.name(&info);
        let selected_name = (info.name.is_empty() && !name.is_empty()).then(|| name.to_owned());
        (decision, Ok(Authorized { info, selected_name }))
    }

    /// Whether a user may make a request for a path that is no resource; if so, what was allowed.
    pub async fn authorize_path(
        &self,
        user: &User,
        path: String,
        asked: &RequestAttributes,
    ) -> (Decision, Result<AuthorizedPath, ApiError>) {
        let attributes = asked.of_path(user, &path);
        let decision = self.authorize(&attributes).await;
        let settled = settle(&decision, &attributes);
        (decision, settled.map(|()| AuthorizedPath(path)))
    }

    /// Asks for `create` on what was authorized for another verb: a PUT or an apply may create only what the user may create
    /// (k8s.io/apiserver `pkg/endpoints/handlers`, `withAuthorization`).
    ///
    /// # Errors
    /// 403 in upstream's words; 500 when nobody could decide.
    pub(crate) async fn authorize_create(
        &self,
        user: &User,
        authorized: &Authorized,
    ) -> Result<Authorized, ApiError> {
        let info = RequestInfo { verb: Verb::Create, ..authorized.info.clone() };
        let target = ResourceTarget::of(&info);
        self.require(&Attributes::resource(user, Verb::Create.as_str(), target)).await?;
        Ok(Authorized { info, selected_name: None })
    }
}
