import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Election;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.Lease;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.election.CampaignResponse;
import io.etcd.jetcd.election.LeaderResponse;
import io.etcd.jetcd.election.NoLeaderException;
import io.etcd.jetcd.kv.GetResponse;
import io.etcd.jetcd.kv.TxnResponse;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.maintenance.StatusResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.support.Observers;
import io.etcd.jetcd.watch.WatchEvent;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** jetcd against an endpoint. Usage: java Client URL */
class Client {
    static final int PATIENCE = 60;
    static io.etcd.jetcd.Client client;

    interface Check {
        void run() throws Exception;
    }

    static ByteSequence bytes(String text) {
        return ByteSequence.from(text, StandardCharsets.UTF_8);
    }

    static <T> T get(CompletableFuture<T> future) throws Exception {
        return future.get(PATIENCE, TimeUnit.SECONDS);
    }

    static <T> T next(BlockingQueue<T> queue) throws Exception {
        T item = queue.poll(PATIENCE, TimeUnit.SECONDS);
        expect(item != null, "nothing has come");
        return item;
    }

    static void expect(boolean holds, String what) {
        if (!holds) throw new IllegalStateException(what);
    }

    static void keys() throws Exception {
        KV kv = client.getKVClient();
        get(kv.put(bytes("java/a"), bytes("1")));
        KeyValue before = get(kv.put(bytes("java/a"), bytes("2"), PutOption.builder().withPrevKV().build())).getPrevKv();
        expect(before.getValue().equals(bytes("1")), "the value before is " + before.getValue());
        get(kv.put(bytes("java/b"), bytes("x")));
        GetOption all = GetOption.builder().isPrefix(true).withLimit(1)
            .withSortField(GetOption.SortTarget.KEY).withSortOrder(GetOption.SortOrder.DESCEND).build();
        GetResponse found = get(kv.get(bytes("java/"), all));
        expect(found.getCount() == 2 && found.isMore() && found.getKvs().get(0).getKey().equals(bytes("java/b")),
            found.toString());
        GetOption old = GetOption.builder().withRevision(before.getModRevision()).build();
        expect(get(kv.get(bytes("java/a"), old)).getKvs().get(0).getValue().equals(bytes("1")), "the old value");
        long deleted = get(kv.delete(bytes("java/"), DeleteOption.builder().isPrefix(true).build())).getDeleted();
        expect(deleted == 2, deleted + " keys were deleted");
        try {
            get(kv.put(bytes(""), bytes("x")));
            expect(false, "an empty key was put");
        } catch (ExecutionException error) {
            expect(error.getMessage().contains("key is not provided"), error.getMessage());
        }
    }

    static void transactions() throws Exception {
        for (boolean succeeds : new boolean[] {true, false}) {
            TxnResponse done = get(client.getKVClient().txn()
                .If(new Cmp(bytes("java/txn"), Cmp.Op.EQUAL, CmpTarget.createRevision(0)))
                .Then(Op.put(bytes("java/txn"), bytes("x"), PutOption.DEFAULT), Op.get(bytes("java/txn"), GetOption.DEFAULT))
                .Else(Op.delete(bytes("java/txn"), DeleteOption.DEFAULT)).commit());
            expect(done.isSucceeded() == succeeds, done.toString());
        }
    }

    static void watches() throws Exception {
        KV kv = client.getKVClient();
        long first = get(kv.put(bytes("java/watch"), bytes("1"))).getHeader().getRevision();
        BlockingQueue<WatchEvent> events = new LinkedBlockingQueue<>();
        WatchOption option = WatchOption.builder().isPrefix(true).withRevision(first).withPrevKV(true).build();
        try (Watch.Watcher watcher = client.getWatchClient()
                .watch(bytes("java/watch"), option, response -> events.addAll(response.getEvents()))) {
            get(kv.delete(bytes("java/watch")));
            expect(next(events).getEventType() == WatchEvent.EventType.PUT, "the first event");
            WatchEvent second = next(events);
            expect(second.getEventType() == WatchEvent.EventType.DELETE
                && second.getPrevKV().getValue().equals(bytes("1")), "the second event");
        }
        get(kv.compact(first + 1));
        BlockingQueue<Throwable> errors = new LinkedBlockingQueue<>();
        Watch.Listener listener = Watch.listener(response -> { }, errors::add);
        try (Watch.Watcher watcher = client.getWatchClient().watch(bytes("java/watch"), option, listener)) {
            String error = next(errors).toString();
            expect(error.contains("compacted"), error);
        }
    }

