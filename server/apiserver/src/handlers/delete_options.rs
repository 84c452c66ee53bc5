//! `metav1.DeleteOptions`: from the body or query of a DELETE, or from an Eviction.

use bytes::Bytes;
use plinth_codec::json::DecodeOptions;
use plinth_codec::negotiate::Accepts;
use plinth_codec::schema::{self, GVK};
use plinth_codec::{Map, Value};

use super::{body, Context};
use plinth_api::{ApiError, Cause};
use plinth_http::RequestBody;

/// The option for objects that cannot be read.
pub(crate) const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// `DeleteOptions`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    /// Grace period of a pod in seconds; a negative number counts as 1.
    pub grace_period_seconds: Option<i64>,
    /// Propagation policy: `Foreground`, `Background` or `Orphan`.
    pub propagation_policy: Option<String>,
    /// Its legacy form.
    pub orphan_dependents: Option<bool>,
    /// UID precondition.
    pub uid: Option<String>,
    /// resourceVersion precondition.
    pub resource_version: Option<String>,
    /// `dryRun` values.
    pub dry_run: Vec<String>,
    /// Deletes an unreadable object without any checks.
    pub ignore_store_read_error: bool,
}

impl DeleteOptions {
    /// DeleteOptions from the body of a request, or from its query if there is no body.
    ///
    /// # Errors
    /// 400 when they cannot be decoded, 422 when they are invalid.
    pub(crate) async fn of(cx: &Context, incoming: RequestBody) -> Result<DeleteOptions, ApiError> {
        let bytes = body::read(cx, incoming).await?;
        let options = match bytes.is_empty() {
            true => DeleteOptions {
                grace_period_seconds: cx.query.grace_period_seconds,
                propagation_policy: cx.query.propagation_policy.clone(),
                orphan_dependents: cx.query.orphan_dependents,
                dry_run: cx.query.dry_run.clone(),
                ignore_store_read_error: cx.query.ignore_store_read_error == Some(true),
                // Preconditions, also for a collection, where resourceVersion selects the list as well.
                uid: cx.query.uid.clone(),
                resource_version: Some(cx.query.resource_version.clone()).filter(|text| !text.is_empty()),
            },
            false => DeleteOptions::of_body(cx, &bytes)?,
        };
        options.valid()
    }

    /// The same, if they make sense.
    ///
    /// # Errors
    /// 422 where they do not.
    pub(crate) fn valid(self) -> Result<DeleteOptions, ApiError> {
        let errors = self.errors();
        match errors.is_empty() {
            true => Ok(self),
            false => Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", errors)),
        }
    }

    /// The same for all objects of a collection.
    ///
    /// # Errors
    /// 422 for what can be asked for of a single object only.
    pub(crate) fn of_collection(self) -> Result<DeleteOptions, ApiError> {
        if !self.ignore_store_read_error {
            return Ok(self);
        }
        let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
        let cause = Cause::invalid(IGNORE_READ_ERROR, true, why);
        Err(ApiError::invalid("meta.k8s.io", "DeleteOptions", "", vec![cause]))
    }

    /// The members as admission sees them, but for `dryRun`.
    pub(crate) fn members(&self) -> Map {
        let mut members = Map::new();
        if let Some(seconds) = self.grace_period_seconds {
            members.insert("gracePeriodSeconds", seconds);
        }
        let preconditions = [("uid", &self.uid), ("resourceVersion", &self.resource_version)];
        let mut given = Map::new();
        for (key, text) in preconditions {
            if let Some(text) = text {
                given.insert(key, text.as_str());
            }
        }
        if !given.is_empty() {
            members.insert("preconditions", given);
        }
        if let Some(orphan) = self.orphan_dependents {
            members.insert("orphanDependents", orphan);
        }
        if let Some(policy) = &self.propagation_policy {
            members.insert("propagationPolicy", policy.as_str());
        }
        members
    }

