package redlock_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/internal/locktest"

	"github.com/quorumlock/quorumlock"
)

func TestANumberOfNodesThatWastesOneIsLoggedOnce(t *testing.T) {
	for _, tt := range []struct {
		nodes int
		want  string
	}{
		{1, "a lock on one node is lost with that node: use three or five nodes"},
		{2, "an even number of nodes survives no more failures than one node less"},
		{3, ""},
		{4, "an even number of nodes survives no more failures than one node less"},
		{5, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			c, _ := locktest.Client(t, tt.nodes, quorumlock.WithLogger(slog.New(slog.NewTextHandler(&b, nil))))
			_ = c.Mutex("x", quorumlock.WithoutRenewal())
			lines := strings.Count(b.String(), "\n")
			if tt.want == "" && lines > 0 || tt.want != "" && (lines != 1 || !strings.Contains(b.String(), tt.want)) {
				t.Errorf("with %d nodes %q is logged, want %q", tt.nodes, b.String(), tt.want)
			}
		})
	}
}
