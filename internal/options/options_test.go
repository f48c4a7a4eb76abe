package options_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/settings"
)

func TestResolveWithoutOptionsGivesTheDefaults(t *testing.T) {
	got, err := options.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	if got.Logger == nil || got.Logger.Enabled(t.Context(), slog.LevelError) {
		t.Error("the default logger is not a silent one")
	}
	got.Logger = nil
	want := options.Settings{
		TTL:         10 * time.Second,
		Renew:       true,
		NodeTimeout: 500 * time.Millisecond,
		Wait:        math.MinInt,
		Drift:       quorumlock.Drift{Rate: 0.01, Floor: 2 * time.Millisecond},
		Label:       settings.DefaultLabel(),
		Retention:   24 * time.Hour,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestResolveAppliesOptionsInOrder(t *testing.T) {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	drift := quorumlock.Drift{Rate: 0.02, Floor: time.Millisecond}
	got, err := options.Resolve(
		quorumlock.WithTTL(time.Minute),
		nil, // an option left out
		quorumlock.WithoutRenewal(),
		quorumlock.WithWait(time.Second),
		quorumlock.WithNodeTimeout(70*time.Millisecond),
		quorumlock.WithDrift(drift),
		quorumlock.WithQuorum(4),
		quorumlock.WithOwner("me"),
		quorumlock.WithLogger(logger),
		quorumlock.WithPrefix("{billing}:"),
		quorumlock.WithLabel("web-1"),
		quorumlock.WithMaxHold(time.Hour),
		quorumlock.WithRetention(time.Minute),
		quorumlock.WithData("job 17"),
		quorumlock.WithTTL(2*time.Second),
	)
	if err != nil {
		t.Fatal(err)
	}
	want := options.Settings{
		TTL: 2 * time.Second, Wait: time.Second, NodeTimeout: 70 * time.Millisecond,
		Drift: drift, Quorum: 4, Owner: "me", Logger: logger,
		Prefix: "{billing}:", Label: "web-1", MaxHold: time.Hour, Retention: time.Minute, Data: "job 17",
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestAWaitOfNothingIsNoDefault(t *testing.T) {
	for _, limit := range []time.Duration{0, -1, math.MinInt64} {
		if s, err := options.Resolve(quorumlock.WithWait(limit)); err != nil || s.Wait != 0 {
			t.Errorf("WithWait(%v): %v, %v, want no wait", limit, s.Wait, err)
		}
	}
}

func TestQuarantineIsTheLongestTTLAndItsDrift(t *testing.T) {
	for _, tt := range []struct {
		guard, want time.Duration
		drift       quorumlock.Drift
	}{
		{0, 0, quorumlock.DefaultDrift()},
		{time.Minute, time.Minute + 602*time.Millisecond, quorumlock.DefaultDrift()},
		{time.Minute, time.Minute + 6*time.Second + time.Millisecond, quorumlock.Drift{Rate: 0.1, Floor: time.Millisecond}},
		{time.Minute, time.Minute, quorumlock.Drift{}},
	} {
		opts := []quorumlock.Option{quorumlock.WithDrift(tt.drift)}
		if tt.guard > 0 {
			opts = append(opts, quorumlock.WithRestartGuard(tt.guard))
		}
		s, err := options.Resolve(opts...)
		if got := options.Quarantine(&s); err != nil || got != tt.want {
			t.Errorf("guard %v, drift %+v: %v, %v, want %v", tt.guard, tt.drift, got, err, tt.want)
		}
	}
}

func TestNodeTimeoutFollowsTheTTLWithinBounds(t *testing.T) {
	for _, tt := range []struct{ ttl, want time.Duration }{
		{quorumlock.MinTTL, 50 * time.Millisecond},
		{time.Second, 50 * time.Millisecond},
		{2 * time.Second, 100 * time.Millisecond},
		{20 * time.Second, time.Second},
		{time.Hour, time.Second},
	} {
		s, err := options.Resolve(quorumlock.WithTTL(tt.ttl))
		if err != nil || s.NodeTimeout != tt.want {
			t.Errorf("TTL %v: %v, %v, want %v", tt.ttl, s.NodeTimeout, err, tt.want)
		}
	}
}

func TestABadOptionIsNamedAlongWithWhatWouldDo(t *testing.T) {
	for _, tt := range []struct {
		name   string
		option quorumlock.Option
		want   []string // the option as it was given, and the fix
	}{
		{"no TTL", quorumlock.WithTTL(0), []string{"WithTTL(0s)", "at least 10ms"}},
		{"an endless TTL", quorumlock.WithTTL(math.MaxInt64), []string{"WithTTL(2562047h47m16.854775807s) is too long", "at most 876000h0m0s"}},
		{"negative TTL", quorumlock.WithTTL(-time.Second), []string{"WithTTL(-1s)", "at least 10ms"}},
		{"short TTL", quorumlock.WithTTL(quorumlock.MinTTL - 1), []string{"WithTTL(9.999999ms)", "at least 10ms"}},
		{"NaN rate", quorumlock.WithDrift(quorumlock.Drift{Rate: math.NaN()}), []string{"WithDrift", "Rate is NaN", "below 1"}},
		{"infinite rate", quorumlock.WithDrift(quorumlock.Drift{Rate: math.Inf(1)}), []string{"WithDrift", "Rate is +Inf", "below 1"}},
		{"negative floor", quorumlock.WithDrift(quorumlock.Drift{Floor: -time.Second}), []string{"WithDrift", "Floor is -1s", "0 or more"}},
		{"a drift that eats the TTL", quorumlock.WithDrift(quorumlock.Drift{Rate: 0.5, Floor: 5 * time.Second}),
			[]string{"WithTTL(10s)", "0.5", "5s", "a longer TTL or a smaller drift"}},
		{"negative node timeout", quorumlock.WithNodeTimeout(-1), []string{"WithNodeTimeout(-1ns)", "positive", "leave the option out for the default"}},
		{"no node timeout", quorumlock.WithNodeTimeout(0), []string{"WithNodeTimeout(0s)", "positive"}},
		{"negative guard", quorumlock.WithRestartGuard(-1), []string{"WithRestartGuard(-1ns)", "longest TTL", "leave the option out for no guard"}},
		{"a guard of nothing", quorumlock.WithRestartGuard(0), []string{"WithRestartGuard(0s)", "longest TTL"}},
		{"endless guard", quorumlock.WithRestartGuard(math.MaxInt64), []string{"WithRestartGuard(", "longest TTL"}},
		{"a guard below the TTL", quorumlock.WithRestartGuard(9 * time.Second), []string{"WithTTL(10s)", "WithRestartGuard(9s)", "a longer guard"}},
		{"a node timeout above the TTL", quorumlock.WithNodeTimeout(10*time.Second + 1), []string{"WithNodeTimeout(10.000000001s)", "WithTTL(10s)", "a shorter node timeout or a longer TTL"}},
		{"negative hold", quorumlock.WithMaxHold(-time.Second), []string{"WithMaxHold(-1s)", "positive", "leave the option out for no limit"}},
		{"no hold", quorumlock.WithMaxHold(0), []string{"WithMaxHold(0s)", "positive"}},
		{"no retention", quorumlock.WithRetention(0), []string{"WithRetention(0s)", "use 1m0s to", "leave the option out for 24h"}},
		{"short retention", quorumlock.WithRetention(time.Minute - 1), []string{"WithRetention(59.999999999s)", "use 1m0s to"}},
		{"endless retention", quorumlock.WithRetention(math.MaxInt64), []string{"WithRetention(", "use 1m0s to"}},
		{"empty label", quorumlock.WithLabel(""), []string{`WithLabel("")`, "1 to 64 letters", "leave the option out"}},
		{"long label", quorumlock.WithLabel(strings.Repeat("l", 65)), []string{"WithLabel(", "1 to 64 letters"}},
		{"a label with a tilde", quorumlock.WithLabel("a~b"), []string{`WithLabel("a~b")`, "letters, digits, dots, underscores and hyphens"}},
		{"a label with a space", quorumlock.WithLabel("a b"), []string{`WithLabel("a b")`, "letters, digits, dots, underscores and hyphens"}},
		{"a prefix with a line feed", quorumlock.WithPrefix("app:\n"), []string{`WithPrefix("app:\n")`, "a prefix without"}},
		{"a prefix with a space", quorumlock.WithPrefix("my app:"), []string{`WithPrefix("my app:")`, "a prefix without"}},
		{"a prefix with half a hash tag", quorumlock.WithPrefix("{app:"), []string{`WithPrefix("{app:")`, "begins no hash tag", `"{billing}:"`}},
		{"a prefix with an empty hash tag", quorumlock.WithPrefix("{}app:"), []string{`WithPrefix("{}app:")`, "begins no hash tag"}},
		{"a prefix that is the library's", quorumlock.WithPrefix("quorumlock_app:"), []string{`"quorumlock_"`, "another beginning"}},
		{"a prefix that is Redisson's", quorumlock.WithPrefix("redisson_lock_queue:"), []string{`"redisson_lock_queue:"`, "another beginning"}},
		{"a prefix that leaves no name", quorumlock.WithPrefix(strings.Repeat("x", settings.MaxName)), []string{"WithPrefix(", "has 1024 bytes", "a shorter prefix"}},
		{"long data", quorumlock.WithData(strings.Repeat("x", 1025)), []string{"WithData has 1025 bytes", "at most 1024"}},
		{"data that is no text", quorumlock.WithData("a\xff"), []string{`WithData("a\xff")`, "UTF-8"}},
		{"negative quorum", quorumlock.WithQuorum(-1), []string{"WithQuorum(-1)", "majority"}},
		{"no quorum", quorumlock.WithQuorum(0), []string{"WithQuorum(0)", "leave the option out for a majority"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := options.Resolve(tt.option)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range append(tt.want, "quorumlock: ", ": use ") {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if !errors.Is(err, quorumlock.ErrMisuse) || strings.ContainsAny(err.Error(), "\r\n") {
				t.Errorf("%q is not ErrMisuse on one line", err)
			}
		})
	}
}

func TestDefaultLabelIsALabelThatEndsWithTheProcess(t *testing.T) {
	label := settings.DefaultLabel()
	if _, err := options.Resolve(quorumlock.WithLabel(label)); err != nil {
		t.Error(err)
	}
	if end := fmt.Sprintf("-%d", os.Getpid()); !strings.HasSuffix(label, end) || label == end {
		t.Errorf("%q, want <hostname>%s", label, end)
	}
	if got := quorumlock.Owner(label + "~uuid:1").Label(); got != label {
		t.Errorf("an owner with it has the label %q, want %q", got, label)
	}
}
