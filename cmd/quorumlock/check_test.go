package main

import (
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

func TestCheckOfFitNodesIsExitStatus0(t *testing.T) {
	servers, nodes := tcpNodes(t, 3)
	var stdout, stderr strings.Builder
	if code := main1(t.Context(), []string{"check", "--nodes", nodes}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("status %d, %s", code, stderr.String())
	}
	for _, want := range []string{"all is well", servers[0].Redis.Addr(), servers[2].Redis.Addr(), "master", "always", "no limit"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, stdout.String())
		}
	}
	noSecret(t, stdout.String())
	noKeys(t, servers)
}

func TestCheckOfUnfitNodesIsExitStatus1AndNamesTheFix(t *testing.T) {
	for name, c := range map[string]struct {
		nodes int
		spoil func(s *embedded.Server)
		flags []string
		code  int
		want  string
	}{
		"a failure": {3, func(s *embedded.Server) { s.Configure("role", "slave") }, nil, 1, "failure: "},
		"a warning": {3, func(s *embedded.Server) { s.Configure("appendfsync", "everysec") }, nil, 1, "or use WithRestartGuard"},
		"advice alone": {3, func(s *embedded.Server) { s.Configure("appendfsync", "everysec") },
			[]string{"--restart-guard", "30s"}, 0, "advice: "}, // the servers have just started
		"a shard of a cluster": {3, func(s *embedded.Server) { s.Configure("redis_mode", "cluster") }, nil, 1, "use servers that stand alone"},
		"no permission":        {3, func(s *embedded.Server) { s.Deny("pexpire") }, nil, 1, "(PEXPIRE): allow the user"},
		"another password":     {3, func(s *embedded.Server) { s.Redis.RequireAuth("another") }, nil, 1, "the right user and password"},
		"one node":             {1, func(*embedded.Server) {}, nil, 0, "advice: there is one node only"},
	} {
		t.Run(name, func(t *testing.T) {
			servers, nodes := tcpNodes(t, c.nodes)
			c.spoil(servers[c.nodes/2])
			var stdout, stderr strings.Builder
			if code := main1(t.Context(), append([]string{"check", "--nodes", nodes}, c.flags...), &stdout, &stderr); code != c.code {
				t.Errorf("status %d, want %d: %s\n%s", code, c.code, stderr.String(), stdout.String())
			}
			if !strings.Contains(stdout.String(), c.want) || (stderr.Len() > 0) != (c.code > 0) {
				t.Errorf("%s\n%s", stderr.String(), stdout.String())
			}
			noSecret(t, stdout.String()+stderr.String())
		})
	}
}

func TestCheckWithoutAQuorumReportsAllTheSame(t *testing.T) {
	servers, nodes := tcpNodes(t, 3)
	servers[1].Redis.RequireAuth("another")
	addr := servers[2].Redis.Addr()
	servers[2].Close()
	var stdout, stderr strings.Builder
	if code := main1(t.Context(), []string{"check", "--nodes=" + nodes}, &stdout, &stderr); code != 1 || !strings.Contains(stderr.String(), "no quorum: 1 of the 2 needed") {
		t.Errorf("status %d, %s", code, stderr.String())
	}
	for _, want := range []string{"failure: 1 of 3 nodes", servers[1].Redis.Addr() + ": refuses this client: WRONGPASS", addr + ": does not answer: ", "refused", "always"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("nothing of %q in\n%s", want, stdout.String())
		}
	}
	noSecret(t, stdout.String()+stderr.String())
}
