//! The service Lease.

use std::sync::Arc;

use tonic::Status;

use crate::errors;
use crate::kv::LEASE_OVERHEAD;
use crate::member::Member;
use crate::wire::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRequest,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use crate::wire::HeaderResponse;
use crate::{lease_changes, leases};

/// The method `LeaseGrant` of the service `Lease`.
pub(crate) async fn grant(
    member: &Arc<Member>,
    request: LeaseGrantRequest,
) -> Result<LeaseGrantResponse, Status> {
    member.check_not_corrupt()?;
    member.check_space(LEASE_OVERHEAD).await?;
    let (id, ttl) = lease_changes::grant(member, request.id, request.ttl).await?;
    Ok(LeaseGrantResponse { header: Some(member.header()), id, ttl, error: String::new() })
}

/// The method `LeaseRevoke` of the service `Lease`.
pub(crate) async fn revoke(member: &Arc<Member>, request: LeaseRequest) -> Result<HeaderResponse, Status> {
    member.check_not_corrupt()?;
    match lease_changes::revoke(member, vec![request.id]).await? {
        0 => Err(errors::lease_not_found()),
        _ => Ok(HeaderResponse { header: Some(member.header()) }),
    }
}

/// The answer to a request of LeaseKeepAlive.
pub(crate) fn keep_alive(member: &Member, id: i64) -> LeaseKeepAliveResponse {
    let ttl = member.leases.renew(id);
    if ttl.is_some() {
        member.metrics.leases_renewed.inc();
    }
    LeaseKeepAliveResponse { header: Some(member.header()), id, ttl: ttl.unwrap_or(0) }
}

/// The method `LeaseTimeToLive` of the service `Lease`.
pub(crate) async fn time_to_live(
    member: &Arc<Member>,
    request: LeaseTimeToLiveRequest,
) -> Result<LeaseTimeToLiveResponse, Status> {
    let id = request.id;
    let Some(info) = member.leases.info(id) else {
        let header = Some(member.header());
        return Ok(LeaseTimeToLiveResponse { header, id, ttl: -1, ..LeaseTimeToLiveResponse::default() });
    };
    let mut keys = Vec::new();
    if request.keys {
        let engine = member.engine.clone();
        let read = tokio::task::spawn_blocking(move || leases::attached(&engine, id));
        keys = read.await.map_err(errors::from_task)?.map_err(|error| errors::from_engine(&error))?;
    }
    Ok(LeaseTimeToLiveResponse {
        header: Some(member.header()),
        id,
        ttl: info.left,
        granted_ttl: info.ttl,
        keys,
    })
}

/// The method `LeaseLeases` of the service `Lease`.
pub(crate) fn all(member: &Member) -> LeaseLeasesResponse {
    let leases = member.leases.all().into_iter().map(|id| LeaseRequest { id }).collect();
    LeaseLeasesResponse { header: Some(member.header()), leases }
}
