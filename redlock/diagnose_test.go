package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// guarded is the guard of these tests, for locks with the default TTL.
var guarded = quorumlock.WithRestartGuard(quorumlock.DefaultTTL)

// longUp lets the servers run for so long that the guard trusts them.
func longUp(t *testing.T, c *redlock.Client) {
	t.Helper()
	_, _ = c.Ready(t.Context()) // meets them
	time.Sleep(time.Hour)
	testkit.OK(t, testkit.Err(c.Ready(t.Context())), "Ready")
}

// check is c.Diagnose that reaches a quorum, or not.
func check(t *testing.T, c *redlock.Client, quorum bool) redlock.Report {
	t.Helper()
	h, err := c.Diagnose(t.Context())
	if _, ok := errors.AsType[*quorumlock.QuorumError](err); ok == quorum || (err != nil) == quorum {
		t.Errorf("error %v, with a quorum: %v", err, quorum)
	}
	return h
}

// finds checks the findings of a report, and its text.
func finds(t *testing.T, h redlock.Report, want ...redlock.Finding) {
	t.Helper()
	if len(h.Findings) != len(want) {
		t.Fatalf("found %d, want %d:\n%v", len(h.Findings), len(want), h)
	}
	for i, w := range want {
		f := h.Findings[i]
		if f.Kind != w.Kind || f.Severity != w.Severity || f.Node != w.Node || !strings.Contains(f.Problem, w.Problem) || f.Fix == "" || !strings.Contains(f.Fix, w.Fix) {
			t.Errorf("found %+v, want %+v", f, w)
		}
		if !strings.Contains(h.String(), f.String()) {
			t.Errorf("%v is not in the report:\n%v", f, h)
		}
	}
}

func TestHealthyNodesAreReportedWithoutFindings(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		time.Sleep(90 * time.Second)
		servers[1].Delay(5 * time.Millisecond)
		servers[2].TellTime(300 * time.Millisecond)
		h := check(t, c, true)
		finds(t, h)
		if !h.OK() || !strings.Contains(h.String(), "all is well: 3 nodes, of which a quorum of 2") {
			t.Errorf("OK %v:\n%v", h.OK(), h)
		}
		for i, n := range h.Nodes {
			s := n.Status
			if n.Node != servers[i].Name || s.Version != "7.0.15" || s.Role != "master" || len(s.RunID) != 40 || s.Uptime != 90*time.Second ||
				s.AppendFsync != "always" || s.Save != "off" || s.MaxMemory != 0 || s.Eviction != "noeviction" {
				t.Errorf("%+v", n)
			}
		}
		testkit.Equal(t, h.Nodes[1].Status.RoundTrip, 10*time.Millisecond, "the round trip")
		testkit.Equal(t, h.Nodes[1].Status.ClockOffset, 0, "the offset of a slow node's clock")
		testkit.Equal(t, h.Nodes[2].Status.ClockOffset, 300*time.Millisecond, "the offset of a clock")
	})
}

