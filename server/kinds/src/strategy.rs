//! What a kind does that others do not: the value that the request path calls, one per resource.
//!
//! Facts are those of the registry strategies of kubernetes (`pkg/registry/*/strategy.go`).

use plinth_api::api_error::Cause;
use plinth_api::metadata;
use plinth_api::user::User;
use plinth_codec::Value;

use crate::checks::{self, immutable, Check};
use crate::defaults::{self, DefaultRule};

/// What most statuses that a controller writes keep of the metadata (`rest.ResetObjectMetaForStatus`).
pub(crate) const STATUS_KEEPS_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// Which names an object may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// DNS subdomain: labels separated by dots, 253 characters.
    Subdomain,
    /// DNS label: 63 characters, no dots.
    Label,
    /// DNS label that starts with a letter (RFC 1035).
    Label1035,
    /// Anything that fits into a path segment.
    PathSegment,
}

/// How an object goes when it is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// At once, unless finalizers hold it.
    Plain,
    /// After its grace period, when it is bound to a node and runs.
    Pod,
    /// When its content is gone and its lifecycle finalizer removed.
    Namespace,
    /// When the objects that it defines are gone.
    Definition,
}

/// What `metadata.generation` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// There is none.
    None,
    /// It is 1 at birth and stays.
    Birth,
    /// Changes of anything but metadata and status.
    Changes,
    /// Those, and changes of annotations through the object itself.
    ChangesAndAnnotations,
    /// Those, and changes of labels.
    ChangesAndLabels,
    /// Changes, from zero: a new object has none.
    LaterChanges,
}

/// What the writer of an object has to be authorized for beside the object itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// To read all objects of the kind that an admission policy has for its parameters.
    PolicyParameters,
    /// To read the parameters that the binding of an admission policy names.
    BindingParameters,
    /// Administrators' access to devices, where a claim asks for it.
    DeviceClaim,
    /// The same in a template of claims.
    DeviceClaimTemplate,
    /// The parts of a claim's status that belong to schedulers and drivers.
    DeviceClaimStatus,
}

/// What a resource does.
#[derive(Debug)]
pub struct Strategy {
    /// Which names its objects may have.
    pub name: NameRule,
    /// What `metadata.generation` counts.
    pub generation: Generation,
    /// Whether PUT of an absent object creates it.
    pub create_on_update: bool,
    /// Whether PUT may come without a resourceVersion.
    pub unconditional_update: bool,
    /// How its objects go.
    pub deletion: Deletion,
    /// Whether DELETE answers the object and not a Status (upstream's `ReturnDeletedObject`).
    pub answers_deleted_object: bool,
    /// Whether the garbage collector's finalizers apply.
    pub collected: bool,
    /// Whether dependents are orphaned unless the client says otherwise.
    pub orphans_by_default: bool,
    /// What the client may leave out; filled in on create, update and before every comparison.
    pub defaults: &'static [DefaultRule],
    /// Whether a create may bring a status though that is a subresource: a kubelet registers its node with one.
    pub status_at_create: bool,
    /// Clears what a client may not set at create and fills what the server sets.
    pub prepare_for_create: fn(&mut Value),
    /// Writes down who creates it, where that is part of the object.
    pub stamp: fn(&mut Value, &User),
    /// Clears what a client may not change; `new` and `old` are in the storage version.
    pub prepare_for_update: fn(new: &mut Value, old: &Value),
    /// Checks of an object as it stands.
    pub checks: &'static [Check],
    /// Whether what the checks look at is as it was found good before; then a change needs none of them. Where nothing
    /// is said they are gone through each time.
    pub settled: fn(new: &Value, old: &Value) -> bool,
    /// Checks of a new object that an object that is there need not stand any more.
    pub create_checks: &'static [Check],
    /// Fields that may not change.
    pub immutable: &'static [&'static str],
    /// Errors of an object as it stands that no check says.
    pub validate: fn(&Value) -> Vec<Cause>,
    /// Errors of a new object that an object that is there may have.
    pub validate_create: fn(&Value) -> Vec<Cause>,
    /// What clients are warned of who write such an object.
    pub warnings: fn(new: &Value, old: Option<&Value>) -> Vec<String>,
    /// What clients are warned of who write such a status.
    pub status_warnings: fn(&Value) -> Vec<String>,
    /// Errors of a change.
    pub validate_update: fn(new: &Value, old: &Value) -> Vec<Cause>,
    /// Subresources that let a part of the object be written.
    pub faces: &'static [Subresource],
    /// Metadata that a write of the status leaves as it is.
    pub status_keeps: &'static [&'static str],
    /// Why an object of that name cannot be deleted.
    pub refuses_delete: fn(&str) -> Option<&'static str>,
    /// What whoever uses the resource is warned of.
    pub warning: Option<&'static str>,
    /// Checks of the status as it is written through its subresource.
    pub status_checks: &'static [Check],
    /// Errors of a change of the status.
    pub validate_status: fn(new: &Value, old: &Value) -> Vec<Cause>,
    /// What of the status stays where a write of the status leaves it out or may not change it.
    pub prepare_status: fn(new: &mut Value, old: &Value),
    /// Errors of a change that depend on the subresource which it comes through; empty for the object itself.
    pub subresource_errors: fn(subresource: &str, new: &Value, old: &Value) -> Vec<Cause>,
    /// What the writer of the object has to be authorized for beside the object.
    pub permissions: Option<Permission>,
    /// The same for the writer of its status.
    pub status_permissions: Option<Permission>,
}

