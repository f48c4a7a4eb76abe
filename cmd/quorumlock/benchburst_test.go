package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestABurstCountsItsFailuresByKind(t *testing.T) {
	_, nodes := tcpNodes(t, 3)
	c := connection{sources: sources{Nodes: &nodes}}
	first, err := c.dial("bench")
	testkit.Must(t, err, "dial")
	defer first.Close() //nolint:errcheck // its locks are released
	// Two of the locks are not free.
	other, err := c.dial("bench")
	testkit.Must(t, err, "dial")
	defer other.Close() //nolint:errcheck // its leases end by themselves
	for _, name := range []string{"bench:0", "bench:7"} {
		_, err := other.Mutex(name).Lock(t.Context())
		testkit.Must(t, err, "lock")
	}
	b := &bench{first: first, name: "bench", names: make(map[string]bool)}
	all := b.burst(t.Context(), 20, time.Second)
	testkit.Equal(t, all.Granted, 18, "granted")
	testkit.Equal(t, all.Failed, 2, "failed")
	testkit.Equal(t, len(all.Errors), 1, "kinds")
	testkit.Equal(t, all.Errors[0].Count, 2, "of the kind")
	if all.Max <= 0 || all.Max > 1000 || all.Total < 900 || all.PerSec <= 0 || all.PerSec > 18/0.9 {
		t.Errorf("%+v", all)
	}
	var text strings.Builder
	testkit.Must(t, all.print(&text), "print")
	has(t, text.String(), "18 of 20", "  Lock: not granted within --duration", "such as: \"")
}

func TestErrorsOfABurstHaveKinds(t *testing.T) {
	for want, err := range map[string]error{
		"no quorum":                     errors.Join(context.DeadlineExceeded, &quorumlock.QuorumError{}),
		"not sent within --duration":    errors.Join(context.DeadlineExceeded, quorumlock.ErrUnsent),
		"not granted within --duration": errors.Join(context.DeadlineExceeded, &quorumlock.HeldError{}),
		"lease lost":                    &quorumlock.LostError{},
		"granted too late":              quorumlock.ErrTooLate,
		"other":                         errors.New("something else"),
	} {
		testkit.Equal(t, kindOf(err), want, "kind of %v", err)
	}
}
