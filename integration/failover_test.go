package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/node"
)

// group is a node that is a master, its replica and the sentinel that watches both.
type group struct {
	data     [2]*server
	sentinel *server
}

const groupName = "locks"

// startReplica returns a server that follows the master already.
func startReplica(t *testing.T, master *server) *server {
	t.Helper()
	replica := start(t, &redis.Options{}, []string{"--repl-diskless-sync-delay", "0", "--replicaof", master.ip(t), "6379"})
	eventually(t, patience, "the replica follows its master", func() bool {
		info, err := master.admin.InfoMap(t.Context(), "replication").Result()
		must(t, err)
		return strings.Contains(info["Replication"]["slave0"], "state=online")
	})
	return replica
}

func startGroup(t *testing.T) *group {
	t.Helper()
	master := start(t, &redis.Options{}, []string{"--repl-diskless-sync-delay", "0"})
	ip := master.ip(t)
	replica := startReplica(t, master) // the sentinel finds it at once
	config := fmt.Sprintf(`port 6379
protected-mode no
sentinel monitor %[1]s %[2]s 6379 1
sentinel down-after-milliseconds %[1]s 500
sentinel failover-timeout %[1]s 1000
`, groupName, ip)
	sentinel := start(t, &redis.Options{}, nil,
		withFile("/etc/sentinel.given", config),
		withCommand("sh", "-c", "cp /etc/sentinel.given /data/sentinel.conf && exec redis-server /data/sentinel.conf --sentinel"))
	g := &group{[2]*server{master, replica}, sentinel}
	g.whole(t)
	return g
}

// whole waits until the sentinel could make the replica the master.
func (g *group) whole(t *testing.T) {
	t.Helper()
	eventually(t, patience, "the sentinel knows of a replica that is fit", func() bool {
		var replicas []map[string]string
		replies, err := g.sentinel.admin.Do(patiently(t), "sentinel", "replicas", groupName).Slice()
		must(t, err)
		for _, r := range replies {
			replicas = append(replicas, flat(r))
		}
		return len(replicas) == 1 && replicas[0]["flags"] == "slave" && replicas[0]["master-link-status"] == "ok"
	})
}

// flat reads a reply of names and values.
func flat(reply any) map[string]string {
	fields := make(map[string]string)
	switch r := reply.(type) {
	case map[any]any:
		for k, v := range r {
			fields[fmt.Sprint(k)] = fmt.Sprint(v)
		}
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			fields[fmt.Sprint(r[i])] = fmt.Sprint(r[i+1])
		}
	}
	return fields
}

// master is which of the data servers the sentinel names, 0 or 1.
func (g *group) master(t *testing.T) int {
	t.Helper()
	addr, err := g.sentinel.admin.Do(patiently(t), "sentinel", "get-master-addr-by-name", groupName).StringSlice()
	must(t, err)
	for i, s := range g.data {
		ip := s.ip(t)
		if addr[0] == ip {
			return i
		}
	}
	return -1
}

// change makes the sentinel promote the replica. The old master takes no write from then on: the
// sentinel would ensure that only seconds later, and until then the group could be two nodes.
func (g *group) change(t *testing.T) {
	t.Helper()
	g.whole(t)
	before := g.master(t)
	asked := time.Time{}
	eventually(t, patience, "the replica is the master", func() bool {
		if time.Since(asked) > 10*time.Second { // a sentinel may give up, such as when the replica is slow to obey
			asked = time.Now()
			if err := g.sentinel.admin.Do(patiently(t), "sentinel", "failover", groupName).Err(); err != nil {
				t.Logf("sentinel failover: %v", err)
			}
		}
		return g.master(t) == 1-before
	})
	ip := g.data[1-before].ip(t)
	must(t, g.data[before].admin.ReplicaOf(patiently(t), ip, "6379").Err())
}

// node returns the group as a node with connections of its own.
func (g *group) node(t *testing.T) *node.Node {
	t.Helper()
	n, err := node.New(redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: groupName, SentinelAddrs: []string{g.sentinel.addr}, Dialer: inside(t, g.data[0], g.data[1]),
	}), node.WithName("group"))
	must(t, err)
	return n
}

// A failover may lose the writes that the replica had not got. The group is a node again
// afterwards.
func failover(t *testing.T, f fleet) {
	g := startGroup(t)
	countersApart(t, append(f.servers(), g.data[0]))
	servers := append(f.servers(), g.data[1])
	w := begin(t, tolerant, func(t *testing.T) []*node.Node { return append(f.nodes(t), g.node(t)) }, servers)
	w.served(1)
	steady := w.steady(steadyTTL)
	g.data[0].kill(t)
	w.served(3)
	w.kept(steady)
	eventually(t, patience, "the replica is the master", func() bool { return g.master(t) == 1 })
	f[0].pause(t) // from here on the group is needed
	w.served(1)
	w.kept(steady)
	f[0].resume(t)
	must(t, steady.Unlock(t.Context()))
	w.end()
}