// Ready reports the node only if the node would not grant a lock now.
func TestWhatIsWrongWithANodeIsFound(t *testing.T) {
	found := func(kind redlock.FindingKind, severity redlock.Severity, problem, fix string) []redlock.Finding {
		return []redlock.Finding{{Kind: kind, Severity: severity, Problem: problem, Fix: fix}}
	}
	const moved = "MOVED 7 10.0.0.9:6379"
	shard := func(mode map[string]string) func(s *embedded.Server) {
		return func(s *embedded.Server) {
			for setting, value := range mode {
				s.Configure(setting, value)
			}
			s.Refuse(moved)
		}
	}
	with := func(setting, value string) func(s *embedded.Server) {
		return func(s *embedded.Server) { s.Configure(setting, value) }
	}
	guard := []quorumlock.Option{guarded}
	quarantined := strings.TrimPrefix(quorumlock.ErrQuarantined.Error(), "quorumlock: ")
	for name, c := range map[string]struct {
		spoil   func(s *embedded.Server)
		opts    []quorumlock.Option
		want    []redlock.Finding
		unready string // the error of the node in Ready; "" if it would grant a lock
	}{
		"down":                 {(*embedded.Server).Kill, nil, found(redlock.FindingUnreachable, redlock.SeverityWarning, "connection refused", ""), "connection refused"},
		"frozen":               {(*embedded.Server).Stall, nil, found(redlock.FindingUnreachable, redlock.SeverityWarning, "deadline exceeded", ""), "deadline exceeded"},
		"a password is wanted": {func(s *embedded.Server) { s.Redis.RequireAuth("s3cret") }, nil, found(redlock.FindingRefuses, redlock.SeverityWarning, "NOAUTH", "user and password"), "NOAUTH"},
		"a shard of a cluster": {shard(map[string]string{"redis_mode": "cluster"}), nil,
			found(redlock.FindingShard, redlock.SeverityFailure, "one server of a Redis cluster", "stand alone"), "MOVED 7"},
		"a shard of a Valkey cluster": {shard(map[string]string{"redis_mode": "", "server_mode": "cluster"}), nil,
			found(redlock.FindingShard, redlock.SeverityFailure, "one server of a Redis cluster", "stand alone"), "MOVED 7"},
		"a shard that tells nothing": {refuse(moved), nil, found(redlock.FindingRefuses, redlock.SeverityWarning, "MOVED 7", "stand alone"), "MOVED 7"},
		"out of memory":              {refuse(outOfMemory), nil, found(redlock.FindingRefuses, redlock.SeverityWarning, "refuses a lock: OOM", "maxmemory"), "OOM"},
		"unknown words":              {refuse("EXTRA who knows"), nil, found(redlock.FindingRefuses, redlock.SeverityWarning, "refuses a lock: EXTRA who knows", "log"), "EXTRA"},
		"a renamed command": {refuse("ERR unknown command 'evalsha', with args beginning with: 's3cret' "), nil,
			found(redlock.FindingRefuses, redlock.SeverityWarning, "refuses a lock: ERR unknown command 'evalsha'", "rename-command"), "ERR unknown command 'evalsha'"},
		"a renamed command of a script": {refuse("ERR Unknown Redis command called from script script: 5b3f (TIME)"), nil,
			found(redlock.FindingRefuses, redlock.SeverityWarning, "refuses a lock: ERR Unknown Redis command", "rename-command"), "(TIME)"},
		"a denied command of a script": {refuse("ERR ACL failure in script: User app has no permissions to run the 'time' command (TIME)"), nil,
			found(redlock.FindingRefuses, redlock.SeverityWarning, "refuses a lock: ERR ACL failure", "docs/security.md"), "(TIME)"},
		"a replica": {with("role", "slave"), nil, found(redlock.FindingNotMaster, redlock.SeverityFailure, "is a replica", ""), ""},
		"a replica that refuses": {refuse("READONLY You can't write against a read only replica."), nil,
			found(redlock.FindingRefuses, redlock.SeverityWarning, "READONLY", "replicates no other"), "READONLY"},
		"old": {with("version", "4.0.14"), nil, found(redlock.FindingTooOld, redlock.SeverityFailure, "4.0.14", ""), ""},
		"it evicts": {func(s *embedded.Server) {
			s.Configure("maxmemory", "1000000")
			s.Configure("maxmemory-policy", "volatile-ttl")
		}, nil,
			found(redlock.FindingEvicts, redlock.SeverityFailure, "volatile-ttl", ""), ""},
		"it would evict, but has no limit": {with("maxmemory-policy", "allkeys-lru"), nil, nil, ""},
		"no append-only file":              {with("appendonly", "no"), nil, found(redlock.FindingForgets, redlock.SeverityWarning, "no append-only file", ""), ""},
		"no append-only file, guarded":     {with("appendonly", "no"), guard, nil, ""},
		"everysec":                         {with("appendfsync", "everysec"), nil, found(redlock.FindingForgets, redlock.SeverityWarning, "everysec", ""), ""},
		"everysec, guarded":                {with("appendfsync", "everysec"), guard, nil, ""},
		"no sync during a save": {with("no-appendfsync-on-rewrite", "yes"), nil,
			found(redlock.FindingForgets, redlock.SeverityWarning, "no-appendfsync-on-rewrite", "no-appendfsync-on-rewrite no"), ""},
		"no sync during a save, guarded": {with("no-appendfsync-on-rewrite", "yes"), guard, nil, ""},
		"no sync during a save nor else": {func(s *embedded.Server) {
			s.Configure("no-appendfsync-on-rewrite", "yes")
			s.Configure("appendfsync", "no")
		}, nil, found(redlock.FindingForgets, redlock.SeverityWarning, "appendfsync is no:", ""), ""},
		"replicas":          {with("connected_slaves", "2"), nil, found(redlock.FindingForgets, redlock.SeverityWarning, "has 2 replicas", ""), ""},
		"replicas, guarded": {with("connected_slaves", "2"), guard, nil, ""},
		"in quarantine":     {func(s *embedded.Server) { s.Restart(true) }, guard, found(redlock.FindingQuarantined, redlock.SeverityAdvice, "is in quarantine", "a client with the restart guard"), quarantined},
		"a clock ahead":     {func(s *embedded.Server) { s.TellTime(time.Minute) }, nil, found(redlock.FindingClockApart, redlock.SeverityWarning, "1m0s ahead of", ""), ""},
		"a clock behind":    {func(s *embedded.Server) { s.TellTime(-time.Hour) }, nil, found(redlock.FindingClockApart, redlock.SeverityWarning, "1h0m0s behind", ""), ""},
		"SUBSCRIBE denied":  {func(s *embedded.Server) { s.Deny("subscribe") }, nil, found(redlock.FindingRefuses, redlock.SeverityAdvice, "refuses the channels of waiters", "+subscribe"), ""},
		"PUBLISH denied":    {func(s *embedded.Server) { s.Deny("publish") }, nil, found(redlock.FindingRefuses, redlock.SeverityAdvice, "refuses the channels of waiters", "+publish"), ""},
		"CONFIG denied":     {func(s *embedded.Server) { s.Deny("config") }, nil, found(redlock.FindingUntold, redlock.SeverityAdvice, "NOPERM", ""), ""},
		"INFO denied":       {func(s *embedded.Server) { s.Deny("info") }, nil, found(redlock.FindingUntold, redlock.SeverityAdvice, "NOPERM", ""), ""},
		"INFO denied, guarded": {func(s *embedded.Server) { s.Deny("info") }, guard, append(
			found(redlock.FindingQuarantined, redlock.SeverityFailure, "does not report its run_id", ""), found(redlock.FindingUntold, redlock.SeverityAdvice, "NOPERM", "")...), "cannot read INFO"},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			client, servers := testkit.Client(t, 3, c.opts...)
			longUp(t, client)
			c.spoil(servers[1])
			want := c.want
			for i := range want {
				want[i].Node = servers[1].Name
			}
			h := check(t, client, true)
			finds(t, h, want...)
			worst := redlock.SeverityAdvice
			for _, w := range want {
				worst = max(worst, w.Severity)
			}
			if h.OK() != (worst == redlock.SeverityAdvice) {
				t.Errorf("OK %v with a %v", h.OK(), worst)
			}
			_, _ = client.Ready(t.Context()) // finds the connection of a restarted server dead
			r, err := client.Ready(t.Context())
			refusal, refuses := errors.AsType[*quorumlock.NodeError](r.Nodes[1].Err)
			if err != nil || refuses != (c.unready != "") || refuses && !strings.Contains(refusal.Error(), c.unready) || refuses == (r.MayFail() == 1) {
				t.Errorf("Ready: %+v, %v; want a quorum, and %q of the node", r, err, c.unready)
			}
			servers[1].Resume()
		})
	}
}

