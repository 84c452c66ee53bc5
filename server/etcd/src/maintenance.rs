//! The services Maintenance and Cluster: a cluster of one member, which takes no others.

use std::sync::Arc;
use std::time::Instant;

use plinth_engine::KeyRange;
use prometheus::IntGauge;
use tonic::Status;

use crate::errors;
use crate::member::Member;
use crate::value::{entry_key_value, to_etcd};
use crate::versions::{CLUSTER_VERSION, VERSION};
use crate::wire::maintenance::{
    alarm, alarm_action, downgrade_action, AlarmMember, AlarmRequest, AlarmResponse, DowngradeInfo,
    DowngradeRequest, DowngradeResponse, HashKvRequest, HashKvResponse, HashResponse, Member as WireMember,
    MembersResponse, MoveLeaderRequest, StatusResponse,
};
use crate::wire::{HeaderResponse, ResponseHeader};

/// What the flags say of the member.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub name: String,
    pub client_urls: Vec<String>,
    pub peer_urls: Vec<String>,
}

/// An alarm as Go prints the message: what has its default is left out.
fn alarm_text(AlarmMember { member_id, alarm }: AlarmMember) -> String {
    let member = if member_id == 0 { String::new() } else { format!("memberID:{member_id} ") };
    match alarm {
        alarm::NONE => member,
        alarm::NOSPACE => format!("{member}alarm:NOSPACE "),
        alarm::CORRUPT => format!("{member}alarm:CORRUPT "),
        unknown => format!("{member}alarm:{unknown} "),
    }
}

/// The method `Status` of the service `Maintenance`.
pub(crate) async fn status(member: &Arc<Member>) -> Result<StatusResponse, Status> {
    measure(member).await?;
    let size = i64::try_from(member.size()).unwrap_or(i64::MAX);
    let revision = u64::try_from(member.revision()).unwrap_or(0);
    Ok(StatusResponse {
        header: Some(member.header()),
        version: VERSION.to_owned(),
        db_size: size,
        leader: member.id(),
        raft_index: revision,
        raft_term: member.term(),
        raft_applied_index: revision,
        errors: member.alarms.list(alarm::NONE).into_iter().map(alarm_text).collect(),
        db_size_in_use: size,
        is_learner: false,
        storage_version: CLUSTER_VERSION.to_owned(),
        db_size_quota: member.limits.quota_bytes,
        downgrade_info: Some(DowngradeInfo::default()),
    })
}

/// Looks how large the store is, on a thread that may block.
pub(crate) async fn measure(member: &Arc<Member>) -> Result<(), Status> {
    let measured = Arc::clone(member);
    tokio::task::spawn_blocking(move || measured.measure()).await.map_err(errors::from_task)
}

/// The method `Alarm` of the service `Maintenance`.
pub(crate) async fn alarms(member: &Arc<Member>, request: AlarmRequest) -> Result<AlarmResponse, Status> {
    let named = AlarmMember { member_id: request.member_id, alarm: request.alarm };
    let alarms = match request.action {
        alarm_action::GET => member.alarms.list(request.alarm),
        alarm_action::ACTIVATE if request.alarm != alarm::NONE => {
            member.set_alarm(named, true).await?;
            vec![named]
        }
        alarm_action::DEACTIVATE if member.set_alarm(named, false).await? => vec![named],
        _ => Vec::new(),
    };
    Ok(AlarmResponse { header: Some(member.header()), alarms })
}

/// Defragment: what can be removed is removed, and takes no space, when this returns.
pub(crate) async fn defragment(member: &Arc<Member>) -> Result<HeaderResponse, Status> {
    let timings = &member.metrics.timings;
    let _running = Running::new(&timings.defragmenting);
    let start = Instant::now();
    member.compact_for_space().await?;
    let engine = member.engine.clone();
    let rewritten = tokio::task::spawn_blocking(move || {
        engine.wait_compacted()?;
        engine.defragment()
    });
    rewritten.await.map_err(errors::from_task)?.map_err(|error| errors::from_engine(&error))?;
    measure(member).await?;
    timings.defragment.observe(start.elapsed().as_secs_f64());
    Ok(HeaderResponse { header: None })
}

/// Counts what runs, until it is dropped.
struct Running<'a>(&'a IntGauge);

impl Running<'_> {
    fn new(gauge: &IntGauge) -> Running<'_> {
        gauge.inc();
        Running(gauge)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The method `Hash` of the service `Maintenance`.
