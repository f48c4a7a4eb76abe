package names

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/redlock"
)

// documented returns the rows of the table of keys in docs/nodes.md: expressions for keys, and for
// how long a key may stay after the last use of its name. A TTL is the longest of TestNoKeyStays.
func documented(t *testing.T, ttl time.Duration) map[*regexp.Regexp]time.Duration {
	text, err := os.ReadFile("../../../../docs/nodes.md")
	testkit.Must(t, err, "ReadFile")
	_, table, _ := strings.Cut(string(text), "## Keys and channels")
	rows := make(map[*regexp.Regexp]time.Duration)
	for line := range strings.Lines(table) {
		columns := strings.Split(line, " | ")
		if len(columns) != 4 || !strings.Contains(columns[0], "`") {
			continue
		}
		longest, at := time.Duration(0), columns[3]
		if strings.Contains(at, "the TTL") {
			longest = ttl
		}
		for _, m := range regexp.MustCompile(`(\d+) (s|min|h)\b`).FindAllStringSubmatch(at, -1) {
			n, _ := strconv.Atoi(m[1])
			longest += time.Duration(n) * map[string]time.Duration{"s": time.Second, "min": time.Minute, "h": time.Hour}[m[2]]
		}
		for _, m := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(columns[0], -1) {
			key := strings.ReplaceAll(regexp.QuoteMeta(m[1]), "<name>", "(mutex|readers|semaphore|both|once|leader|(?:open|closed)-latch)-?[a-z]*(:quorumlock_[a-z]+)?")
			if kind := regexp.MustCompile(`of a (\w+)`).FindStringSubmatch(columns[0]); kind != nil && m[1] == "<name>" {
				key = fmt.Sprintf("[a-z-]*%s[a-z-]*", kind[1])
			}
			rows[regexp.MustCompile("^"+key+"$")] = longest
		}
	}
	return rows
}

// Every kind of lock is used, with each feature that leaves a key, by clients that live and by one
// that dies as a holder and as a waiter. Each key is in the table of docs/nodes.md, and is gone
// within the time that the table says. Then nothing is left.
func TestNoKeyStays(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		const ttl = 30 * time.Second // the longest: of a detached hold
		c, servers := testkit.Client(t, 3)
		dies, paths := testkit.Another(t, servers)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		both := func(c *redlock.Client) quorumlock.Locker {
			return testkit.Multi(t, c.Mutex("both-a"), c.RWMutex("both-b").RLocker(), c.Semaphore("both-semaphore", 2))
		}
		lockers := map[string]func(c *redlock.Client) quorumlock.Locker{
			"mutex":     func(c *redlock.Client) quorumlock.Locker { return c.Mutex("mutex") },
			"readers":   func(c *redlock.Client) quorumlock.Locker { return c.RWMutex("readers").RLocker() },
			"semaphore": func(c *redlock.Client) quorumlock.Locker { return c.Semaphore("semaphore", 1) },
			"both":      both,
		}
		for _, name := range slices.Sorted(maps.Keys(lockers)) {
			of := lockers[name]
			lease := testkit.Lock(t, of(c))
			next := testkit.Waiter(t, of(c)) // handed over, or shares
			testkit.Must(t, lease.Extend(ctx), "Extend")
			servers[1].Redis.FlushAll() // restored
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Unlock(t, lease)
			testkit.Unlock(t, <-next)
		}
		holder := testkit.Lock(t, c.Mutex("mutex-kept"))
		testkit.Must(t, holder.UnlockAfter(ctx, quorumlock.DefaultTTL), "UnlockAfter")
		testkit.Lock(t, c.Mutex("mutex-forced"))
		testkit.Must(t, c.ForceUnlock(ctx, "mutex-forced"), "ForceUnlock")
		holder = testkit.Lock(t, c.Mutex("mutex-data", quorumlock.WithData("data")))
		testkit.Must(t, holder.UnlockAfter(ctx, quorumlock.DefaultTTL), "UnlockAfter")
		holder = testkit.Lock(t, c.Mutex("mutex-detached"))
		_, err := holder.Detach(ctx, ttl)
		testkit.Must(t, err, "Detach")
		writer := testkit.Lock(t, c.RWMutex("readers-downgraded"))
		testkit.Must(t, c.RWMutex("readers-downgraded").Downgrade(ctx, writer), "Downgrade")
		testkit.Unlock(t, writer)
		_, err = quorumlock.Once(ctx, c.Mutex("once"), ttl, func(context.Context) error { return nil })
		testkit.Must(t, err, "Once")
		for name, n := range map[string]int{"open-latch": 1, "closed-latch": 2} {
			testkit.Must(t, c.Latch(name, n).Done(ctx, "id"), "Done")
		}
		term, err := election.New(c.Mutex("leader"), "value").Campaign(ctx)
		testkit.Must(t, err, "Campaign")
		testkit.Must(t, term.Proclaim(ctx, "another"), "Proclaim")
		testkit.Must(t, term.Resign(ctx), "Resign")
		_, err = c.Ready(ctx)
		testkit.Must(t, err, "Ready")
		_, err = c.Diagnose(ctx)
		testkit.Must(t, err, "Diagnose")

		// A process dies with each kind, as a holder and as a waiter.
		for _, of := range lockers {
			testkit.Lock(t, of(dies))
			go func() { _, _ = of(dies).Lock(ctx) }()
		}
		testkit.Lock(t, dies.Semaphore("semaphore-several", 2))
		go func() { _, _ = dies.Semaphore("semaphore-several", 2).LockN(ctx, 2) }()
		_, _ = dies.Semaphore("semaphore-several", 2).TryLockN(ctx, 2)
		_, err = election.New(dies.Mutex("leader-dead"), "value").Campaign(ctx)
		testkit.Must(t, err, "Campaign")
		time.Sleep(time.Second)
		rows, seen := documented(t, ttl), map[*regexp.Regexp]bool{}
		for _, key := range servers[0].Redis.Keys() { // those of waiters go soon
			for e := range rows {
				seen[e] = seen[e] || e.MatchString(key)
			}
		}
		for _, p := range paths {
			p.Kill()
		}
		testkit.Must(t, dies.Close(), "Close") // which removes nothing
		for _, of := range lockers {           // a waiter behind the dead gives up, but for a reader
			short, cancel := context.WithTimeout(ctx, time.Second)
			if lease, err := of(c).Lock(short); err == nil {
				testkit.Unlock(t, lease)
			}
			cancel()
		}

		start := time.Now()
		for time.Since(start) < 25*time.Hour {
			for _, s := range servers {
				for _, key := range s.Redis.Keys() {
					stays, known := time.Duration(-1), false
					for e, most := range rows {
						if e.MatchString(key) {
							seen[e], known, stays = true, true, max(stays, most)
						}
					}
					if !known || time.Since(start) > stays {
						t.Fatalf("%s has %q after %v: docs/nodes.md knows it %v, for %v", s.Name, key, time.Since(start), known, stays)
					}
				}
			}
			if time.Since(start) < 10*time.Minute {
				time.Sleep(time.Second)
			} else {
				time.Sleep(time.Minute)
			}
		}
		for e := range rows {
			if !seen[e] && !strings.Contains(e.String(), "_age") /* of the restart guard */ && !strings.Contains(e.String(), "_trylockn") /* gone at once */ {
				t.Errorf("no key is like %v", e)
			}
		}
	})
}