    fn of_body(cx: &Context, bytes: &Bytes) -> Result<DeleteOptions, ApiError> {
        let builtin = schema::builtin();
        let root = builtin
            .kind(&GVK::new("", "v1", "DeleteOptions"))
            .ok_or_else(|| ApiError::internal("no type for DeleteOptions"))?;
        let encoding = body::object_encoding(cx, Accepts::Object)?;
        let read = DecodeOptions::default();
        let tree = body::parse(bytes, encoding, builtin, root, &read, |_| Ok(None))
            .map_err(body::BodyDecodeError::plain)?
            .value;
        // Audit records upstream's internal version.
        cx.audit.request_object(&tree, |tree| {
            if let Some(options) = tree.as_object_mut() {
                options.insert("kind", "DeleteOptions");
                options.insert("apiVersion", "meta.k8s.io/__internal");
            }
        });
        let kind = tree.str_at(&["kind"]).unwrap_or_default();
        if !matches!(kind, "" | "DeleteOptions") {
            let version = tree.str_at(&["apiVersion"]).unwrap_or_default();
            let what = body::unregistered(kind, version);
            return Err(ApiError::bad_request(what));
        }
        Ok(DeleteOptions::of_tree(&tree))
    }

    /// DeleteOptions from an object.
    pub(crate) fn of_tree(tree: &Value) -> DeleteOptions {
        let text = |path: &[&str]| tree.str_at(path).map(str::to_owned);
        let flag = |key: &str| tree.get(key).and_then(Value::as_bool);
        DeleteOptions {
            grace_period_seconds: tree.at(&["gracePeriodSeconds"]).and_then(Value::as_int),
            propagation_policy: text(&["propagationPolicy"]),
            orphan_dependents: flag("orphanDependents"),
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
            dry_run: tree.texts_at(&["dryRun"]),
            ignore_store_read_error: flag(IGNORE_READ_ERROR) == Some(true),
        }
    }

    /// Whether it is a dry run.
    pub(crate) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// Validates the options (k8s.io/apimachinery `pkg/apis/meta/v1/validation`, `ValidateDeleteOptions`).
    fn errors(&self) -> Vec<Cause> {
        const POLICIES: [&str; 4] = ["Foreground", "Background", "Orphan", "nil"];
        let mut errors = Vec::new();
        if let (Some(policy), true) = (&self.propagation_policy, self.orphan_dependents.is_some()) {
            let why = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(Cause::invalid("propagationPolicy", policy.clone(), why));
        }
        if let Some(policy) = self.propagation_policy.as_deref().filter(|p| !POLICIES[..3].contains(p)) {
            errors.push(Cause::not_supported("propagationPolicy", policy, &POLICIES));
        }
        let bad = self.dry_run.iter().find(|v| *v != "All");
        errors.extend(bad.map(|v| Cause::not_supported("dryRun", v.as_str(), &["All"])));
        if self.ignore_store_read_error {
            let others = [
                (self.is_dry_run(), "dryRun"),
                (self.propagation_policy.is_some(), "propagationPolicy"),
                (self.orphan_dependents.is_some(), "orphanDependents"),
                (self.grace_period_seconds.is_some(), "gracePeriodSeconds"),
                (self.uid.is_some() || self.resource_version.is_some(), "preconditions"),
            ];
            for (_, other) in others.into_iter().filter(|(given, _)| *given) {
                let why = format!("cannot be set together with .{other}");
                errors.push(Cause::invalid(IGNORE_READ_ERROR, true, &why));
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn options_that_make_no_sense() {
        // options, paths of the errors
        let rows: [(&str, &[&str]); 7] = [
            ("{}", &[]),
            (r#"{"propagationPolicy":"Foreground","gracePeriodSeconds":-5}"#, &[]),
            (r#"{"propagationPolicy":"foreground"}"#, &["propagationPolicy"]),
            (r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#, &["propagationPolicy"]),
            (r#"{"dryRun":["all"]}"#, &["dryRun"]),
            (r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":true}"#, &[]),
            (
                r#"{"ignoreStoreReadErrorWithClusterBreakingPotential":true,"dryRun":["All"],"gracePeriodSeconds":0,"preconditions":{"uid":"x"}}"#,
                &[IGNORE_READ_ERROR; 3],
            ),
        ];
        for (text, paths) in rows {
            let options = DeleteOptions::of_tree(&json::parse(text.as_bytes()).unwrap());
            let errors = options.errors();
            let found: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!(found, paths, "{text}");
        }
    }
}
