// etcd's own client for Go against an endpoint: keys, transactions, watches, leases, locks, elections, software
// transactional memory, maintenance. Usage: go run . HOST:PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/client/v3/mirror"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/client/v3/ordering"
)

const patience = 60 * time.Second

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, what string, values ...any) {
	if !holds {
		panic(fmt.Sprintf(what, values...))
	}
}

func keys(ctx context.Context, c *clientv3.Client) {
	put, err := c.Put(ctx, "go/a", "1")
	must(err)
	again, err := c.Put(ctx, "go/a", "2", clientv3.WithPrevKV())
	must(err)
	expect(string(again.PrevKv.Value) == "1", "the value before is %q", again.PrevKv.Value)
	expect(again.Header.Revision == put.Header.Revision+1, "revisions %v, %v", put.Header, again.Header)
	for _, key := range []string{"go/c", "go/b"} {
		_, err = c.Put(ctx, key, "x")
		must(err)
	}
	got, err := c.Get(ctx, "go/", clientv3.WithPrefix(), clientv3.WithLimit(2),
		clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend))
	must(err)
	expect(len(got.Kvs) == 2 && string(got.Kvs[0].Key) == "go/c" && got.Count == 3 && got.More, "range %v", got)
	old, err := c.Get(ctx, "go/a", clientv3.WithRev(put.Header.Revision))
	must(err)
	expect(string(old.Kvs[0].Value) == "1", "old value %v", old.Kvs)
	got, err = c.Get(ctx, "go/", clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithSerializable())
	must(err)
	expect(got.Count == 3, "count %v", got)
	deleted, err := c.Delete(ctx, "go/", clientv3.WithFromKey(), clientv3.WithPrevKV())
	must(err)
	expect(deleted.Deleted >= 3 && len(deleted.PrevKvs) >= 3, "deleted %v", deleted)
	_, err = c.Put(ctx, "", "x")
	expect(errors.Is(err, rpctypes.ErrEmptyKey), "an empty key: %v", err)
	_, err = c.Get(ctx, "go/a", clientv3.WithRev(1<<40))
	expect(errors.Is(err, rpctypes.ErrFutureRev), "a future revision: %v", err)
}

func transactions(ctx context.Context, c *clientv3.Client) {
	for _, succeeds := range []bool{true, false} {
		response, err := c.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision("go/txn"), "=", 0)).
			Then(clientv3.OpPut("go/txn", "created"), clientv3.OpGet("go/txn")).
			Else(clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value("go/txn"), "=", "created")},
				[]clientv3.Op{clientv3.OpDelete("go/txn")}, nil)).Commit()
		must(err)
		expect(response.Succeeded == succeeds, "succeeded %v", response.Succeeded)
	}
	_, err := c.Txn(ctx).Then(clientv3.OpPut("go/txn", "1"), clientv3.OpPut("go/txn", "2")).Commit()
	expect(errors.Is(err, rpctypes.ErrDuplicateKey), "a key twice: %v", err)
	_, err = concurrency.NewSTM(c, func(stm concurrency.STM) error {
		stm.Put("go/stm", stm.Get("go/stm")+"+")
		return nil
	})
	must(err)
}

func watches(ctx context.Context, c *clientv3.Client) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := c.Put(ctx, "go/watch/1", "a")
	must(err)
	_, err = c.Delete(ctx, "go/watch/1")
	must(err)
	events := c.Watch(ctx, "go/watch/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision),
		clientv3.WithPrevKV(), clientv3.WithCreatedNotify(), clientv3.WithFragment())
	_, err = c.Put(ctx, "go/watch/2", "b")
	must(err)
	var seen []*clientv3.Event
	for len(seen) < 3 {
		response, open := <-events
		expect(open, "the watch has ended after %v", seen)
		must(response.Err())
		seen = append(seen, response.Events...)
	}
	expect(seen[0].IsCreate() && seen[1].Type == mvccpb.DELETE && string(seen[1].PrevKv.Value) == "a" &&
		string(seen[2].Kv.Key) == "go/watch/2", "events %v", seen)
	must(c.RequestProgress(ctx))
	response := <-events
	expect(response.IsProgressNotify(), "progress %v", response)
	_, err = c.Compact(ctx, seen[2].Kv.ModRevision)
	must(err)
	response = <-c.Watch(ctx, "go/watch/", clientv3.WithPrefix(), clientv3.WithRev(first.Header.Revision))
	expect(errors.Is(response.Err(), rpctypes.ErrCompacted) && response.CompactRevision == seen[2].Kv.ModRevision,
		"a compacted revision: %v", response)
	_, err = c.Get(ctx, "go/watch/1", clientv3.WithRev(first.Header.Revision))
	expect(errors.Is(err, rpctypes.ErrCompacted), "a compacted revision: %v", err)
}