/// What most resources do.
pub const BASE: Strategy = Strategy {
    name: NameRule::Subdomain,
    generation: Generation::None,
    create_on_update: false,
    unconditional_update: true,
    deletion: Deletion::Plain,
    answers_deleted_object: false,
    collected: true,
    orphans_by_default: false,
    defaults: &[],
    status_at_create: false,
    prepare_for_create: |_| {},
    stamp: |_, _| {},
    prepare_for_update: |_, _| {},
    checks: &[],
    settled: |_, _| false,
    create_checks: &[],
    immutable: &[],
    validate: |_| Vec::new(),
    validate_create: |_| Vec::new(),
    warnings: |_, _| Vec::new(),
    status_warnings: |_| Vec::new(),
    validate_update: |_, _| Vec::new(),
    faces: &[],
    status_keeps: &[],
    refuses_delete: |_| None,
    warning: None,
    status_checks: &[],
    validate_status: |_, _| Vec::new(),
    prepare_status: |_, _| {},
    subresource_errors: |_, _, _| Vec::new(),
    permissions: None,
    status_permissions: None,
};

/// What custom resources do; the rest is said by their definition.
pub static CUSTOM: Strategy =
    Strategy { generation: Generation::Changes, unconditional_update: false, ..BASE };

impl Strategy {
    /// Errors of an object as it stands.
    pub fn errors(&self, object: &Value) -> Vec<Cause> {
        let mut errors = Vec::new();
        checks::validate(self.checks, object, format_args!(""), &mut errors);
        errors.extend((self.validate)(object));
        errors.truncate(plinth_api::field::MOST_ERRORS);
        errors
    }

    /// Errors of a changed object as it stands.
    pub fn changed_errors(&self, new: &Value, old: &Value) -> Vec<Cause> {
        match (self.settled)(new, old) {
            true => Vec::new(),
            false => self.errors(new),
        }
    }

    /// Errors of a new object.
    pub fn create_errors(&self, object: &Value) -> Vec<Cause> {
        let mut errors = self.errors(object);
        checks::validate(self.create_checks, object, format_args!(""), &mut errors);
        errors.extend((self.validate_create)(object));
        errors.truncate(plinth_api::field::MOST_ERRORS);
        errors
    }

    /// What a subresource does with the object, where it is one of the kind's own.
    pub fn face(&self, subresource: &str) -> Option<&'static Subresource> {
        self.faces.iter().find(|face| face.name == subresource)
    }

    /// Errors of a change.
    pub fn update_errors(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let mut errors = Vec::new();
        immutable::immutable(self.immutable, new, old, &mut errors);
        errors.extend((self.validate_update)(new, old));
        errors
    }

    /// Errors of a change of the status.
    pub fn status_errors(&self, new: &Value, old: &Value) -> Vec<Cause> {
        let mut errors = Vec::new();
        checks::validate(self.status_checks, new, format_args!(""), &mut errors);
        errors.extend((self.validate_status)(new, old));
        errors.truncate(plinth_api::field::MOST_ERRORS);
        errors
    }

    /// Fills in the defaults.
    pub fn default(&self, object: &mut Value) {
        if let Some(object) = object.as_object_mut() {
            defaults::apply(self.defaults, object);
        }
    }
}

/// One subresource of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Subresource {
    /// Its name.
    pub name: &'static str,
    /// Puts back everything but the part that it is for.
    pub prepare: fn(new: &mut Value, old: &Value),
    /// What is wrong with the change.
    pub validate: fn(new: &Value, old: &Value) -> Vec<Cause>,
}

/// What the metadata of an object keeps through writes of its status.
pub fn keep_metadata(new: &mut Value, old: &Value, keys: &[&str]) {
    let Ok(target) = metadata::of(new) else { return };
    for key in keys {
        match old.at(&["metadata", key]) {
            Some(value) => target.insert(*key, value.clone()),
            None => target.remove(key),
        };
    }
}
