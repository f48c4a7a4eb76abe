package main

import (
	"context"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/redlock"
)

// seen passes each write on.
type seen func(text string)

func (f seen) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// A lock is taken when the tool has shown that it is free, and released when the tool has shown its
// holder.
func TestInspectWatchesALock(t *testing.T) {
	t.Parallel()
	_, nodes := tcpNodes(t, 3)
	client, err := redlock.Dial(strings.Split(nodes, ","), quorumlock.WithLabel("holder-1"))
	testkit.Must(t, err, "Dial")
	defer client.Close() //nolint:errcheck // the servers are closed next
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var shown strings.Builder
	var lease *quorumlock.Lease
	next := []struct {
		after string
		do    func()
	}{
		{"x: free", func() { lease = testkit.MustLock(t, client.Mutex("x", quorumlock.WithData("job 17"))) }},
		{`data "job 17"`, func() { testkit.MustUnlock(t, lease) }},
		{"x: free", interrupt},
	}
	status := main1(ctx, []string{"inspect", "x", "--watch", "--nodes", nodes}, seen(func(text string) {
		shown.WriteString(text)
		if len(next) > 0 && strings.Contains(text, next[0].after) {
			now := next[0].do
			next = next[1:]
			now()
		}
	}), &strings.Builder{})
	testkit.Equal(t, status, 130, "the status")
	testkit.Equal(t, len(next), 0, "the steps that are left, after\n%s", &shown)
	has(t, shown.String(), "held by holder-1")
	noSecret(t, shown.String())
}
