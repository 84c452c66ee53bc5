//! Requests for keys and leases of clients that may make them: what a request needs is compared with what its
//! user may do (`auth`), and then it is carried out. Where authentication is not enabled there is nothing to
//! compare.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use crate::answers::Answer;
use crate::auth::{Caller, Credentials, Needs};
use crate::member::Member;
use crate::txn::check;
use crate::wire::concurrency::{
    CampaignRequest, CampaignResponse, LeaderRequest, LeaderResponse, LockRequest, LockResponse,
    ProclaimRequest, ResignRequest, UnlockRequest,
};
use crate::wire::kv::{
    CompactionRequest, DeleteRangeRequest, DeleteRangeResponse, PutRequest, PutResponse, RangeRequest,
    RangeResponse, RangeStreamResponse, TxnRequest, TxnResponse,
};
use crate::wire::lease::{
    LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveResponse, LeaseLeasesResponse, LeaseRequest,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse,
};
use crate::wire::HeaderResponse;
use crate::{concurrency, errors, kv, lease_service, leases, range, range_stream};

/// A member as the client of a request sees it.
#[derive(Clone)]
pub(crate) struct Permitted {
    pub member: Arc<Member>,
    pub credentials: Credentials,
}

impl Permitted {
    /// Refuses a Range that its user may not make; returns the user.
    pub(crate) async fn check_range(&self, request: &RangeRequest) -> Result<Caller, Status> {
        range::check(request)?;
        let needs = Needs::default().read(&request.key, &request.range_end);
        permit(&self.member, &self.credentials, needs).await
    }

    /// Range, with its response as a message.
    pub(crate) async fn range(self, request: RangeRequest) -> Result<Answer<RangeResponse>, Status> {
        let caller = self.check_range(&request).await?;
        let response = kv::range(&self.member, request).await?;
        self.member.auth.check_unchanged(&caller)?;
        Ok(response)
    }

    /// RangeStream.
    pub(crate) async fn range_stream(
        self,
        request: RangeRequest,
    ) -> Result<mpsc::Receiver<Result<RangeStreamResponse, Status>>, Status> {
        self.check_range(&request).await?;
        Ok(range_stream::serve(self.member, request))
    }

    /// Put.
    pub(crate) async fn put(self, request: PutRequest) -> Result<PutResponse, Status> {
        check::put(&request)?;
        let _unchanged = self.member.auth.shared().await;
        permit(&self.member, &self.credentials, Needs::default().put(&request)).await?;
        kv::put(&self.member, request).await
    }

    /// DeleteRange.
    pub(crate) async fn delete_range(
        self,
        request: DeleteRangeRequest,
    ) -> Result<Answer<DeleteRangeResponse>, Status> {
        check::delete(&request)?;
        let _unchanged = self.member.auth.shared().await;
        permit(&self.member, &self.credentials, Needs::default().delete(&request)).await?;
        kv::delete_range(&self.member, request).await
    }

    /// Txn.
    pub(crate) async fn txn(self, request: TxnRequest) -> Result<Answer<TxnResponse>, Status> {
        let member = &self.member;
        let is_enabled = member.auth.is_enabled();
        if is_enabled {
            // How deep it is nested is bounded by that.
            check::txn(&request, member.limits.txn_operations)?;
        }
        let _unchanged = member.auth.shared().await;
        if is_enabled {
            permit(member, &self.credentials, Needs::default().txn(&request)).await?;
        }
        kv::txn(member, request).await
    }

    /// Compact.
    pub(crate) async fn compact(self, request: CompactionRequest) -> Result<HeaderResponse, Status> {
        self.member.auth.check_root(&self.credentials)?;
        kv::compact(&self.member, request).await
    }

    /// LeaseGrant.
    pub(crate) async fn grant_lease(self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        self.member.auth.known_caller(&self.credentials)?;
        lease_service::grant(&self.member, request).await
    }

    /// LeaseRevoke.
    pub(crate) async fn revoke_lease(self, request: LeaseRequest) -> Result<HeaderResponse, Status> {
        let _unchanged = self.member.auth.shared().await;
        let caller = self.member.auth.known_caller(&self.credentials)?;
        permit_leases(&self.member, &caller, vec![request.id], Needs::write).await?;
        lease_service::revoke(&self.member, request).await
    }

    /// LeaseKeepAlive: an answer to each request of the stream.
    pub(crate) fn keep_alive(
        self,
        requests: Streaming<LeaseRequest>,
    ) -> impl Stream<Item = Result<LeaseKeepAliveResponse, Status>> {
        requests.then(move |request| {
            let Permitted { member, credentials } = self.clone();
            async move {
                let id = request?.id;
                if member.auth.is_enabled() {
                    let caller = member.auth.known_caller(&credentials)?;
                    permit_leases(&member, &caller, vec![id], Needs::write).await?;
                }
                Ok(lease_service::keep_alive(&member, id))
            }
        })
    }

