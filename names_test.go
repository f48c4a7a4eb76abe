package quorumlock_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

func TestValidateNameRefusesKeysThatStandBesideLocks(t *testing.T) {
	for _, tt := range []struct {
		name string
		want []string // the error has the reason and the fix
	}{
		{"", []string{"is empty", "use a name"}},
		{wire.TokenKey("x"), []string{`"redisson_lock_token:"`, "fencing tokens", "another beginning"}},
		{wire.UnlockChannel("x"), []string{`"redisson_lock__channel:"`, "releases", "another beginning"}},
		{wire.QueueKey("x"), []string{`"quorumlock_"`, "this library", "another beginning"}},
		{wire.EntriesKey("{x}"), []string{`"quorumlock_"`, "this library", "another beginning"}},
		{wire.WakeChannel("client"), []string{`"quorumlock_"`, "this library", "another beginning"}},
		{"quorumlock_age", []string{`"quorumlock_"`, "this library", "another beginning"}},
		{"redisson_lock_queue:{x}", []string{"fair lock", "another beginning"}},
		{"redisson_lock_timeout:{x}", []string{"fair lock", "another beginning"}},
		{"redisson_unlock_latch:{x}:request", []string{"outcome of a release", "another beginning"}},
		{"redisson_rwlock:{x}", []string{"read-write locks", "another beginning"}},
		{"{x}:uuid:7:rwlock_timeout:1", []string{`":rwlock_timeout:1"`, "reader", "another end"}},
		{"x:quorumlock_lockn", []string{`":quorumlock_lockn"`, "beside a semaphore", "another end"}},
		{"x:quorumlock_trylockn", []string{`":quorumlock_trylockn"`, "beside a semaphore", "another end"}},
		{"redisson_lock_token:" + strings.Repeat("x", 1000), []string{"another beginning"}},
		{strings.Repeat("x", settings.MaxName+1), []string{"has 1025 bytes with its prefix", "use at most 1024"}},
		{strings.Repeat("x", 1<<20), []string{"has 1048576 bytes", "use at most 1024"}},
	} {
		err := quorumlock.ValidateName(tt.name)
		if !errors.Is(err, quorumlock.ErrMisuse) {
			t.Errorf("%.40q: %v, want ErrMisuse", tt.name, err)
			continue
		}
		for _, want := range append(tt.want, "quorumlock: ") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q does not say %q", err, want)
			}
		}
		if len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("%q is not on a short line", err)
		}
	}
}

func TestValidateNameTakesEveryOtherName(t *testing.T) {
	for _, name := range []string{
		"x", "{x}", "a{b", "{}", "two words", " ", "\t\n", "schloß/замок/锁🔒", "\xff\xfe\x00", "*", "a:b", "redisson_lock", "redisson_lock_token",
		"my_redisson_lock_token:{x}", "Quorumlock_x", "quorumlock-demo:1", "rwlock_timeout:1", "x:rwlock_timeout:", "x:rwlock_timeout:now",
		"x:quorumlock_lockn:", "lockn",
		strings.Repeat("k", settings.MaxName),
	} {
		testkit.OK(t, quorumlock.ValidateName(name), "%.40q", name)
	}
}
