package main

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

func TestCheckOfFitNodesIsExitStatus0(t *testing.T) {
	servers, nodes := tcpNodes(t, 3)
	o := invoke(t, "check", "--nodes", nodes)
	testkit.Equal(t, o.status, 0, "status")
	testkit.Equal(t, o.stderr, "", "stderr")
	has(t, o.stdout, "all is well", servers[0].Redis.Addr(), servers[2].Redis.Addr(), "master", "always", "no limit")
	noKeys(t, servers)
}

func TestCheckOfUnfitNodesIsExitStatus1AndNamesTheFix(t *testing.T) {
	everysec := func(s *embedded.Server) { s.Configure("appendfsync", "everysec") }
	for name, c := range map[string]struct {
		nodes  int
		spoil  func(s *embedded.Server)
		flags  []string
		status int
		want   string
	}{
		"a failure":            {3, func(s *embedded.Server) { s.Configure("role", "slave") }, nil, 1, "failure: "},
		"a warning":            {3, everysec, nil, 1, "or use WithRestartGuard"},
		"advice alone":         {3, everysec, []string{"--restart-guard", "30s"}, 0, "advice: "}, // the servers have just started
		"a shard of a cluster": {3, func(s *embedded.Server) { s.Configure("redis_mode", "cluster") }, nil, 1, "use servers that stand alone"},
		"no permission":        {3, func(s *embedded.Server) { s.Deny("pexpire") }, nil, 1, "(PEXPIRE): allow the user"},
		"another password":     {3, func(s *embedded.Server) { s.Redis.RequireAuth("another") }, nil, 1, "the right user and password"},
		"one node":             {1, func(*embedded.Server) {}, nil, 0, "advice: there is only one node"},
	} {
		t.Run(name, func(t *testing.T) {
			servers, nodes := tcpNodes(t, c.nodes)
			c.spoil(servers[c.nodes/2])
			o := invoke(t, append([]string{"check", "--nodes", nodes}, c.flags...)...)
			testkit.Equal(t, o.status, c.status, "status of\n%s", o.stdout)
			testkit.Equal(t, o.stderr != "", c.status > 0, "whether %q says something", o.stderr)
			has(t, o.stdout, c.want)
		})
	}
}

func TestCheckWithoutAQuorumReportsAllTheSame(t *testing.T) {
	servers, nodes := tcpNodes(t, 3)
	servers[1].Redis.RequireAuth("another")
	addr := servers[2].Redis.Addr()
	servers[2].Close()
	o := invoke(t, "check", "--nodes="+nodes)
	testkit.Equal(t, o.status, 1, "status")
	has(t, o.stderr, "no quorum: 1 of the 2 needed")
	has(t, o.stdout, "failure: 1 of 3 nodes", servers[1].Redis.Addr()+": refuses this client: WRONGPASS", addr+": does not answer: ", "refused", "always")
}
