"""Python's `etcd3` (gRPC) against an endpoint. Usage: grpc_client.py HOST PORT SNAPSHOT"""

import sys
import threading
import time
import traceback

import etcd3

PATIENCE = 60
client = etcd3.client(host=sys.argv[1], port=int(sys.argv[2]), timeout=PATIENCE)


def keys():
    client.put("py/a", "1")
    _, first = client.get("py/a")
    client.put("py/a", "2")
    value, second = client.get("py/a")
    assert value == b"2" and second.version == first.version + 1, (value, second.version)
    client.put("py/b", "x")
    assert [value for value, _ in client.get_prefix("py/", sort_order="descend")] == [b"x", b"2"]
    assert client.put_if_not_exists("py/a", "3") is False
    assert client.replace("py/a", "2", "3") is True
    assert client.delete("py/a") is True and client.delete("py/a") is False
    assert client.delete_prefix("py/").deleted == 1
    assert client.get("py/a") == (None, None)


def transactions():
    compare = [client.transactions.version("py/txn") == 0]
    success = [client.transactions.put("py/txn", "x"), client.transactions.get("py/txn")]
    failure = [client.transactions.delete("py/txn")]
    held, responses = client.transaction(compare=compare, success=success, failure=failure)
    assert held and responses[1][0][0] == b"x", responses
    held, _ = client.transaction(compare=compare, success=success, failure=failure)
    assert not held and client.get("py/txn")[0] is None


def watches():
    client.put("py/watch", "0")
    _, meta = client.get("py/watch")
    events, cancel = client.watch_prefix("py/watch", start_revision=meta.mod_revision)
    client.put("py/watch", "1")
    client.delete("py/watch")
    seen = [next(events) for _ in range(3)]
    cancel()
    assert [type(event).__name__ for event in seen] == ["PutEvent", "PutEvent", "DeleteEvent"], seen
    client.compact(meta.mod_revision + 2)
    events, _ = client.watch("py/watch", start_revision=meta.mod_revision)
    try:
        next(events)
        raise AssertionError("a compacted revision is watched")
    except etcd3.exceptions.RevisionCompactedError as error:
        assert error.compacted_revision == meta.mod_revision + 2


def leases():
    lease = client.lease(600)
    client.put("py/leased", "x", lease=lease)
    assert lease.granted_ttl == 600 and lease.keys == [b"py/leased"], lease.keys
    assert next(iter(lease.refresh())).TTL == 600
    lease.revoke()
    assert client.get("py/leased")[0] is None
    client.put("py/expires", "x", lease=client.lease(1))
    deadline = time.monotonic() + PATIENCE
    while client.get("py/expires")[0] is not None:
        assert time.monotonic() < deadline, "the lease does not expire"
        time.sleep(0.1)


def locks():
    held, wanted = client.lock("py", ttl=PATIENCE), client.lock("py", ttl=PATIENCE)
    assert held.acquire(timeout=PATIENCE) and held.is_acquired()
    assert not wanted.acquire(timeout=1)
    waits = threading.Thread(target=wanted.acquire, kwargs={"timeout": PATIENCE})
    waits.start()
    assert held.release()
    waits.join()
    assert wanted.is_acquired() and wanted.release()


def maintenance():
    assert client.status().leader is not None
    assert len(list(client.members)) == 1
    assert list(client.list_alarms()) == []
    client.hash()
    client.defragment()


def snapshots():
    with open(sys.argv[3], "w+b") as file:
        client.snapshot(file)
        assert file.tell() % 512 == 32, file.tell()


failed = False
for check in (keys, transactions, watches, leases, locks, maintenance, snapshots):
    try:
        check()
        print(f"ok: python etcd3: {check.__name__}", flush=True)
    except Exception as error:  # noqa: BLE001, every check is reported
        failed = True
        where = traceback.extract_tb(error.__traceback__)[0].lineno
        print(f"failed: python etcd3: {check.__name__}: line {where}: {error!r}", flush=True)
sys.exit(failed)