pub(crate) async fn hash(member: &Arc<Member>) -> Result<HashResponse, Status> {
    let start = Instant::now();
    let (hash, revision) = hash_at(member, 0).await?;
    member.metrics.timings.hash.observe(start.elapsed().as_secs_f64());
    Ok(HashResponse { header: Some(member.header_at(revision)), hash })
}

/// HashKV: equal for two stores with the same keys at a revision, whatever their histories; not comparable
/// with hashes of etcd.
pub(crate) async fn hash_kv(member: &Arc<Member>, request: HashKvRequest) -> Result<HashKvResponse, Status> {
    let start = Instant::now();
    let (hash, revision) = hash_at(member, request.revision).await?;
    member.metrics.timings.hash_at_revision.observe(start.elapsed().as_secs_f64());
    Ok(HashKvResponse {
        header: Some(member.header()),
        hash,
        compact_revision: member.compacted_below(revision),
        hash_revision: revision,
    })
}

async fn hash_at(member: &Arc<Member>, revision: i64) -> Result<(u32, i64), Status> {
    let reader = Arc::clone(member);
    let hashed = tokio::task::spawn_blocking(move || {
        let latest = reader.latest()?;
        let snapshot = match revision > 0 {
            true => reader.snapshot_at(revision, to_etcd(latest.revision()))?,
            false => latest,
        };
        let mut hash = crc32fast::Hasher::new();
        // As in etcd, the bucket's name is hashed, too: no store has the hash 0, which JSON leaves out.
        hash.update(b"key");
        let mut range = snapshot.range(&KeyRange::all());
        while let Some(entry) = range.next().map_err(|error| errors::from_engine(&error))? {
            let kv = prost::Message::encode_length_delimited_to_vec(&entry_key_value(&entry, true));
            hash.update(&kv);
        }
        Ok((hash.finalize(), to_etcd(snapshot.revision())))
    });
    hashed.await.map_err(errors::from_task)?
}

/// The method `MoveLeader` of the service `Maintenance`.
pub(crate) fn move_leader(member: &Member, request: MoveLeaderRequest) -> Result<HeaderResponse, Status> {
    match request.target_id == member.id() {
        true => Ok(HeaderResponse { header: None }),
        false => Err(errors::bad_transferee()),
    }
}

/// Downgrade: there is no version to go back to, and so nothing to cancel, which etcd does not report.
pub(crate) fn downgrade(member: &Member, request: &DowngradeRequest) -> Result<DowngradeResponse, Status> {
    use downgrade_action::{CANCEL, ENABLE, VALIDATE};
    match request.action {
        CANCEL => {
            let version = CLUSTER_VERSION.rsplit_once('.').map_or(CLUSTER_VERSION, |(minor, _)| minor);
            return Ok(DowngradeResponse { header: Some(member.header()), version: version.to_owned() });
        }
        VALIDATE | ENABLE => {}
        _ => return Err(errors::unknown_method()),
    }
    let parts: Vec<&str> = request.version.split('.').collect();
    let is_version = (2..=3).contains(&parts.len()) && parts.iter().all(|part| part.parse::<u32>().is_ok());
    Err(match is_version {
        true => errors::bad_downgrade_target(),
        false => errors::bad_downgrade_version(),
    })
}

/// MemberList. Its header has no revision, as etcd's.
pub(crate) fn members(member: &Member, identity: &Identity) -> MembersResponse {
    let header = Some(ResponseHeader { revision: 0, ..member.header() });
    let members = vec![WireMember {
        id: member.id(),
        name: identity.name.clone(),
        peer_urls: identity.peer_urls.clone(),
        client_urls: identity.client_urls.clone(),
        is_learner: false,
    }];
    MembersResponse { header, members }
}

/// The method `MemberRemove` of the service `Cluster`.
pub(crate) fn remove_member(member: &Member, id: u64) -> Status {
    match id == member.id() {
        true => errors::members_not_started(),
        false => errors::member_not_found(),
    }
}

/// The method `MemberPromote` of the service `Cluster`.
pub(crate) fn promote_member(member: &Member, id: u64) -> Status {
    match id == member.id() {
        true => errors::member_not_learner(),
        false => errors::member_not_found(),
    }
}

/// MemberUpdate: the URLs of the member are those of its flags.
pub(crate) fn update_member(member: &Member, id: u64) -> Status {
    match id == member.id() {
        true => errors::unsupported("the peer URLs of the member are those of its flags"),
        false => errors::member_not_found(),
    }
}
