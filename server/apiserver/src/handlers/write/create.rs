//! A new object.

use plinth_codec::Value;
use tokio::sync::OnceCell;

use super::commit::{Commit, Committed};
use super::{
    clear_status, custom_errors, dedup_owners, drop_empty_managed_fields, refuse_errors,
    should_retry_on_latest, warn, ManagedFields, Transform, Written, AFTER_ADMISSION, ATTEMPTS,
};
use crate::authz::authorized::CreateGrant;
use crate::authz::Authorized;
use crate::context::{AdmissionRequest, Context, Operation, Write};
use crate::managed_fields;
use plinth_api::{metadata_text, resource_version, wipe_system_fields, ApiError, Moment, Reason};
use plinth_registry::{definition_stays, match_namespace, prepare_metadata_create, validate_metadata};
use plinth_storage::{Fetched, Header, Namespaces};

/// How often a name is generated again when the generated one is taken, as upstream.
const NAME_ATTEMPTS: usize = 8;

/// The right to create what a request makes. One for another verb asks the authorizers when the object is
/// ready to be stored, and once, however often the write is tried again (k8s.io/apiserver
/// `pkg/endpoints/handlers`, `withAuthorization`).
struct Permit<'a> {
    cx: &'a Context,
    granted: OnceCell<Authorized>,
}

impl<'a> Permit<'a> {
    fn of(cx: &'a Context) -> Permit<'a> {
        Permit { cx, granted: OnceCell::new() }
    }

    async fn grant(&self) -> Result<CreateGrant<'_>, ApiError> {
        if let Some(grant) = self.cx.info.grant() {
            return Ok(grant);
        }
        let ask = || self.cx.server.authorizer.authorize_create(&self.cx.user, &self.cx.info);
        let granted = self.granted.get_or_try_init(ask).await?;
        granted.grant().ok_or_else(|| ApiError::internal("a create was authorized as another verb"))
    }
}

/// Creates the object that `source` makes without a live one.
///
/// # Errors
/// Everything that a create can answer.
pub(in crate::handlers) async fn create_object(
    cx: &Context,
    source: &mut dyn Transform,
    managed_fields: ManagedFields,
) -> Result<Written, ApiError> {
    let mut tree = Some(source.make(None).await?);
    let generated = tree.as_ref().is_some_and(|tree| {
        metadata_text(tree, "name").is_empty() && !metadata_text(tree, "generateName").is_empty()
    });
    let permit = Permit::of(cx);
    let mut names_left = if generated { NAME_ATTEMPTS } else { 1 };
    for _ in 0..ATTEMPTS {
        let tree = match tree.take() {
            Some(tree) => tree,
            None => source.make(None).await?,
        };
        match create_once(cx, &permit, tree, managed_fields).await {
            Ok(Created::Written(written)) => return Ok(written),
            Ok(Created::Raced) => drop(cx.sync_to_latest().await?),
            Err(error) if error.is_already_exists() && names_left > 1 => names_left -= 1,
            // Decided where the journal has the attempt: no newer state differs.
            Err(error) if error.is_already_exists() => return Err(error),
            Err(error) if !should_retry_on_latest(cx, &error).await? => return Err(error),
            Err(_) => {}
        }
    }
    Err(ApiError::internal("the write conflicted with others too often"))
}

/// What became of one attempt to create.
enum Created {
    Written(Written),
    /// Another write took what this attempt had found free (an address, a quota).
    Raced,
}