func TestTooFewNodesForTheQuorumAreAFailureAndAnError(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5, quorumlock.WithQuorum(4))
		servers[0].Kill()
		finds(t, check(t, c, true), redlock.Finding{Kind: redlock.FindingUnreachable, Severity: redlock.SeverityWarning, Node: "node-1"})
		servers[4].Kill()
		finds(t, check(t, c, false),
			redlock.Finding{Kind: redlock.FindingNoQuorum, Severity: redlock.SeverityFailure, Problem: "3 of 5 nodes are servers that grant locks, and a lock takes 4"},
			redlock.Finding{Kind: redlock.FindingUnreachable, Severity: redlock.SeverityWarning, Node: "node-1"},
			redlock.Finding{Kind: redlock.FindingUnreachable, Severity: redlock.SeverityWarning, Node: "node-5"})
	})
}

func TestTwoNodesOfOneServerAreFoundAndCountOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 2)
		c, _ := testkit.Twin(t, servers)
		same := redlock.Finding{Kind: redlock.FindingSameServer, Severity: redlock.SeverityFailure, Node: "again", Problem: "same server as a"}
		finds(t, check(t, c, true), same)
		servers[1].Kill()
		finds(t, check(t, c, true), same,
			redlock.Finding{Kind: redlock.FindingNoQuorum, Severity: redlock.SeverityFailure, Problem: "1 of 3"},
			redlock.Finding{Kind: redlock.FindingUnreachable, Severity: redlock.SeverityWarning, Node: "node-2"})
	})
}

func TestShardsOfOneClusterAreNoNodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		var want []redlock.Finding
		for i, s := range servers {
			s.Configure("redis_mode", "cluster")
			if i > 0 { // the other names are those of the first shard
				s.Refuse("MOVED 7 10.0.0.9:6379")
			}
			want = append(want, redlock.Finding{Kind: redlock.FindingShard, Severity: redlock.SeverityFailure, Node: s.Name, Problem: "one server of a Redis cluster"})
		}
		want = append(want, redlock.Finding{Kind: redlock.FindingNoQuorum, Severity: redlock.SeverityFailure, Problem: "1 of 3 nodes are servers that grant locks"})
		finds(t, check(t, c, true), want...)
	})
}

// Diagnose finds a missing permission for any command of a Mutex, and leaves no keys.
func TestEachCommandThatAUserMayNotUseIsFound(t *testing.T) {
	for _, command := range []string{"time", "pexpire", "zadd", "hset", "del", "set", "get", "zrange", "hget", "pttl", "exists", "zrem", "evalsha"} {
		testkit.Run(t, command, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			servers[1].Deny(command)
			finds(t, check(t, c, true), redlock.Finding{Kind: redlock.FindingRefuses, Severity: redlock.SeverityWarning, Node: servers[1].Name,
				Problem: "NOPERM this user has no permissions to run the '" + command, Fix: "docs/security.md"})
			if r, err := c.Ready(t.Context()); err != nil || r.MayFail() != 0 || r.Nodes[1].Err == nil || !strings.Contains(r.Nodes[1].Err.Error(), "NOPERM") {
				t.Errorf("healthy: %+v, %v", r, err)
			}
			servers[1].Deny()
			if keys := servers[1].Redis.Keys(); len(keys) > 0 {
				t.Errorf("left on the node: %q", keys)
			}
		})
	}
}

func TestOneNodeIsAdvisedAgainst(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, _ := testkit.Client(t, 1)
		h := check(t, c, true)
		finds(t, h, redlock.Finding{Kind: redlock.FindingOneNode, Severity: redlock.SeverityAdvice, Problem: "there is only one node", Fix: "three or five"})
		if !h.OK() {
			t.Error("one node is not OK")
		}
	})
}

