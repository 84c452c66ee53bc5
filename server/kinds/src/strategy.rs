//! What a kind does that others do not: the value that the request path calls, one per resource.
//!
//! Facts are those of the registry strategies of kubernetes (`pkg/registry/*/strategy.go`).

use std::borrow::Cow;

use plinth_api::{metadata_mut, Cause, User};
use plinth_codec::apply::Reset;
use plinth_codec::selector::Selectable;
use plinth_codec::table::{self, Column, RowConditionSource};
use plinth_codec::Value;

use crate::checks::{immutable, Check, ErrorList, Part};
use crate::defaults::{self, DefaultRule};
use crate::deletion::{self, Deletion};
use crate::gated_fields::GatedFields;

/// What most statuses that a controller writes keep of the metadata (`rest.ResetObjectMetaForStatus`).
pub(crate) const STATUS_KEEPS_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// Writes of the status own neither spec nor metadata.
pub(crate) const STATUS_OWNS_NO_METADATA: &[(&str, Reset)] =
    &[("status", Reset::Except(&["spec", "metadata"]))];

/// Which names an object may have.
#[derive(Clone, Copy, Debug)]
pub enum NameRule {
    /// DNS subdomain: labels separated by dots, 253 characters.
    Subdomain,
    /// DNS label: 63 characters, no dots.
    Label,
    /// DNS label that starts with a letter (RFC 1035).
    Label1035,
    /// Anything that fits into a path segment.
    PathSegment,
    /// As a key of a ConfigMap.
    ConfigKey,
    /// A group and a resource with a dot between them.
    GroupResource,
    /// What the function returns no errors for, which also gets the object.
    ByObject(fn(object: &Value, name: &str) -> Vec<String>),
}

/// What increments `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// The kind has no generation.
    None,
    /// Nothing: it is set to 1 on create.
    Constant,
    /// Changes of anything but metadata and status.
    Changes,
    /// As `Changes`, and changes of annotations through the object itself.
    ChangesAndAnnotations,
    /// As `Changes`, and changes of labels.
    ChangesAndLabels,
    /// As `Changes`, but a new object has none.
    LaterChanges,
}

/// Which webhooks and policies of clients requests for a kind are exempt from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionExemption {
    /// All webhooks and policies apply.
    Nothing,
    /// Policies: a broken one must not block reviews (kubernetes `pkg/kubeapiserver/admission/exclusion`).
    Policies,
    /// Webhooks and policies: a broken one can be repaired.
    WebhooksAndPolicies,
}

/// A member of an object with the value that it keeps; `None` for one that stays absent.
pub type Unwritten<'v> = (&'static str, Option<Cow<'v, Value>>);

/// A member as it is stored, null where it is absent.
pub(crate) fn as_stored<'v>(member: &'static str, old: &'v Value) -> Unwritten<'v> {
    (member, Some(old.get(member).map(Cow::Borrowed).unwrap_or_default()))
}