async fn create_once(
    cx: &Context,
    permit: &Permit<'_>,
    mut tree: Value,
    managed_fields: ManagedFields,
) -> Result<Created, ApiError> {
    let moment = Moment::present();
    let strategy = cx.resource.strategy;
    let dry_run = cx.query.is_dry_run();
    // As upstream's storage, which takes what is no number for none (`Create` in k8s.io/apiserver
    // `pkg/storage/etcd3/store.go`), and which neither a dry run nor the create of an update reaches.
    let may_have_version = dry_run || cx.info.grant().is_none();
    let has_version =
        |tree: &Value| !may_have_version && resource_version(tree).is_ok_and(|version| version != 0);
    let was_sent = has_version(&tree);
    match_namespace(&cx.resource, &cx.info, &mut tree)?;
    wipe_system_fields(&mut tree)?;
    dedup_owners(cx, &mut tree, "");
    definition_stays(&cx.resource, metadata_text(&tree, "name"))?;
    // Some kinds' defaults are of the status: they come after what the client sent there is gone.
    clear_status(cx, &mut tree);
    strategy.default(&mut tree);
    if managed_fields == ManagedFields::Track {
        managed_fields::track(cx, None, &mut tree, &moment.now).await;
    }
    let call = AdmissionRequest::new(cx, Operation::Create, None);
    let namespace = match cx.reads_may_be_stale() && cx.resource.row.namespaced {
        false => None,
        // Required below: on no replica is an object stored in a namespace that another one has removed.
        true => match Namespaces::unchanged(&cx.server.store, &cx.info.namespace).await? {
            None => return Ok(Created::Raced),
            unchanged => unchanged,
        },
    };
    let requester_fields = cx.kind_handler.requester_only_fields(&tree);
    cx.server.admission.mutate(&call, &mut tree).await?;
    let has_version = was_sent || has_version(&tree);
    cx.kind_handler.check_admitted(cx, requester_fields, &tree)?;
    dedup_owners(cx, &mut tree, AFTER_ADMISSION);
    drop_empty_managed_fields(&mut tree);
    cx.kind_handler.check_grant(Write { cx, new: &tree, old: None }).await?;
    prepare_metadata_create(&cx.resource, &mut tree, &moment)?;
    (strategy.prepare_for_create)(&mut tree);
    strategy.drop_disabled(&mut tree, None, |gate| cx.server.gates.is_on(gate));
    (strategy.record_requester)(&mut tree, &cx.user);
    let allocated = cx.kind_handler.allocate(cx, None, &mut tree).await?;
    validate_new(cx, &tree).await?;
    let grant = permit.grant().await?;
    cx.server.admission.validate(&call, &tree).await?;
    if has_version {
        let what = "resourceVersion should not be set on objects to be created";
        return Err(ApiError::new(500, Reason::Unknown, what));
    }
    let mut parts = allocated.and(call.into_parts());
    namespace.into_iter().for_each(|unchanged| parts.require(unchanged));
    let can_race = parts.can_race();
    let name = metadata_text(&tree, "name").to_owned();
    let has_generate_name = !metadata_text(&tree, "generateName").is_empty();
    let key = grant.key(&cx.resource, &name)?;
    let value = cx.to_stored(tree).await?;
    let commit = Commit { live: None, key: key.clone(), value, delete: false, parts, dry_run };
    match commit.run(cx).await? {
        Committed::Done(done) => Ok(Created::Written(done.written(false))),
        Committed::Conflict => {
            let holder = cx.record(&key).await;
            if can_race && matches!(holder, Ok(None)) {
                return Ok(Created::Raced);
            }
            let mut error = already_exists(cx, &name, has_generate_name);
            // As upstream (k8s.io/apiserver `pkg/registry/generic/registry/store.go`, `create`).
            let is_deleting =
                |holder: Fetched| Header::parse(&holder.value).is_ok_and(|header| header.deleting());
            if holder.ok().flatten().is_some_and(is_deleting) {
                error.message.insert_str(0, "object is being deleted: ");
            }
            Err(error)
        }
    }
}

async fn validate_new(cx: &Context, tree: &Value) -> Result<(), ApiError> {
    let mut errors = cx.resource.strategy.create_errors(tree);
    cx.kind_handler.check_permissions(Write { cx, new: tree, old: None }, &mut errors).await?;
    errors.extend(validate_metadata(&cx.resource, tree, true));
    errors.extend(custom_errors(cx, tree, None).await?);
    refuse_errors(cx, tree, errors)?;
    warn(cx, tree, None);
    Ok(())
}

fn already_exists(cx: &Context, name: &str, has_generate_name: bool) -> ApiError {
    let mut error = ApiError::already_exists(cx.resource.group(), cx.resource.plural(), name);
    if has_generate_name {
        error.message.push_str(", the server was not able to generate a unique name for the object");
        return error.retry_after(1);
    }
    error
}