    static void leases() throws Exception {
        Lease leases = client.getLeaseClient();
        KV kv = client.getKVClient();
        long id = get(leases.grant(600)).getID();
        get(kv.put(bytes("java/leased"), bytes("x"), PutOption.builder().withLeaseId(id).build()));
        var left = get(leases.timeToLive(id, LeaseOption.builder().withAttachedKeys().build()));
        expect(left.getGrantedTTL() == 600 && left.getKeys().size() == 1, left.toString());
        expect(get(leases.keepAliveOnce(id)).getTTL() == 600, "kept alive once");
        BlockingQueue<LeaseKeepAliveResponse> kept = new LinkedBlockingQueue<>();
        try (var alive = leases.keepAlive(id, Observers.observer(kept::add))) {
            expect(next(kept).getID() == id, "kept alive");
        }
        get(leases.revoke(id));
        expect(get(kv.get(bytes("java/leased"))).getKvs().isEmpty(), "the key is there after its lease");
    }

    static void locks() throws Exception {
        long one = get(client.getLeaseClient().grant(PATIENCE)).getID();
        long two = get(client.getLeaseClient().grant(PATIENCE)).getID();
        ByteSequence held = get(client.getLockClient().lock(bytes("java/lock"), one)).getKey();
        var waits = client.getLockClient().lock(bytes("java/lock"), two);
        // It is queued behind the first.
        while (get(client.getKVClient().get(bytes("java/lock/"), GetOption.builder().isPrefix(true).build())).getCount() < 2) {
            Thread.sleep(10);
        }
        expect(!waits.isDone(), "two have the lock");
        get(client.getLockClient().unlock(held));
        get(client.getLockClient().unlock(get(waits).getKey()));
        get(client.getLeaseClient().revoke(one));
        get(client.getLeaseClient().revoke(two));
    }

    static void elections() throws Exception {
        Election elections = client.getElectionClient();
        ByteSequence name = bytes("java/election");
        try {
            get(elections.leader(name));
            expect(false, "there is a leader before an election");
        } catch (ExecutionException error) {
            expect(error.getCause() instanceof NoLeaderException, error.toString());
        }
        BlockingQueue<LeaderResponse> observed = new LinkedBlockingQueue<>();
        elections.observe(name, new Election.Listener() {
            public void onNext(LeaderResponse response) {
                observed.add(response);
            }

            public void onError(Throwable error) { }

            public void onCompleted() { }
        });
        long one = get(client.getLeaseClient().grant(PATIENCE)).getID();
        long two = get(client.getLeaseClient().grant(PATIENCE)).getID();
        CampaignResponse first = get(elections.campaign(name, one, bytes("one")));
        CompletableFuture<CampaignResponse> second = elections.campaign(name, two, bytes("two"));
        get(elections.proclaim(first.getLeader(), bytes("uno")));
        expect(get(elections.leader(name)).getKv().getValue().equals(bytes("uno")), "the leader's value");
        get(elections.resign(first.getLeader()));
        get(second);
        for (String value : new String[] {"one", "uno", "two"}) {
            LeaderResponse leader = next(observed);
            expect(leader.getKv().getValue().equals(bytes(value)), "observed " + leader + " instead of " + value);
        }
        get(client.getLeaseClient().revoke(two));
    }

    static void maintenance() throws Exception {
        StatusResponse status = get(client.getMaintenanceClient().statusMember(endpoint));
        expect(status.getLeader() == status.getHeader().getMemberId(), status.toString());
        expect(get(client.getClusterClient().listMember()).getMembers().size() == 1, "members");
        expect(get(client.getMaintenanceClient().listAlarms()).getAlarms().isEmpty(), "alarms");
        get(client.getMaintenanceClient().hashKV(endpoint, 0));
        get(client.getMaintenanceClient().defragmentMember(endpoint));
    }

    static void snapshots() throws Exception {
        ByteArrayOutputStream file = new ByteArrayOutputStream();
        get(client.getMaintenanceClient().snapshot(file));
        expect(file.size() % 512 == 32, "a snapshot of " + file.size() + " bytes");
    }

    static String endpoint;
    static boolean failed;

    static void check(String name, Check check) {
        try {
            check.run();
            System.out.println("ok: jetcd: " + name);
        } catch (Exception error) {
            failed = true;
            System.out.println("failed: jetcd: " + name + ": " + error);
        }
    }

    public static void main(String[] arguments) {
        endpoint = arguments[0];
        client = io.etcd.jetcd.Client.builder().endpoints(endpoint).build();
        check("keys", Client::keys);
        check("transactions", Client::transactions);
        check("watches", Client::watches);
        check("leases", Client::leases);
        check("locks", Client::locks);
        check("elections", Client::elections);
        check("maintenance", Client::maintenance);
        check("snapshots", Client::snapshots);
        System.exit(failed ? 1 : 0);
    }
}