/// What is specific to one resource.
#[derive(Debug)]
pub struct Strategy {
    /// Valid names of its objects.
    pub name: NameRule,
    /// What increments `metadata.generation`.
    pub generation: Generation,
    /// Whether PUT of an absent object creates it (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether PUT may omit the resourceVersion (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// How its objects are deleted.
    pub deletion: Deletion,
    /// Whether finalizers that are not Kubernetes' own need a domain.
    pub finalizers_need_domain: bool,
    /// Whether admission takes an object for the namespace that it is in.
    pub is_namespace_of_itself: bool,
    /// Which webhooks and policies do not apply.
    pub admission_exemption: AdmissionExemption,
    /// Members of the stored object that a write of the subresource (empty for the object itself) leaves as
    /// they are; `None` where that is the status, or everything but the status.
    pub unwritten:
        for<'v> fn(subresource: &str, new: &'v Value, old: &'v Value) -> Option<Vec<Unwritten<'v>>>,
    /// Whether DELETE returns the object instead of a Status (`ReturnDeletedObject`).
    pub returns_deleted_object: bool,
    /// Whether the finalizers of the garbage collector apply.
    pub garbage_collected: bool,
    /// Whether dependents are orphaned unless the client requests otherwise.
    pub orphans_by_default: bool,
    /// Defaults, applied on create, on update and before every comparison.
    pub defaults: &'static [DefaultRule],
    /// Whether a create may set the status although that is a subresource: a kubelet registers its node with
    /// one.
    pub status_at_create: bool,
    /// Resets fields that a client may not set on create, and sets those that the server sets.
    pub prepare_for_create: fn(&mut Value),
    /// Records the user who creates the object, where that is part of the object.
    pub record_requester: fn(&mut Value, &User),
    /// Resets fields that a client may not change; `new` and `old` are in the storage version.
    pub prepare_for_update: fn(new: &mut Value, old: &Value),
    /// Fields that are dropped from what is written while their feature gate is off.
    pub gated_fields: &'static [GatedFields],
    /// Checks of every object.
    pub(crate) checks: &'static [Check],
    /// Whether an update leaves everything unchanged that the checks read, so that they can be skipped. By
    /// default they always run.
    pub is_unchanged_since_validation: fn(new: &Value, old: &Value) -> bool,
    /// Checks of new objects only: stored objects may violate them.
    pub(crate) create_checks: &'static [Check],
    /// Fields that may not change.
    pub immutable: &'static [&'static str],
    /// Errors of every object that no row of `checks` can express.
    pub(crate) validate: fn(&Part<'_>),
    /// Errors of new objects only: stored objects may have them.
    pub(crate) validate_create: fn(&Part<'_>),
    /// Warnings for clients that write such an object.
    pub warnings: fn(new: &Value, old: Option<&Value>) -> Vec<String>,
    /// Warnings for clients that write such a status.
    pub status_warnings: fn(&Value) -> Vec<String>,
    /// Errors of an update.
    pub(crate) validate_update: fn(new: &Part<'_>, old: &Value),
    /// Strategies of subresources that write a part of the object.
    pub subresources: &'static [SubresourceStrategy],
    /// Metadata that a write of the status leaves unchanged.
    pub status_keeps: &'static [&'static str],
    /// Why an object of that name cannot be deleted.
    pub refuse_delete: fn(&str) -> Option<&'static str>,
    /// Versions whose clients are warned.
    pub deprecations: &'static [Deprecation],
    /// Checks of the status when it is written through its subresource.
    pub(crate) status_checks: &'static [Check],
    /// Errors of an update of the status.
    pub(crate) validate_status: fn(new: &Part<'_>, old: &Value),
    /// Restores the parts of the status that a write of the status may not change or may omit.
    pub prepare_status: fn(new: &mut Value, old: &Value),
    /// Errors of an update that depend on the subresource; `subresource` is empty for the object itself.
    pub(crate) validate_subresource: fn(subresource: &str, new: &Part<'_>, old: &Value),
    /// Whether objects expire: they are kept for the TTL that the server is given (`--event-ttl`).
    pub expires: bool,
    /// The group that errors report, where upstream reports another one.
    pub error_group: Option<&'static str>,
    /// Upstream's name of the resource in storage, where that is not its plural; part of errors.
    pub storage_name: Option<&'static str>,
    /// Path of the number by which rows of Tables are sorted before their names, where upstream's order is
    /// not that of the key.
    pub rows_sorted_by: Option<&'static [&'static str]>,
    /// Warning for clients that delete an object without a propagation policy.
    pub orphan_warning: Option<&'static str>,
    /// Columns of Tables, for objects in the stored form.
    pub columns: &'static [Column],
    /// The condition of an object's row in Tables.
    pub row_condition: Option<RowConditionSource>,
    /// What objects can be selected by.
    pub selectable: Selectable,
    /// Subresources (empty for the object itself) with the fields that writes to them cannot own, where that
    /// differs from the rule of [`Strategy::reset`].
    pub reset_fields: &'static [(&'static str, Reset)],
    /// Served versions that are not the stored one.
    pub conversions: &'static [Conversion],
}

