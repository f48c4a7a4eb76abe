package integration

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// found checks that a check finds one thing at one server.
func found(t *testing.T, c *redlock.Client, s *server, kind redlock.FindingKind, severity redlock.Severity, says string) {
	t.Helper()
	h, err := c.Diagnose(t.Context())
	must(t, err)
	if len(h.Findings) != 1 {
		t.Fatalf("%d findings, want one:\n%v", len(h.Findings), h)
	}
	if f := h.Findings[0]; f.Kind != kind || f.Severity != severity || f.Node != s.addr || !strings.Contains(f.Problem, says) {
		t.Errorf("found %+v, want %s (%v) of %s that says %q", f, kind, severity, s.addr, says)
	}
	if h.OK() != (severity == redlock.SeverityAdvice) {
		t.Errorf("OK is %v with a %v", h.OK(), severity)
	}
}

func TestServersThatAreFitForLocksPassTheCheck(t *testing.T) {
	needServers(t)
	h, err := dial(t, five, unhurried).Diagnose(t.Context())
	must(t, err)
	if !h.OK() || len(h.Findings) > 0 {
		t.Errorf("OK %v:\n%v", h.OK(), h)
	}
	for i, n := range h.Nodes {
		s := n.Status
		if n.Node != five[i].addr || s.Role != "master" || s.Version == "" || len(s.RunID) != 40 || s.AppendFsync != "always" ||
			s.Save != "off" || s.Eviction != "noeviction" || s.RoundTrip <= 0 || s.ClockOffset.Abs() > patience {
			t.Errorf("%+v", n)
		}
	}
}

func TestCheckFindsWhatIsWrongWithAServer(t *testing.T) {
	needServers(t)
	set := func(pairs ...string) func(ctx context.Context, s *server) error {
		return func(ctx context.Context, s *server) error {
			for i := 0; i < len(pairs); i += 2 {
				if err := s.admin.ConfigSet(ctx, pairs[i], pairs[i+1]).Err(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	for name, way := range map[string]struct {
		spoil, heal func(ctx context.Context, s *server) error
		kind        redlock.FindingKind
		severity    redlock.Severity
		says        string
	}{
		"it evicts": {set("maxmemory", "1gb", "maxmemory-policy", "allkeys-lru"), set("maxmemory", "0", "maxmemory-policy", "noeviction"),
			redlock.FindingEvicts, redlock.SeverityFailure, "allkeys-lru"},
		"fsync every second":  {set("appendfsync", "everysec"), set("appendfsync", "always"), redlock.FindingForgets, redlock.SeverityWarning, "everysec"},
		"no append-only file": {set("appendonly", "no"), set("appendonly", "yes"), redlock.FindingForgets, redlock.SeverityWarning, "no append-only file"},
		"a replica": {
			func(ctx context.Context, s *server) error { return s.admin.ReplicaOf(ctx, "127.0.0.1", "1").Err() },
			func(ctx context.Context, s *server) error { return s.admin.ReplicaOf(ctx, "NO", "ONE").Err() },
			redlock.FindingNotMaster, redlock.SeverityFailure, "is a replica"},
		"CONFIG denied": {
			func(ctx context.Context, s *server) error { return acl(ctx, s.admin, "-config") },
			func(ctx context.Context, s *server) error { return acl(ctx, s.admin, "+config") },
			redlock.FindingUntold, redlock.SeverityAdvice, "NOPERM"},
		"INFO denied": {
			func(ctx context.Context, s *server) error { return acl(ctx, s.admin, "-info") },
			func(ctx context.Context, s *server) error { return acl(ctx, s.admin, "+info") },
			redlock.FindingUntold, redlock.SeverityAdvice, "NOPERM"},
		"a password": {set("requirepass", "right"), set("requirepass", ""), redlock.FindingRefuses, redlock.SeverityWarning, "NOAUTH"},
		"PEXPIRE denied": {
			func(ctx context.Context, s *server) error { return acl(ctx, s.admin, "-pexpire") },
			func(ctx context.Context, s *server) error { return acl(ctx, s.admin, "+pexpire") },
			redlock.FindingRefuses, redlock.SeverityWarning, "(PEXPIRE)"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasSuffix(name, "denied") {
				needUsers(t)
			}
			t.Cleanup(func() { must(t, way.heal(context.Background(), five[2])) })
			must(t, way.spoil(t.Context(), five[2]))
			found(t, dial(t, five, unhurried), five[2], way.kind, way.severity, way.says)
		})
	}
}

func TestCheckTellsOfServersThatAreDownAndOfTooFew(t *testing.T) {
	needServers(t)
	c := dial(t, five, unhurried)
	five[0].pause(t)
	found(t, c, five[0], redlock.FindingUnreachable, redlock.SeverityWarning, "deadline exceeded")
	five[0].resume(t)
	five[0].kill(t)
	found(t, c, five[0], redlock.FindingUnreachable, redlock.SeverityWarning, "")
	five[1].kill(t)
	five[2].kill(t)
	h, err := c.Diagnose(t.Context())
	if e, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || e.Granted != 2 || e.Needed != 3 {
		t.Errorf("%v, want a *QuorumError with 2 of 3", err)
	}
	if len(h.Findings) != 4 || h.Findings[0].Kind != redlock.FindingNoQuorum || h.Findings[0].Severity != redlock.SeverityFailure {
		t.Errorf("found:\n%v", h)
	}
}

func TestCheckShowsNoPassword(t *testing.T) {
	needServers(t)
	must(t, five[1].admin.ConfigSet(t.Context(), "requirepass", "right").Err())
	t.Cleanup(func() { must(t, five[1].admin.ConfigSet(context.Background(), "requirepass", "").Err()) })
	c := dialURLs(t, []string{five[0].url(), strings.Replace(five[1].url(), "//", "//:hunter2@", 1), five[2].url()}, unhurried)
	h, err := c.Diagnose(t.Context())
	must(t, err)
	said := "WRONGPASS"
	if !since(6, 0) {
		said = "invalid password"
	}
	if text := h.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, said) {
		t.Errorf("want %s and no password:\n%s", said, text)
	}
}
