package robustness

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"go.etcd.io/etcd/tests/v3/framework/e2e"
	"go.etcd.io/etcd/tests/v3/robustness/failpoint"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/scenarios"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
)

// TestKill runs etcd's traffic for one member against the program, ends that by SIGKILL and starts it again, and
// validates what clients have seen: operations are linearizable, watches and reads of old revisions fit to the history.
// etcd's own test takes that from the member's write-ahead log, which other programs do not have; here it is what
// watches have seen.
// scripts/test-etcd-suites puts this file into etcd's robustness tests.
func TestKill(t *testing.T) {
	testRunner.BeforeTest(t)
	for _, s := range scenarios.Exploratory(t) {
		if !strings.HasSuffix(s.Name, "ClusterOfSize1") {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			lg := zaptest.NewLogger(t)
			s.Cluster.Logger, s.Cluster.GoFailEnabled = lg, false
			s.Failpoint = failpoint.KillFailpoint
			cluster, err := e2e.NewEtcdProcessCluster(t.Context(), t, e2e.WithConfig(&s.Cluster))
			require.NoError(t, err)
			defer forcestopCluster(cluster)
			reports := runScenario(t.Context(), t, s, lg, cluster)
			config := validate.Config{ExpectRevisionUnique: s.Traffic.ExpectUniqueRevision()}
			history, last := historyOf(reports)
			if newest := report.OperationsMaxRevision(reports); last < newest {
				t.Skipf("no watch has seen revision %d, up to %d: it was compacted before they were resumed", last+1, newest)
			}
			result := validate.ValidateAndReturnVisualize(lg, config, reports, history, 5*time.Minute)
			require.NoError(t, result.Error())
			operations, failed := 0, 0
			for _, r := range reports {
				operations += len(r.KeyValue)
				for _, operation := range r.KeyValue {
					if operation.Output.(model.MaybeEtcdResponse).Error != "" {
						failed++
					}
				}
			}
			t.Logf("operations: %d, of these failed: %d, revisions: %d", operations, failed, len(history))
		})
	}
}

// historyOf makes a request of each revision that a watch has seen. Compactions that have failed may have happened:
// they come last, where they exclude nothing. Returns the last revision before the first that no watch has seen, too.
func historyOf(reports []report.ClientReport) ([]model.EtcdRequest, int64) {
	revisions := map[int64][]model.WatchEvent{}
	for _, r := range reports {
		for _, watch := range r.Watch {
			for _, response := range watch.Responses {
				for _, group := range byRevision(response.Events) {
					// The watch that sees most of it, as not every watch sees each key.
					if revision := group[0].Revision; len(group) > len(revisions[revision]) {
						revisions[revision] = group
					}
				}
			}
		}
	}
	seen := clientsOf(reports)
	requests := []model.EtcdRequest{}
	for lease := range seen.leases {
		grant := &model.LeaseGrantRequest{LeaseID: lease}
		requests = append(requests, model.EtcdRequest{Type: model.LeaseGrant, LeaseGrant: grant})
	}
	attached := map[string]int64{}
	last := int64(1)
	for ; revisions[last+1] != nil; last++ {
		requests = append(requests, seen.requestOf(revisions[last+1], attached))
	}
	return append(requests, seen.failedCompactions...), last
}

type keyAtRevision struct {
	key      string
	revision int64
}

// clients is what clients have asked for.
type clients struct {
	// leases has those of puts, with whether somebody has tried to revoke it.
	leases            map[int64]bool
	puts              map[model.PutOptions]int64
	deleted           map[keyAtRevision]bool
	failedCompactions []model.EtcdRequest
}

func clientsOf(reports []report.ClientReport) clients {
	seen := clients{leases: map[int64]bool{}, puts: map[model.PutOptions]int64{}, deleted: map[keyAtRevision]bool{}}
	for _, r := range reports {
		for _, operation := range r.KeyValue {
			request, response := operation.Input.(model.EtcdRequest), operation.Output.(model.MaybeEtcdResponse)
			switch request.Type {
			case model.Compact:
				if response.Error != "" {
					seen.failedCompactions = append(seen.failedCompactions, request)
				}
			case model.LeaseRevoke:
				seen.leases[request.LeaseRevoke.LeaseID] = true
			case model.Txn:
				for i, each := range request.Txn.AllOperations() {
					if lease := each.Put.LeaseID; lease != 0 {
						seen.puts[model.PutOptions{Key: each.Put.Key, Value: each.Put.Value}] = lease
						seen.leases[lease] = seen.leases[lease]
					}
					isAnswered := response.Error == "" && response.Txn != nil && i < len(response.Txn.Results)
					if each.Type == model.DeleteOperation && isAnswered && response.Txn.Results[i].Deleted > 0 {
						seen.deleted[keyAtRevision{each.Delete.Key, response.Revision}] = true
					}
				}
			}
		}
	}
	return seen
}

// requestOf makes the request that has had the events of a revision. Keys are deleted by their lease where somebody has
// tried to revoke it and nobody has got a response to a deletion.
func (c clients) requestOf(events []model.WatchEvent, attached map[string]int64) model.EtcdRequest {
	first := events[0]
	lease := attached[first.Key]
	isAnswered := c.deleted[keyAtRevision{first.Key, first.Revision}]
	txn := &model.TxnRequest{}
	for _, event := range events {
		operation := model.EtcdOperation{Type: event.Type}
		switch event.Type {
		case model.PutOperation:
			operation.Put = model.PutOptions{Key: event.Key, Value: event.Value}
			operation.Put.LeaseID = c.puts[operation.Put]
			attached[event.Key] = operation.Put.LeaseID
		case model.DeleteOperation:
			operation.Delete = model.DeleteOptions{Key: event.Key}
			delete(attached, event.Key)
		}
		txn.OperationsOnSuccess = append(txn.OperationsOnSuccess, operation)
	}
	if first.Type == model.DeleteOperation && lease != 0 && c.leases[lease] && !isAnswered {
		return model.EtcdRequest{Type: model.LeaseRevoke, LeaseRevoke: &model.LeaseRevokeRequest{LeaseID: lease}}
	}
	return model.EtcdRequest{Type: model.Txn, Txn: txn}
}

func byRevision(events []model.WatchEvent) (groups [][]model.WatchEvent) {
	for i, event := range events {
		if i == 0 || events[i-1].Revision != event.Revision {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], event)
	}
	return groups
}
