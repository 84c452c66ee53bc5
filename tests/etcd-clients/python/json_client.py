"""Python's `etcd3gw`, which speaks JSON to `/v3/...`, against an endpoint. Usage: json_client.py HOST PORT"""

import sys
import threading
import time
import traceback

from etcd3gw.client import Etcd3Client

PATIENCE = 60
client = Etcd3Client(host=sys.argv[1], port=int(sys.argv[2]), api_path="/v3/", timeout=PATIENCE)


def keys():
    assert client.put("gw/a", "1")
    assert client.get("gw/a") == [b"1"]
    assert client.create("gw/a", "2") is False and client.create("gw/b", "\x00x") is True
    assert client.replace("gw/a", "1", "2") is True
    found = client.get_prefix("gw/", sort_order="descend", sort_target="key")
    assert [(value, meta["key"]) for value, meta in found] == [(b"\x00x", b"gw/b"), (b"2", b"gw/a")], found
    assert client.delete("gw/a") is True and client.delete("gw/a") is False
    client.delete_prefix("gw/")
    assert client.get_prefix("gw/") == []


def transactions():
    key = "Z3cvdHhu"
    txn = {
        "compare": [{"key": key, "result": "EQUAL", "target": "VERSION", "version": 0}],
        "success": [{"request_put": {"key": key, "value": "eA=="}}, {"request_range": {"key": key}}],
        "failure": [{"request_delete_range": {"key": key}}],
    }
    done = client.transaction(txn)
    assert done["succeeded"] is True, done
    assert done["responses"][1]["response_range"]["kvs"][0]["value"] == "eA==", done
    done = client.transaction(txn)
    assert "succeeded" not in done and done["responses"][0]["response_delete_range"]["deleted"] == "1", done


def watches():
    events, cancel = client.watch_prefix("gw/watch")
    put = threading.Timer(0.1, lambda: (client.put("gw/watch/1", "x"), client.delete("gw/watch/1")))
    put.start()
    first, second = next(events), next(events)
    cancel()
    put.join()
    assert first["kv"]["value"] == b"x" and second["type"] == "DELETE", (first, second)


def leases():
    lease = client.lease(ttl=600)
    client.put("gw/leased", "x", lease=lease)
    assert lease.ttl() in (599, 600) and lease.keys() == [b"gw/leased"]
    assert lease.refresh() == 600
    assert lease.revoke()
    assert client.get("gw/leased") == []
    client.put("gw/expires", "x", lease=client.lease(ttl=1))
    deadline = time.monotonic() + PATIENCE
    while client.get("gw/expires"):
        assert time.monotonic() < deadline, "the lease does not expire"
        time.sleep(0.1)


def locks():
    with client.lock("gw", ttl=PATIENCE) as held:
        assert held.is_acquired()
        assert not client.lock("gw", ttl=PATIENCE).acquire()


def maintenance():
    status = client.status()
    assert status["leader"] == status["header"]["member_id"], status
    assert len(client.members()) == 1


failed = False
for check in (keys, transactions, watches, leases, locks, maintenance):
    try:
        check()
        print(f"ok: python etcd3gw: {check.__name__}", flush=True)
    except Exception as error:  # noqa: BLE001, every check is reported
        failed = True
        where = traceback.extract_tb(error.__traceback__)[0].lineno
        print(f"failed: python etcd3gw: {check.__name__}: line {where}: {error!r}", flush=True)
sys.exit(failed)