func leases(ctx context.Context, c *clientv3.Client) {
	lease, err := c.Grant(ctx, 600)
	must(err)
	_, err = c.Put(ctx, "go/leased", "x", clientv3.WithLease(lease.ID))
	must(err)
	left, err := c.TimeToLive(ctx, lease.ID, clientv3.WithAttachedKeys())
	must(err)
	expect(left.GrantedTTL == 600 && len(left.Keys) == 1, "time to live %v", left)
	alive, err := c.KeepAliveOnce(ctx, lease.ID)
	must(err)
	expect(alive.TTL == 600, "kept alive %v", alive)
	kept, err := c.KeepAlive(ctx, lease.ID)
	must(err)
	expect((<-kept).ID == lease.ID, "kept alive")
	all, err := c.Leases(ctx)
	must(err)
	expect(len(all.Leases) >= 1, "leases %v", all)
	_, err = c.Revoke(ctx, lease.ID)
	must(err)
	got, err := c.Get(ctx, "go/leased")
	must(err)
	expect(len(got.Kvs) == 0, "after the lease: %v", got.Kvs)
	_, err = c.Put(ctx, "go/leased", "x", clientv3.WithLease(lease.ID))
	expect(errors.Is(err, rpctypes.ErrLeaseNotFound), "a lease that is gone: %v", err)
	// One that expires by itself.
	lease, err = c.Grant(ctx, 1)
	must(err)
	put, err := c.Put(ctx, "go/expires", "x", clientv3.WithLease(lease.ID))
	must(err)
	response := <-c.Watch(ctx, "go/expires", clientv3.WithRev(put.Header.Revision+1))
	must(response.Err())
	expect(response.Events[0].Type == mvccpb.DELETE, "expiry %v", response.Events)
}

func locks(ctx context.Context, c *clientv3.Client) {
	one, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	must(err)
	defer one.Close()
	two, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	must(err)
	defer two.Close()
	held, wanted := concurrency.NewMutex(one, "go/lock"), concurrency.NewMutex(two, "go/lock")
	must(held.Lock(ctx))
	expect(errors.Is(wanted.TryLock(ctx), concurrency.ErrLocked), "a lock that is held")
	got := make(chan error, 1)
	go func() { got <- wanted.Lock(ctx) }()
	must(held.Unlock(ctx))
	must(<-got)
	must(wanted.Unlock(ctx))
}

func elections(ctx context.Context, c *clientv3.Client) {
	one, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	must(err)
	two, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	must(err)
	defer two.Close()
	leader, follower := concurrency.NewElection(one, "go/election"), concurrency.NewElection(two, "go/election")
	must(leader.Campaign(ctx, "one"))
	elected := make(chan error, 1)
	go func() { elected <- follower.Campaign(ctx, "two") }()
	current, err := follower.Leader(ctx)
	must(err)
	expect(string(current.Kvs[0].Value) == "one", "leader %v", current.Kvs)
	must(leader.Proclaim(ctx, "uno"))
	// The session's lease is revoked: the other one leads.
	must(one.Close())
	must(<-elected)
	current, err = follower.Leader(ctx)
	must(err)
	expect(string(current.Kvs[0].Value) == "two", "leader %v", current.Kvs)
	must(follower.Resign(ctx))
}

func wrappers(ctx context.Context, c *clientv3.Client) {
	kv := namespace.NewKV(ordering.NewKV(c.KV, func(clientv3.Op, clientv3.OpResponse, int64) error {
		return errors.New("a revision went back")
	}), "go/space/")
	for number := range 10 {
		_, err := kv.Put(ctx, fmt.Sprintf("%d", number), "x")
		must(err)
	}
	got, err := kv.Get(ctx, "3")
	must(err)
	expect(string(got.Kvs[0].Key) == "3", "key %v", got.Kvs)
	copied := 0
	parts, failures := mirror.NewSyncer(c, "go/space/", 0).SyncBase(ctx)
	for part := range parts {
		copied += len(part.Kvs)
	}
	must(<-failures)
	expect(copied == 10, "mirrored %d", copied)
}

func maintenance(ctx context.Context, c *clientv3.Client) {
	endpoint := c.Endpoints()[0]
	status, err := c.Status(ctx, endpoint)
	must(err)
	expect(status.Leader == status.Header.MemberId, "status %v", status)
	members, err := c.MemberList(ctx)
	must(err)
	expect(len(members.Members) == 1, "members %v", members)
	_, err = c.HashKV(ctx, endpoint, 0)
	must(err)
	alarms, err := c.AlarmList(ctx)
	must(err)
	expect(len(alarms.Alarms) == 0, "alarms %v", alarms)
	_, err = c.Defragment(ctx, endpoint)
	must(err)
	authentication, err := c.AuthStatus(ctx)
	must(err)
	expect(!authentication.Enabled, "authentication %v", authentication)
}

func snapshots(ctx context.Context, c *clientv3.Client) {
	stream, err := c.Snapshot(ctx)
	must(err)
	read, err := io.Copy(io.Discard, stream)
	must(err)
	expect(read%512 == 32, "a snapshot of %d bytes", read)
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, DialTimeout: patience})
	must(err)
	defer client.Close()
	checks := []struct {
		name  string
		check func(context.Context, *clientv3.Client)
	}{
		{"keys", keys}, {"transactions", transactions}, {"watches", watches}, {"leases", leases}, {"locks", locks},
		{"elections", elections}, {"wrappers", wrappers}, {"maintenance", maintenance}, {"snapshots", snapshots},
	}
	failed := false
	for _, one := range checks {
		func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			defer func() {
				if reason := recover(); reason != nil {
					failed = true
					fmt.Printf("failed: go: %s: %v\n", one.name, reason)
				}
			}()
			one.check(ctx, client)
			fmt.Printf("ok: go: %s\n", one.name)
		}()
	}
	if failed {
		os.Exit(1)
	}
}
