//! Requests for certificates of pods: who changes the status of one signs in the name of its signer.
//!
//! Upstream: kubernetes `pkg/registry/certificates/podcertificaterequest/strategy.go`.

use plinth_kinds::same;

use crate::authz::signers::may_act_for_signer;
use crate::context::{Outcome, Write};
use plinth_api::Cause;

/// The status of a request that is valid otherwise.
pub(super) fn check_signer<'a>(write: Write<'a>, errors: &'a mut Vec<Cause>) -> Outcome<'a, ()> {
    Box::pin(async move {
        let Some(old) = write.old else { return Ok(()) };
        let is_unchanged = same(old.get("status"), write.new.get("status"));
        if write.cx.info.subresource != "status" || is_unchanged || !errors.is_empty() {
            return Ok(());
        }
        let signer = old.str_at(&["spec", "signerName"]).unwrap_or_default();
        let user = &write.cx.user;
        if !may_act_for_signer(&write.cx.server.authorizer, user, "sign", signer).await {
            let why = format!("User {:?} is not permitted to \"sign\" for signer {signer:?}", user.name);
            errors.push(Cause::forbidden("spec.signerName", &why));
        }
        Ok(())
    })
}
