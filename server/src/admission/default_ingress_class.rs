//! `DefaultIngressClass`: sets the default class of an Ingress without a class.
//!
//! Upstream: kubernetes `plugin/pkg/admission/network/defaultingressclass`.

use plinth_codec::Value;

use super::call::Call;
use super::storage::newest_default;
use plinth_api::{metadata_text, ApiError};
use plinth_storage::ObjectCache;

const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
/// The deprecated annotation for the class.
const BETA_CLASS: &str = "kubernetes.io/ingress.class";

/// Sets the class of a new Ingress.
///
/// # Errors
/// When the classes cannot be read.
pub(super) async fn admit(
    call: &Call<'_>,
    classes: &ObjectCache,
    ingress: &mut Value,
) -> Result<(), ApiError> {
    let named = ingress.at(&["metadata", "annotations", BETA_CLASS]).is_some()
        || ingress.at(&["spec", "ingressClassName"]).is_some_and(|class| !class.is_null());
    if named {
        return Ok(());
    }
    let server = &call.cx.server;
    let classes = classes.objects(&server.store, "").await?;
    if let (Some(class), Some(spec)) =
        (newest_default(&classes, &[DEFAULT]), ingress.object_at_mut(&["spec"]))
    {
        spec.insert("ingressClassName", metadata_text(&class, "name"));
    }
    Ok(())
}
