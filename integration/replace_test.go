package integration

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/redlock"
)

// journal counts lines of a log.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), part)
}

// Each of five nodes is replaced in turn, by changes of one file, while clients take locks. No lease
// is lost, no two overlap, and tokens rise. At the end, only the new servers are left.
func TestEveryNodeIsReplacedInTurnByOneFileWithoutARestart(t *testing.T) {
	needServers(t)
	const clients, maxTTL = 3, 2 * time.Second
	const nodes = 5
	all := make([]*server, 2*nodes) // nobody calls a new one before its turn
	var starting errgroup.Group
	for i := range all {
		starting.Go(func() (err error) {
			all[i], err = launch(&redis.Options{}, nil)
			return err
		})
	}
	err := starting.Wait()
	for _, s := range all {
		if s != nil {
			t.Cleanup(func() { must(t, s.end()) })
		}
	}
	must(t, err)
	servers := slices.Clone(all[:nodes])

	file := filepath.Join(t.TempDir(), "settings")
	write := func() {
		urls := make([]string, len(servers))
		for i, s := range servers {
			urls[i] = s.url()
		}
		text := "QUORUMLOCK_NODES=" + strings.Join(urls, ",") + "\nQUORUMLOCK_RESTART_GUARD=2s\nQUORUMLOCK_TTL=2s\nQUORUMLOCK_NODE_TIMEOUT=1s\n"
		must(t, os.WriteFile(file+".new", []byte(text), 0o600))
		must(t, os.Rename(file+".new", file))
	}
	write()
	t.Setenv(options.FileVariable, file)

	var log journal
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var inside, rounds atomic.Int64
	var last uint64 // the token of the latest holder; the lock guards it
	var work errgroup.Group
	for range clients {
		c, err := redlock.DialEnv(quorumlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		held, err := c.Mutex("held by " + string(quorumlock.NewOwner())).Lock(context.WithoutCancel(ctx)) // all the time
		must(t, err)
		work.Go(func() error {
			<-ctx.Done()
			if err := held.Context().Err(); err != nil {
				t.Errorf("a lease was lost: %v", context.Cause(held.Context()))
			}
			return held.Unlock(context.WithoutCancel(ctx))
		})
		work.Go(func() error {
			for ctx.Err() == nil {
				lease, err := c.Mutex("shared").Lock(context.WithoutCancel(ctx))
				if err != nil {
					return err
				}
				if inside.Add(1) > 1 {
					t.Error("two holders at once")
				}
				if lease.Token() <= last {
					t.Errorf("token %d after %d", lease.Token(), last)
				}
				last = lease.Token()
				if lease.Context().Err() != nil {
					t.Errorf("a lease was lost: %v", context.Cause(lease.Context()))
				}
				inside.Add(-1)
				rounds.Add(1)
				if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil {
					return err
				}
				time.Sleep(10 * time.Millisecond) // a load, without taking all of the machine
			}
			return nil
		})
	}
	for i, old := range all[:nodes] {
		_ = old.admin.ShutdownNoSave(t.Context()) // it has no answer
		eventually(t, patience, "a server has stopped", func() bool { return old.admin.Ping(t.Context()).Err() != nil })
		servers[i] = all[nodes+i]
		before := rounds.Load()
		write()
		eventually(t, patience, "all clients have replaced a node", func() bool { return log.count("a node is replaced") == clients*(i+1) })
		if rounds.Load() == before {
			t.Error("nothing was locked during a replacement")
		}
	}
	// Of the first servers none is left: these leases are all on new ones.
	stop()
	must(t, work.Wait())
	for _, s := range servers {
		n, err := s.admin.Exists(t.Context(), "quorumlock_age").Result()
		must(t, err)
		if n != 1 {
			t.Errorf("%s was never asked", s.addr)
		}
	}
	t.Logf("%d locks; replaced all with a guard of %v", rounds.Load(), maxTTL)
}
