//! The crate `etcd-client` against an endpoint. Usage: client HOST:PORT

use std::future::Future;
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, Error, EventType, GetOptions, LockOptions, PutOptions, SortOrder, SortTarget,
    Txn, TxnOp, WatchOptions,
};

const PATIENCE: Duration = Duration::from_secs(60);

type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn expect(holds: bool, what: &str) -> Outcome {
    if holds { Ok(()) } else { Err(what.into()) }
}

async fn keys(mut client: Client) -> Outcome {
    client.put("rust/a", "1", None).await?;
    let put = client.put("rust/a", "2", Some(PutOptions::new().with_prev_key())).await?;
    expect(put.prev_key().is_some_and(|kv| kv.value() == b"1"), "the value before")?;
    client.put("rust/b", "x", None).await?;
    let options = GetOptions::new().with_prefix().with_limit(1).with_sort(SortTarget::Key, SortOrder::Descend);
    let found = client.get("rust/", Some(options)).await?;
    expect(found.kvs()[0].key() == b"rust/b" && found.count() == 2 && found.more(), "range")?;
    let deleted = client.delete("rust/", Some(etcd_client::DeleteOptions::new().with_prefix())).await?;
    expect(deleted.deleted() == 2, "deleted")?;
    match client.put("", "x", None).await {
        Err(Error::GRpcStatus(status)) => expect(status.message().contains("key is not provided"), status.message()),
        other => Err(format!("an empty key: {other:?}").into()),
    }
}

async fn transactions(mut client: Client) -> Outcome {
    for succeeds in [true, false] {
        let txn = Txn::new()
            .when([Compare::create_revision("rust/txn", CompareOp::Equal, 0)])
            .and_then([TxnOp::put("rust/txn", "x", None), TxnOp::get("rust/txn", None)])
            .or_else([TxnOp::delete("rust/txn", None)]);
        expect(client.txn(txn).await?.succeeded() == succeeds, "transaction")?;
    }
    Ok(())
}

async fn watches(mut client: Client) -> Outcome {
    let first = client.put("rust/watch", "1", None).await?.header().map_or(0, |header| header.revision());
    client.delete("rust/watch", None).await?;
    let options = WatchOptions::new().with_start_revision(first).with_prev_key();
    let mut stream = client.watch("rust/watch", Some(options)).await?;
    let mut kinds = Vec::new();
    while kinds.len() < 2 {
        let response = stream.message().await?.ok_or("the watch has ended")?;
        kinds.extend(response.events().iter().map(|event| event.event_type()));
    }
    expect(kinds == [EventType::Put, EventType::Delete], "events")?;
    client.compact(first + 1, None).await?;
    let options = WatchOptions::new().with_start_revision(first);
    let mut stream = client.watch("rust/watch", Some(options)).await?;
    loop {
        let response = stream.message().await?.ok_or("the watch has ended")?;
        if response.canceled() {
            return expect(response.compact_revision() == first + 1, "the compacted revision");
        }
    }
}

async fn leases(mut client: Client) -> Outcome {
    let id = client.lease_grant(600, None).await?.id();
    client.put("rust/leased", "x", Some(PutOptions::new().with_lease(id))).await?;
    let (mut keeper, mut stream) = client.lease_keep_alive(id).await?;
    keeper.keep_alive().await?;
    expect(stream.message().await?.is_some_and(|alive| alive.ttl() == 600), "kept alive")?;
    client.lease_revoke(id).await?;
    expect(client.get("rust/leased", None).await?.kvs().is_empty(), "a key after its lease")
}

async fn locks(mut client: Client) -> Outcome {
    let held = client.lock("rust/lock", None).await?;
    let mut other = client.clone();
    let waits = tokio::spawn(async move { other.lock("rust/lock", Some(LockOptions::new())).await });
    let queue = Some(GetOptions::new().with_prefix());
    while client.get("rust/lock/", queue.clone()).await?.count() < 2 {}
    expect(!waits.is_finished(), "two have the lock")?;
    client.unlock(held.key()).await?;
    client.unlock(waits.await??.key()).await?;
    Ok(())
}

async fn elections(mut client: Client) -> Outcome {
    let lease = client.lease_grant(60, None).await?.id();
    let campaign = client.campaign("rust/election", "one", lease).await?;
    let leader = client.leader("rust/election").await?;
    expect(leader.kv().is_some_and(|kv| kv.value() == b"one"), "the leader")?;
    let mut observed = client.observe("rust/election").await?;
    let seen = observed.message().await?.ok_or("observe has ended")?;
    expect(seen.kv().is_some_and(|kv| kv.value() == b"one"), "the observed leader")?;
    let key = campaign.leader().ok_or("no leader key")?.clone();
    client.resign(Some(etcd_client::ResignOptions::new().with_leader(key))).await?;
    expect(client.leader("rust/election").await.is_err(), "a leader after it has resigned")
}

async fn maintenance(mut client: Client) -> Outcome {
    let status = client.status().await?;
    expect(Some(status.leader()) == status.header().map(|header| header.member_id()), "status")?;
    expect(client.member_list().await?.members().len() == 1, "members")?;
    client.hash_kv(0).await?;
    client.defragment().await?;
    Ok(())
}

async fn snapshots(mut client: Client) -> Outcome {
    let mut stream = client.snapshot().await?;
    let mut length = 0;
    while let Some(part) = stream.message().await? {
        length += part.blob().len();
    }
    expect(length % 512 == 32, "the length of the snapshot")
}

/// Whether the outcome is none to be content with.
async fn fails(name: &str, outcome: impl Future<Output = Outcome>) -> bool {
    let reason = match tokio::time::timeout(PATIENCE, outcome).await {
        Ok(Ok(())) => {
            println!("ok: rust etcd-client: {name}");
            return false;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer".to_owned(),
    };
    println!("failed: rust etcd-client: {name}: {reason}");
    true
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    let endpoint = std::env::args().nth(1).expect("an endpoint");
    let client = Client::connect([endpoint], None).await.expect("a connection");
    let mut failed = fails("keys", keys(client.clone())).await;
    failed |= fails("transactions", transactions(client.clone())).await;
    failed |= fails("watches", watches(client.clone())).await;
    failed |= fails("leases", leases(client.clone())).await;
    failed |= fails("locks", locks(client.clone())).await;
    failed |= fails("elections", elections(client.clone())).await;
    failed |= fails("maintenance", maintenance(client.clone())).await;
    failed |= fails("snapshots", snapshots(client)).await;
    u8::from(failed).into()
}