/// A deprecated version of a kind.
#[derive(Debug)]
pub struct Deprecation {
    /// The deprecated version.
    pub version: &'static str,
    /// The text of the warning.
    pub warning: &'static str,
    /// The release that no longer serves it, `1.39`; empty where none is known.
    pub removed_release: &'static str,
}

impl Deprecation {
    pub(crate) const fn new(
        version: &'static str,
        warning: &'static str,
        removed_release: &'static str,
    ) -> Deprecation {
        Deprecation { version, warning, removed_release }
    }
}

/// A served version of a kind whose objects are stored in another one. Type metadata is set by the caller.
#[derive(Debug)]
pub struct Conversion {
    /// The served version, of the resource's own group.
    pub version: &'static str,
    /// Group and version of the stored form.
    pub stored: (&'static str, &'static str),
    /// Converts a stored object in place.
    pub to_served: fn(&mut Value),
    /// Converts a served object in place.
    pub to_stored: fn(&mut Value),
}

impl Conversion {
    /// Of a version whose objects are the stored ones but for `apiVersion`.
    pub(crate) const fn same(version: &'static str, stored: (&'static str, &'static str)) -> Conversion {
        Conversion { version, stored, to_served: |_| (), to_stored: |_| () }
    }
}

/// The strategy of most resources.
pub const BASE: Strategy = Strategy {
    name: NameRule::Subdomain,
    generation: Generation::None,
    create_on_update: false,
    unconditional_update: true,
    deletion: deletion::AT_ONCE,
    finalizers_need_domain: true,
    is_namespace_of_itself: false,
    admission_exemption: AdmissionExemption::Nothing,
    unwritten: |_, _, _| None,
    returns_deleted_object: false,
    garbage_collected: true,
    orphans_by_default: false,
    defaults: &[],
    status_at_create: false,
    prepare_for_create: |_| {},
    record_requester: |_, _| {},
    prepare_for_update: |_, _| {},
    gated_fields: &[],
    checks: &[],
    is_unchanged_since_validation: |_, _| false,
    create_checks: &[],
    immutable: &[],
    validate: |_| {},
    validate_create: |_| {},
    warnings: |_, _| Vec::new(),
    status_warnings: |_| Vec::new(),
    validate_update: |_, _| {},
    subresources: &[],
    status_keeps: &[],
    refuse_delete: |_| None,
    deprecations: &[],
    status_checks: &[],
    validate_status: |_, _| {},
    prepare_status: |_, _| {},
    validate_subresource: |_, _, _| {},
    expires: false,
    error_group: None,
    storage_name: None,
    rows_sorted_by: None,
    orphan_warning: None,
    columns: Column::NAME_AND_CREATION,
    row_condition: None,
    selectable: Selectable::METADATA,
    reset_fields: &[],
    conversions: &[],
};

/// The strategy of reviews of users and of what they may do: they are answered and not stored.
pub(crate) const REVIEW: Strategy = Strategy { admission_exemption: AdmissionExemption::Policies, ..BASE };

