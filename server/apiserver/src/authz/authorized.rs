//! The authorized request, the only input of a handler.
//!
//! [`Authorized`] is constructed by the [`Authorizer`] alone, when a request was allowed, and is immutable.
//! Handlers read group, resource, subresource, namespace and name from it, and derive the keys of stored
//! objects from it, so that they act only on what was authorized. Creating an object takes a `CreateGrant`,
//! which a request that was authorized for another verb gets only through a second authorization.

use std::ops::Deref;

use super::{require_allowed, Attributes, Authorizer, Decision, RequestAttributes, ResourceTarget};
use plinth_api::{ApiError, RequestInfo, User, Verb};
use plinth_registry::{collection_prefix, object_key, ResourceType};

/// An allowed request for a resource. Dereferences to its [`RequestInfo`]; cannot be changed.
#[derive(Clone, Debug)]
pub struct Authorized {
    info: RequestInfo,
    /// The name from the field selector, when the request was authorized for it instead of the collection.
    selected_name: Option<String>,
}

impl Deref for Authorized {
    type Target = RequestInfo;

    fn deref(&self) -> &RequestInfo {
        &self.info
    }
}

impl Authorized {
    /// A request of the server itself, as `system:apiserver` in `system:masters`, which is allowed everything
    /// before any authorizer runs (`simple::masters`).
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

    /// The only object that a list or watch was authorized for through its field selector, if any: no other
    /// may be returned.
    pub(crate) fn selected_name(&self) -> Option<&str> {
        self.selected_name.as_deref()
    }

    /// The namespace in the keys of a resource's objects: the request's, or empty for cluster-scoped
    /// resources.
    pub(crate) fn key_namespace(&self, resource: &ResourceType) -> &str {
        match resource.row.namespaced {
            true => &self.info.namespace,
            false => "",
        }
    }

    /// The key of the requested object.
    ///
    /// # Errors
    /// 405 for a resource that is not stored, 500 for one that was not authorized.
    pub(crate) fn object_key(&self, resource: &ResourceType) -> Result<ObjectKey, ApiError> {
        if self.info.name.is_empty() {
            return Err(ApiError::internal("a request for a collection has no object"));
        }
        let prefix = self.prefix(resource)?;
        Ok(ObjectKey(object_key(prefix, self.key_namespace(resource), &self.info.name)))
    }

    /// The key of an object that was found in the requested collection.
    ///
    /// # Errors
    /// Those of [`Authorized::collection_key`], and 500 for a key of another collection.
    pub(crate) fn found_key(&self, resource: &ResourceType, key: &[u8]) -> Result<ObjectKey, ApiError> {
        match key.starts_with(&self.collection_key(resource)?) {
            true => Ok(ObjectKey(key.to_vec())),
            false => Err(ApiError::internal("an object is not in the collection that was authorized")),
        }
    }

    /// The key prefix of the requested collection.
    ///
    /// # Errors
    /// 405 for a resource that is not stored, 500 for one that was not authorized.
    pub(crate) fn collection_key(&self, resource: &ResourceType) -> Result<Vec<u8>, ApiError> {
        Ok(collection_prefix(self.prefix(resource)?, self.key_namespace(resource)))
    }

    /// The right to create objects, if the request was authorized for it.
    pub(crate) fn grant(&self) -> Option<CreateGrant<'_>> {
        (self.info.verb == Verb::Create).then_some(CreateGrant { authorized: self })
    }

    /// The key prefix of a resource.
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

/// The key of a stored object that was authorized. It is made in this module alone, and handlers read and
/// write objects by such keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKey(Vec<u8>);

impl Deref for ObjectKey {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The right to create an object: any in the collection when the request has no name, otherwise the one with
/// that name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CreateGrant<'a> {
    authorized: &'a Authorized,
}

impl CreateGrant<'_> {
    /// The key of a new object.
    ///
    /// # Errors
    /// 400 for a name other than the authorized one, 405 and 500 as [`Authorized::object_key`].
    pub(crate) fn key(&self, resource: &ResourceType, name: &str) -> Result<ObjectKey, ApiError> {
        let Authorized { info, .. } = self.authorized;
        if !info.name.is_empty() && info.name != name {
            return Err(other_name(name, &info.name));
        }
        let prefix = self.authorized.prefix(resource)?;
        Ok(ObjectKey(object_key(prefix, self.authorized.key_namespace(resource), name)))
    }
}

/// 400: the object in the body is not the one in the path (k8s.io/apiserver `pkg/endpoints/handlers`,
/// `checkName`).
pub(crate) fn other_name(in_body: &str, in_path: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the name of the object ({in_body}) does not match the name on the URL ({in_path})"
    ))
}

/// An allowed non-resource path.
#[derive(Clone, Debug)]
pub struct AuthorizedPath(String);

impl AuthorizedPath {
    /// The path, unescaped.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Authorizer {
    /// Authorizes a request for a resource.
    pub(crate) async fn authorize_resource(
        &self,
        user: &User,
        info: RequestInfo,
        request: &RequestAttributes,
    ) -> (Decision, Result<Authorized, ApiError>) {
        let attributes = request.of_resource(user, &info);
        let decision = self.authorize(&attributes).await;
        if let Err(denied) = require_allowed(&decision, &attributes) {
            return (decision, Err(denied));
        }
        let name = request.name(&info);
        let selected_name = (info.name.is_empty() && !name.is_empty()).then(|| name.to_owned());
        (decision, Ok(Authorized { info, selected_name }))
    }

    /// Authorizes a request for a non-resource path.
    pub(crate) async fn authorize_path(
        &self,
        user: &User,
        path: String,
        request: &RequestAttributes,
    ) -> (Decision, Result<AuthorizedPath, ApiError>) {
        let attributes = request.of_path(user, &path);
        let decision = self.authorize(&attributes).await;
        let allowed = require_allowed(&decision, &attributes);
        (decision, allowed.map(|()| AuthorizedPath(path)))
    }

    /// Authorizes `create` on what was authorized for another verb: a PUT or an apply may create only what
    /// the user may create (k8s.io/apiserver `pkg/endpoints/handlers`, `withAuthorization`).
    ///
    /// # Errors
    /// 403 with upstream's message; 500 when authorizers failed.
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
