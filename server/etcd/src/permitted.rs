//! Requests for keys and leases of clients that may make them: what a request needs is compared with what its
//! user may do (`auth`), and then it is carried out. Where authentication is not enabled there is nothing to
//! compare.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::Response;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Status, Streaming};

use crate::answers::Answer;
use crate::auth::{Caller, Credentials, Needs, Unchanged};
use crate::member::Member;
use crate::txn::check;
use crate::wire::concurrency::{
    CampaignRequest, CampaignResponse, LeaderKey, LeaderRequest, LeaderResponse, LockRequest, LockResponse,
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
use crate::{concurrency, errors, kv, lease_service, leases, range, range_body, range_stream};

/// The leases that a stream has kept alive: for whom that was permitted, at which revision of users and
/// roles, with how many attachments.
type RenewedLeases = HashMap<i64, (Caller, u64, Option<u64>)>;
/// Leases of a stream that this is remembered of.
const RENEWED_LEASES: usize = 1024;

/// A member as the client of a request sees it.
#[derive(Clone)]
pub(crate) struct Permitted {
    pub member: Arc<Member>,
    pub credentials: Credentials,
}

impl Permitted {
    /// Refuses a request of who is not root.
    pub(crate) fn check_root(&self) -> Result<(), Status> {
        self.member.auth.check_root(&self.credentials).map(drop)
    }

    /// Refuses a request of nobody, where requests need a user.
    pub(crate) fn check_known(&self) -> Result<Caller, Status> {
        self.member.auth.known_caller(&self.credentials)
    }

    /// Refuses a Range that is none, or that its user may not make. What is returned is held until the state
    /// that is read is pinned: no longer, since changes of users and roles wait for it.
    async fn permit_range(&self, request: &RangeRequest) -> Result<Unchanged, Status> {
        range::check(request)?;
        let unchanged = self.member.auth.shared().await;
        let needs = Needs::default().read(&request.key, &request.range_end);
        permit(&self.member, &self.credentials, needs).await?;
        Ok(unchanged)
    }

    /// Range, with its response as a message.
    pub(crate) async fn range(self, request: RangeRequest) -> Result<Answer<RangeResponse>, Status> {
        let unchanged = self.permit_range(&request).await?;
        range::answer(&self.member, request, unchanged).await
    }

    /// Range, with its response as it goes over the wire.
    pub(crate) async fn range_body(self, request: RangeRequest) -> Result<Response<Body>, Status> {
        let unchanged = self.permit_range(&request).await?;
        range_body::answer(&self.member, request, unchanged).await
    }

    /// The method `RangeStream` of the service `KV`.
    pub(crate) async fn range_stream(
        self,
        request: RangeRequest,
    ) -> Result<mpsc::Receiver<Result<RangeStreamResponse, Status>>, Status> {
        let unchanged = self.permit_range(&request).await?;
        range_stream::serve(&self.member, request, unchanged).await
    }

    /// Writes one key, where the user may write it.
    pub(crate) async fn put(self, request: PutRequest) -> Result<PutResponse, Status> {
        check::put(&request)?;
        self.run_to_its_end(|Permitted { member, credentials }| async move {
            permit(&member, &credentials, Needs::default().put(&request)).await?;
            kv::put(&member, request).await
        })
        .await
    }

    /// The method `DeleteRange` of the service `KV`.
    pub(crate) async fn delete_range(
        self,
        request: DeleteRangeRequest,
    ) -> Result<Answer<DeleteRangeResponse>, Status> {
        check::delete(&request)?;
        self.run_to_its_end(|Permitted { member, credentials }| async move {
            permit(&member, &credentials, Needs::default().delete(&request)).await?;
            kv::delete_range(&member, request).await
        })
        .await
    }

    /// The method `Txn` of the service `KV`.
    pub(crate) async fn txn(self, request: TxnRequest) -> Result<Answer<TxnResponse>, Status> {
        if check::is_read_only(&request) {
            let unchanged = self.member.auth.shared().await;
            self.permit_txn(&request).await?;
            return kv::txn(&self.member, request, unchanged).await;
        }
        self.run_to_its_end(|client| async move {
            client.permit_txn(&request).await?;
            kv::txn(&client.member, request, None).await
        })
        .await
    }

    async fn permit_txn(&self, request: &TxnRequest) -> Result<(), Status> {
        if self.member.auth.is_enabled() {
            // How deep it is nested is bounded by that.
            check::txn(request, self.member.limits.txn_operations)?;
            permit(&self.member, &self.credentials, Needs::default().txn(request)).await?;
        }
        Ok(())
    }

    /// Removes history.
    pub(crate) async fn compact(self, request: CompactionRequest) -> Result<HeaderResponse, Status> {
        self.check_root()?;
        kv::compact(&self.member, request).await
    }

    /// The method `LeaseGrant` of the service `Lease`.
    pub(crate) async fn grant_lease(self, request: LeaseGrantRequest) -> Result<LeaseGrantResponse, Status> {
        self.check_known()?;
        lease_service::grant(&self.member, request).await
    }

    /// The method `LeaseRevoke` of the service `Lease`.
    pub(crate) async fn revoke_lease(self, request: LeaseRequest) -> Result<HeaderResponse, Status> {
        self.run_to_its_end(|Permitted { member, credentials }| async move {
            let caller = member.auth.known_caller(&credentials)?;
            permit_leases(&member, &caller, [request.id], Needs::write).await?;
            lease_service::revoke(&member, request).await
        })
        .await
    }

    /// LeaseKeepAlive: an answer to each request of the stream.
    pub(crate) fn keep_alive(
        self,
        requests: Streaming<LeaseRequest>,
    ) -> impl Stream<Item = Result<LeaseKeepAliveResponse, Status>> {
        let permitted = Arc::new(Mutex::new(RenewedLeases::new()));
        requests.then(move |request| {
            let (client, permitted) = (self.clone(), Arc::clone(&permitted));
            async move {
                let id = request?.id;
                if client.member.auth.is_enabled() {
                    client.permit_renewal(id, &permitted).await?;
                }
                Ok(lease_service::keep_alive(&client.member, id))
            }
        })
    }

    /// Refuses a client that may not write all keys of a lease. They are read again when the lease has got a
    /// key since, or users have changed: a lease is kept alive often, and may have many keys.
    async fn permit_renewal(&self, id: i64, permitted: &Mutex<RenewedLeases>) -> Result<(), Status> {
        let caller = self.check_known()?;
        let attachments = self.member.leases.attachments(id);
        let is_permitted = (caller.clone(), self.member.auth.state().revision, attachments);
        if permitted.lock().get(&id) == Some(&is_permitted) {
            return Ok(());
        }
        permit_leases(&self.member, &caller, [id], Needs::write).await?;
        let mut permitted = permitted.lock();
        if permitted.len() >= RENEWED_LEASES {
            permitted.clear();
        }
        permitted.insert(id, is_permitted);
        Ok(())
    }

    /// The method `LeaseTimeToLive` of the service `Lease`.
    pub(crate) async fn time_to_live(
        self,
        request: LeaseTimeToLiveRequest,
    ) -> Result<LeaseTimeToLiveResponse, Status> {
        let caller = self.check_known()?;
        if request.keys {
            permit_leases(&self.member, &caller, [request.id], Needs::read).await?;
        }
        let response = lease_service::time_to_live(&self.member, request).await?;
        self.member.auth.check_unchanged(&caller)?;
        Ok(response)
    }

    /// The method `LeaseLeases` of the service `Lease`.
    pub(crate) async fn leases(self) -> Result<LeaseLeasesResponse, Status> {
        let caller = self.check_known()?;
        permit_leases(&self.member, &caller, self.member.leases.all(), Needs::read).await?;
        Ok(lease_service::all(&self.member))
    }

    /// The method `Lock` of the service `Lock`.
    pub(crate) async fn lock(
        self,
        stop: CancellationToken,
        request: LockRequest,
    ) -> Result<LockResponse, Status> {
        let place = {
            let _unchanged = self.member.auth.shared().await;
            self.may_enter(&request.name, request.lease).await?;
            concurrency::enter(&self.member, &request.name, request.lease, Bytes::new()).await?
        };
        concurrency::lock(&self.member, &stop, request, place).await
    }

    /// Releases a lock, where the user may write its key.
    pub(crate) async fn unlock(self, request: UnlockRequest) -> Result<HeaderResponse, Status> {
        self.run_to_its_end(|Permitted { member, credentials }| async move {
            permit(&member, &credentials, Needs::default().write(&request.key, &Bytes::new())).await?;
            concurrency::unlock(&member, request).await
        })
        .await
    }

    /// The method `Campaign` of the service `Election`.
    pub(crate) async fn campaign(
        self,
        stop: CancellationToken,
        request: CampaignRequest,
    ) -> Result<CampaignResponse, Status> {
        let place = {
            let _unchanged = self.member.auth.shared().await;
            self.may_enter(&request.name, request.lease).await?;
            concurrency::stand(&self.member, &request).await?
        };
        concurrency::campaign(&self.member, &stop, request, place).await
    }

    /// The method `Proclaim` of the service `Election`.
    pub(crate) async fn proclaim(self, request: ProclaimRequest) -> Result<HeaderResponse, Status> {
        self.run_to_its_end(|Permitted { member, credentials }| async move {
            if let Some(LeaderKey { key, lease, .. }) = &request.leader {
                let needs = Needs::default().read(key, &Bytes::new()).write(key, &Bytes::new());
                permit(&member, &credentials, needs.lease(*lease)).await?;
            }
            concurrency::proclaim(&member, request).await
        })
        .await
    }

    /// The method `Resign` of the service `Election`.
    pub(crate) async fn resign(self, request: ResignRequest) -> Result<HeaderResponse, Status> {
        self.run_to_its_end(|Permitted { member, credentials }| async move {
            if let Some(LeaderKey { key, .. }) = &request.leader {
                let needs = Needs::default().read(key, &Bytes::new()).write(key, &Bytes::new());
                permit(&member, &credentials, needs).await?;
            }
            concurrency::resign(&member, request).await
        })
        .await
    }

    /// The method `Leader` of the service `Election`.
    pub(crate) async fn leader(self, request: LeaderRequest) -> Result<LeaderResponse, Status> {
        self.see(&request.name).await?;
        concurrency::leader(&self.member, request).await
    }

    /// The method `Observe` of the service `Election`.
    pub(crate) async fn observe(
        self,
        stop: CancellationToken,
        request: LeaderRequest,
    ) -> Result<mpsc::Receiver<Result<LeaderResponse, Status>>, Status> {
        self.see(&request.name).await?;
        let (member, name) = (Arc::clone(&self.member), request.name.clone());
        let may_see = move || -> BoxFuture<'static, Result<(), Status>> {
            let (client, name) = (self.clone(), name.clone());
            Box::pin(async move { client.see(&name).await })
        };
        Ok(concurrency::observe(member, stop, request, Box::new(may_see)))
    }

    /// Carries out what is permitted while that does not change. To its end, whether or not the client waits:
    /// what is revoked is not used afterwards.
    async fn run_to_its_end<T, F>(self, carry_out: impl FnOnce(Permitted) -> F) -> Result<T, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Status>> + Send + 'static,
    {
        let Some(unchanged) = self.member.auth.shared().await else { return carry_out(self).await };
        let carried_out = carry_out(self);
        let task = tokio::spawn(async move {
            let result = carried_out.await;
            drop(unchanged);
            result
        });
        task.await.map_err(errors::from_task)?
    }

    /// Whoever waits below a name sees the keys there, and puts one.
    async fn may_enter(&self, name: &[u8], lease: i64) -> Result<(), Status> {
        let (first, end) = concurrency::below(name);
        let needs = Needs::default().read(&first, &end).lease(lease);
        // Which key it is depends on the lease, and one that is granted for it has any id.
        let needs = match lease {
            0 => needs.write(&first, &end),
            lease => needs.write(&concurrency::place_of(name, lease), &Bytes::new()),
        };
        permit(&self.member, &self.credentials, needs).await.map(drop)
    }

    /// Whoever looks for a leader sees the keys below a name.
    pub(crate) async fn see(&self, name: &[u8]) -> Result<(), Status> {
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
    ids: impl IntoIterator<Item = i64>,
    need: fn(Needs, &Bytes, &Bytes) -> Needs,
) -> Result<(), Status> {
    let ids: Vec<i64> = ids.into_iter().collect();
    if ids.is_empty() || member.auth.check_root_caller(caller).is_ok() {
        return Ok(());
    }
    let (member, caller) = (Arc::clone(member), caller.clone());
    let checked = tokio::task::spawn_blocking(move || {
        ids.into_iter().filter(|id| member.leases.has(*id)).try_for_each(|id| {
            let attached = leases::attached(&member.engine, id);
            let keys = attached.map_err(|error| errors::from_engine(&error))?;
            let needs = keys.iter().fold(Needs::default(), |needs, key| need(needs, key, &Bytes::new()));
            member.auth.check_ranges(&caller, &needs)
        })
    });
    checked.await.map_err(errors::from_task)?
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plinth_engine::Transaction;
    use tokio::time::timeout;

    use super::*;
    use crate::wire::auth::{AuthenticateRequest, NameRequest, UserAddRequest, UserRoleRequest};

    const SHORT: Duration = Duration::from_millis(200);

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    /// The client of root, where requests need a user, and of another one with the role of root.
    async fn guarded() -> (tempfile::TempDir, Permitted, Permitted) {
        let dir = tempfile::tempdir().unwrap();
        let member = Arc::new(Member::of_test(dir.path(), 4));
        let nobody = Permitted { member, credentials: Credentials::default() };
        for name in ["root", "other"] {
            let (name, password) = (name.to_owned(), "secret".to_owned());
            let user = UserAddRequest { name: name.clone(), password, options: None };
            nobody.clone().add_user(user).await.unwrap();
            let role = UserRoleRequest { user: name, role: "root".to_owned() };
            nobody.clone().grant_role(role).await.unwrap();
        }
        nobody.clone().enable_auth().await.unwrap();
        let mut clients = Vec::new();
        for name in ["root", "other"] {
            let login = AuthenticateRequest { name: name.to_owned(), password: "secret".to_owned() };
            let token = nobody.clone().authenticate(login).await.unwrap().token;
            let credentials = Credentials { token: Some(token.into()), ..Credentials::default() };
            clients.push(Permitted { credentials, ..nobody.clone() });
        }
        let other = clients.pop().unwrap();
        (dir, clients.pop().unwrap(), other)
    }

    /// Deletes the user of a client while its request waits for others that write. Returns whether that waits
    /// for the request; the client may leave.
    async fn delete_other<T>(root: &Permitted, request: impl Future<Output = T>, leaves: bool) -> bool {
        let member = Arc::clone(&root.member);
        let writing = Arc::clone(&member.writes).read_owned().await;
        let mut alone = Box::pin(Arc::clone(&member.writes).write_owned());
        assert!(timeout(Duration::from_millis(1), &mut alone).await.is_err());
        let mut request = Box::pin(request);
        assert!(timeout(SHORT, &mut request).await.is_err(), "it waits");
        let request = (!leaves).then_some(request);
        let name = NameRequest { name: "other".to_owned() };
        let mut deleted = Box::pin(root.clone().delete_user(name));
        let waits = timeout(SHORT, &mut deleted).await.is_err();
        drop((alone, writing));
        if let Some(request) = request {
            request.await;
        }
        if waits {
            deleted.await.unwrap();
        }
        waits
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_was_permitted_is_carried_out_before_the_user_is_deleted() {
        let (_dir, root, other) = guarded().await;
        let range = DeleteRangeRequest { key: bytes("a"), range_end: bytes("b"), prev_kv: false };
        assert!(delete_other(&root, other.delete_range(range), true).await);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_lock_is_waited_for_by_who_may_have_it() {
        let (_dir, root, other) = guarded().await;
        let lock = LockRequest { name: bytes("lock"), lease: 0 };
        assert!(delete_other(&root, other.lock(CancellationToken::new(), lock), false).await);
    }

    #[tokio::test]
    async fn a_stream_reads_what_was_there_when_it_was_permitted() {
        let (_dir, root, other) = guarded().await;
        let all = RangeRequest { key: bytes("\0"), range_end: bytes("\0"), ..RangeRequest::default() };
        let mut parts = other.range_stream(all).await.unwrap();
        // Nobody reads it yet, and users can be changed.
        let name = NameRequest { name: "other".to_owned() };
        timeout(SHORT, root.clone().delete_user(name)).await.expect("it does not wait").unwrap();
        root.member.engine.transact(Transaction::new().put("later", "")).wait().unwrap();
        let part = parts.recv().await.unwrap().unwrap();
        assert_eq!(part.range_response.unwrap().count, 0);
    }
}