    /// LeaseTimeToLive.
    pub(crate) async fn time_to_live(
        self,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, Status> {
        let caller = self.member.auth.known_caller(&self.credentials)?;
        if request.keys {
            permit_leases(&self.member, &caller, vec![request.id], Needs::read).await?;
        }
        let response = lease_service::time_to_live(&self.member, request).await?;
        self.member.auth.check_unchanged(&caller)?;
        Ok(response)
    }

    /// LeaseLeases.
    pub(crate) async fn leases(self) -> Result<LeaseLeasesResponse, Status> {
        let caller = self.member.auth.known_caller(&self.credentials)?;
        permit_leases(&self.member, &caller, self.member.leases.all(), Needs::read).await?;
        Ok(lease_service::all(&self.member))
    }

    /// Lock.
    pub(crate) async fn lock(
        self,
        stop: CancellationToken,
        request: LockRequest,
    ) -> Result<LockResponse, Status> {
        self.enter(&request.name, request.lease).await?;
        concurrency::lock(&self.member, &stop, request).await
    }

    /// Unlock.
    pub(crate) async fn unlock(self, request: UnlockRequest) -> Result<HeaderResponse, Status> {
        let _unchanged = self.member.auth.shared().await;
        let needs = Needs::default().write(&request.key, &Bytes::new());
        permit(&self.member, &self.credentials, needs).await?;
        concurrency::unlock(&self.member, request).await
    }

    /// Campaign.
    pub(crate) async fn campaign(
        self,
        stop: CancellationToken,
        request: CampaignRequest,
    ) -> Result<CampaignResponse, Status> {
        self.enter(&request.name, request.lease).await?;
        concurrency::campaign(&self.member, &stop, request).await
    }

    /// Proclaim.
    pub(crate) async fn proclaim(self, request: ProclaimRequest) -> Result<HeaderResponse, Status> {
        let _unchanged = self.member.auth.shared().await;
        if let Some(leader) = &request.leader {
            let needs = Needs::default().read(&leader.key, &Bytes::new()).write(&leader.key, &Bytes::new());
            permit(&self.member, &self.credentials, needs.lease(leader.lease)).await?;
        }
        concurrency::proclaim(&self.member, request).await
    }

    /// Resign.
    pub(crate) async fn resign(self, request: ResignRequest) -> Result<HeaderResponse, Status> {
        let _unchanged = self.member.auth.shared().await;
        if let Some(leader) = &request.leader {
            let needs = Needs::default().read(&leader.key, &Bytes::new()).write(&leader.key, &Bytes::new());
            permit(&self.member, &self.credentials, needs).await?;
        }
        concurrency::resign(&self.member, request).await
    }

    /// Leader.
    pub(crate) async fn leader(self, request: LeaderRequest) -> Result<LeaderResponse, Status> {
        self.see(&request.name).await?;
        concurrency::leader(&self.member, request).await
    }

    /// Observe.
    pub(crate) async fn observe(
        self,
        stop: CancellationToken,
        request: LeaderRequest,
    ) -> Result<mpsc::Receiver<Result<LeaderResponse, Status>>, Status> {
        self.see(&request.name).await?;
        Ok(concurrency::observe(self.member, stop, request))
    }

    /// Whoever waits below a name sees the keys there, and puts one.
    async fn enter(&self, name: &[u8], lease: i64) -> Result<(), Status> {
        let (first, end) = concurrency::below(name);
        let needs = Needs::default().read(&first, &end).lease(lease);
        // Which key it is depends on the lease, and one that is granted for it has any id.
        let needs = match lease {
            0 => needs.write(&first, &end),
            lease => needs.write(&concurrency::place_of(name, lease), &Bytes::new()),
        };
        permit(&self.member, &self.credentials, needs).await.map(drop)
    }

    async fn see(&self, name: &[u8]) -> Result<(), Status> {
        let (first, end) = concurrency::below(name);
        permit(&self.member, &self.credentials, Needs::default().read(&first, &end)).await.map(drop)
    }
}

/// Refuses a request that its user may not make; returns the user.
pub(crate) async fn permit(
    member: &Arc<Member>,
    credentials: &Credentials,
    needs: Needs,
) -> Result<Caller, Status> {
    let auth = &member.auth;
    if !auth.is_enabled() {
        return Ok(Caller::default());
    }
    let caller = auth.caller(credentials)?;
    auth.check_ranges(&caller, &needs)?;
    permit_leases(member, &caller, needs.leases, Needs::write).await?;
    Ok(caller)
}

/// Refuses what is about leases with keys that the user may not write, or read.
async fn permit_leases(
    member: &Arc<Member>,
    caller: &Caller,
    ids: Vec<i64>,
    need: fn(Needs, &Bytes, &Bytes) -> Needs,
) -> Result<(), Status> {
    if ids.is_empty() || member.auth.check_root_caller(caller).is_ok() {
        return Ok(());
    }
    let (member, caller) = (Arc::clone(member), caller.clone());
    let checked = tokio::task::spawn_blocking(move || {
        ids.into_iter().filter(|id| member.leases.has(*id)).try_for_each(|id| {
            let attached = leases::attached(&member.engine, id, |record| record.key);
            let keys = attached.map_err(|error| errors::from_engine(&error))?;
            let needs = keys.iter().fold(Needs::default(), |needs, key| need(needs, key, &Bytes::new()));
            member.auth.check_ranges(&caller, &needs)
        })
    });
    checked.await.map_err(errors::from_task)?
}