/// The strategy of custom resources; their definition has the rest.
pub static CUSTOM: Strategy = Strategy {
    generation: Generation::Changes,
    unconditional_update: false,
    finalizers_need_domain: false,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

impl Strategy {
    /// Errors of an object.
    pub fn errors(&self, object: &Value) -> Vec<Cause> {
        reported(ErrorList::of(object, |object| self.validate_object(object)))
    }

    fn validate_object(&self, object: &Part<'_>) {
        object.check(self.checks);
        (self.validate)(object);
    }

    /// Drops fields whose feature gate is off, unless the stored object uses them.
    pub fn drop_disabled(&self, new: &mut Value, old: Option<&Value>, is_on: impl Fn(&str) -> bool) {
        let off = self.gated_fields.iter().filter(|fields| !is_on(fields.gate));
        off.for_each(|fields| fields.drop(new, old));
    }

    /// Errors of an updated object; empty where nothing changed that its checks read.
    pub fn changed_errors(&self, new: &Value, old: &Value) -> Vec<Cause> {
        match (self.is_unchanged_since_validation)(new, old) {
            true => Vec::new(),
            false => self.errors(new),
        }
    }

    /// Errors of a new object.
    pub fn create_errors(&self, object: &Value) -> Vec<Cause> {
        reported(ErrorList::of(object, |object| {
            self.validate_object(object);
            object.check(self.create_checks);
            (self.validate_create)(object);
        }))
    }

    /// The strategy of one of the kind's own subresources.
    pub fn subresource(&self, subresource: &str) -> Option<&'static SubresourceStrategy> {
        self.subresources.iter().find(|strategy| strategy.name == subresource)
    }

    /// Errors of an update.
    pub fn update_errors(&self, new: &Value, old: &Value) -> Vec<Cause> {
        ErrorList::of(new, |new| {
            immutable::immutable(self.immutable, new, old);
            (self.validate_update)(new, old);
        })
    }

    /// Errors of an update of the status.
    pub fn status_errors(&self, new: &Value, old: &Value) -> Vec<Cause> {
        reported(ErrorList::of(new, |new| {
            new.check(self.status_checks);
            (self.validate_status)(new, old);
        }))
    }

    /// Errors of an update that depend on the subresource, which is empty for the object itself.
    pub fn subresource_errors(&self, subresource: &str, new: &Value, old: &Value) -> Vec<Cause> {
        ErrorList::of(new, |new| (self.validate_subresource)(subresource, new, old))
    }

    /// The definition of its Tables.
    pub fn table(&self) -> table::TableDefinition {
        table::TableDefinition::new(self.columns, self.row_condition)
    }

    /// The fields that a write to a subresource (empty for the object itself) cannot own: without an entry in
    /// `reset_fields` the status for the object itself, the spec for its status.
    pub fn reset(&self, subresource: &str, has_status: bool) -> Reset {
        match self.reset_fields.iter().find(|(name, _)| *name == subresource) {
            Some((_, reset)) => *reset,
            None if subresource.is_empty() && has_status => Reset::Except(&["status"]),
            None if subresource == "status" => Reset::Except(&["spec"]),
            None => Reset::Nothing,
        }
    }

    /// The conversion of a served version whose objects are stored as that group and version.
    pub fn conversion(&self, version: &str, stored: (&str, &str)) -> Option<&'static Conversion> {
        self.conversions.iter().find(|c| c.version == version && c.stored == stored)
    }

    /// Whether OpenAPI documents that a deletion returns the object. Upstream wraps the storage of kinds that
    /// are only marked as deleted at first, so that their documents have a Status.
    pub fn documents_deleted_object(&self) -> bool {
        self.returns_deleted_object && !self.deletion.is_always_marked_first
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
pub struct SubresourceStrategy {
    /// As in the path, after the object's name.
    pub name: &'static str,
    /// Puts back everything but the part that it is for.
    pub prepare: fn(new: &mut Value, old: &Value),
    /// Validates the change.
    pub(crate) validate: fn(new: &Part<'_>, old: &Value),
}

impl SubresourceStrategy {
    /// Errors of a change through the subresource.
    pub fn errors(&self, new: &Value, old: &Value) -> Vec<Cause> {
        ErrorList::of(new, |new| (self.validate)(new, old))
    }
}

/// The errors that are reported of one object.
fn reported(mut errors: Vec<Cause>) -> Vec<Cause> {
    errors.truncate(plinth_api::MOST_ERRORS);
    errors
}

/// What the metadata of an object keeps through writes of its status.
pub fn keep_metadata(new: &mut Value, old: &Value, keys: &[&str]) {
    let Ok(target) = metadata_mut(new) else { return };
    for key in keys {
        match old.at(&["metadata", key]) {
            Some(value) => target.insert(*key, value.clone()),
            None => target.remove(key),
        };
    }
}