func TestAnEvenNumberOfNodesIsAdvisedAgainst(t *testing.T) {
	for n, want := range map[int][]redlock.Finding{
		2: {{Kind: redlock.FindingEvenNodes, Severity: redlock.SeverityAdvice, Problem: "2 nodes, of which 0 may be down, no more than with 1", Fix: "use 3 nodes"}},
		3: nil,
		4: {{Kind: redlock.FindingEvenNodes, Severity: redlock.SeverityAdvice, Problem: "4 nodes, of which 1 may be down, no more than with 3", Fix: "use 5 nodes, or 3"}},
	} {
		testkit.Run(t, fmt.Sprint(n), func(t *testing.T) {
			c, _ := testkit.Client(t, n)
			finds(t, check(t, c, true), want...)
		})
	}
	testkit.Run(t, "a larger quorum", func(t *testing.T) { // of which two may forget
		c, _ := testkit.Client(t, 4, quorumlock.WithQuorum(4))
		finds(t, check(t, c, true))
	})
}

func TestDiagnoseAndReadyEndWithTheirContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		testkit.Each(servers, (*embedded.Server).Stall)
		ends := func(what string, call func(ctx context.Context) error) {
			began := time.Now()
			testkit.Is(t, call(testkit.Within(t, 70*time.Millisecond)), context.DeadlineExceeded, "%s", what)
			testkit.Took(t, began, 70*time.Millisecond, 70*time.Millisecond, "%s", what)
		}
		ends("Diagnose", func(ctx context.Context) error { return testkit.Err(c.Diagnose(ctx)) })
		ends("Ready", func(ctx context.Context) error {
			r, err := c.Ready(ctx)
			testkit.Equal(t, r.MayFail(), -2, "nodes that may fail")
			return err
		})
		testkit.Each(servers, (*embedded.Server).Resume)
	})
}

func TestHealthySaysHowManyMoreNodesMayFail(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5, quorumlock.WithQuorum(4))
		for down, want := range []int{1, 0, -1, -2} {
			if down > 0 {
				servers[down-1].Kill()
			}
			r, err := c.Ready(t.Context())
			if r.MayFail() != want || r.Quorum != 4 {
				t.Errorf("with %d down: %d may fail, quorum %d; want %d may fail", down, r.MayFail(), r.Quorum, want)
			}
			if _, few := errors.AsType[*quorumlock.QuorumError](err); few != (want < 0) || (err != nil) != few {
				t.Errorf("with %d down: error %v", down, err)
			}
			for i, n := range r.Nodes {
				if n.Node != servers[i].Name || (n.Err != nil) != (i < down) {
					t.Errorf("with %d down: node %d is %+v", down, i, n)
				}
			}
		}
	})
}

const outOfMemory = "OOM command not allowed when used memory > 'maxmemory'."

// refuse makes a server refuse scripts with the error of a real server.
func refuse(with string) func(*embedded.Server) {
	return func(s *embedded.Server) { s.Refuse(with) }
}

func TestHealthyChangesNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithPrefix("a:"))
		for range 3 {
			testkit.Must(t, testkit.Err(c.Ready(t.Context())), "Ready")
		}
		testkit.Nothing(t, servers)
		const key = "quorumlock_queue:{a:quorumlock-ready}"
		testkit.Must(t, servers[0].Redis.Set(key, "somebody's"), "Set")
		testkit.OK(t, testkit.Err(c.Ready(t.Context())), "Ready")
		if v, err := servers[0].Redis.Get(key); v != "somebody's" || err != nil {
			t.Errorf("a key that was there is %q, %v now", v, err)
		}
		servers[0].Redis.Del(key)
	})
}

func TestDiagnoseAndReadyRefuseWhatTheyCannotWorkWith(t *testing.T) {
	c, _ := testkit.Client(t, 3)
	var none context.Context
	testkit.Is(t, testkit.Err(c.Ready(none)), quorumlock.ErrNilContext, "Ready")
	testkit.Must(t, c.Close(), "Close")
	testkit.Is(t, testkit.Err(c.Ready(t.Context())), quorumlock.ErrClosed, "Ready")
	testkit.Is(t, testkit.Err(c.Diagnose(t.Context())), quorumlock.ErrClosed, "Diagnose")
}
