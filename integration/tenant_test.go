package integration

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// tenant is one of several users that share the servers and must not touch each other's locks. The
// prefix of its locks is its name and a colon. Its clients' labels begin with its name and a dot.
type tenant struct{ name, password string }

// patterns are the keys and channels of a tenant, as arguments of ACL SETUSER. Only its commands
// have to be added.
func (o tenant) patterns() []string {
	return slices.DeleteFunc(wire.ACL(o.name+":", o.name+"."), func(rule string) bool { return rule[0] == '+' })
}

// admit makes the tenant a user of the servers with these commands, and no others.
func (o tenant) admit(t *testing.T, servers []*server, commands ...string) {
	t.Helper()
	for _, s := range servers {
		allow(t, s, o.name, slices.Concat([]string{"reset", "on", ">" + o.password}, o.patterns(), commands)...)
	}
}

// lockCommands are the commands that a lock client needs.
func lockCommands() []string {
	return slices.DeleteFunc(slices.Clone(permissions), func(p string) bool { return p[0] != '+' })
}

func (o tenant) url(s *server) string {
	return (&url.URL{Scheme: "redis", User: url.UserPassword(o.name, o.password), Host: s.addr}).String()
}

// client returns a new client of the tenant, with a prefix for its locks.
func (o tenant) client(t *testing.T, servers []*server, prefix string) *redlock.Client {
	t.Helper()
	urls := make([]string, len(servers))
	for i, s := range servers {
		urls[i] = o.url(s)
	}
	return dialURLs(t, urls, unhurried, quorumlock.WithPrefix(prefix), quorumlock.WithLabel(o.name+".host"))
}

// raw returns a connection of the tenant to one server, for any command.
func (o tenant) raw(t *testing.T, s *server) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: s.addr, Username: o.name, Password: o.password, MaxRetries: -1})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// deniedTo returns the servers' denials to a user.
func deniedTo(t *testing.T, servers []*server, user string) (all []string) {
	t.Helper()
	for _, s := range servers {
		entries, err := s.admin.ACLLog(t.Context(), 100).Result()
		must(t, err)
		for _, e := range entries {
			if e.Username == user {
				all = append(all, s.addr+": "+e.Reason+" of "+e.Object)
			}
		}
	}
	return all
}

// waiting calls Lock, and returns when the call is queued at every server and subscribed to its
// wake channel there.
func waiting(t *testing.T, servers []*server, key string, l quorumlock.Locker) <-chan *quorumlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel) // the lease's context descends from it
	got := make(chan *quorumlock.Lease, 1)
	go func() {
		lease, err := l.Lock(ctx)
		if err != nil {
			t.Errorf("Lock of %q: %v", l.Name(), err)
		}
		got <- lease
	}()
	for _, s := range servers {
		eventually(t, patience, "a waiter for "+key+" at "+s.addr, func() bool {
			line, err := s.admin.ZRange(context.Background(), wire.QueueKey(key), 0, -1).Result()
			must(t, err)
			if len(line) == 0 {
				return false
			}
			channel := wire.WakeChannel(line[0][:strings.LastIndexByte(line[0], ':')])
			heard, err := s.admin.PubSubNumSub(context.Background(), channel).Result()
			must(t, err)
			return heard[channel] == 1
		})
	}
	return got
}

// Two tenants use locks of the same names at the same time, each under its own user, prefix and
// label. They do not disturb each other, and both can use all features of locks.
func TestTenantsUseTheirLocksUnderTheirOwnRights(t *testing.T) {
	needUsers(t)
	servers := five[:3]
	t.Cleanup(func() { noLocks(t, servers, patience) })
	a, b := tenant{"a", "pass-of-a"}, tenant{"b", "pass-of-b"}
	for _, o := range []tenant{a, b} {
		o.admit(t, servers, lockCommands()...)
		t.Cleanup(func() {
			for _, s := range servers {
				must(t, s.admin.ACLDelUser(context.Background(), o.name).Err())
			}
		})
	}
	for _, s := range servers {
		must(t, s.admin.ACLLogReset(t.Context()).Err())
	}
	first := map[tenant]*quorumlock.Lease{}
	for _, o := range []tenant{a, b} { // both at once
		first[o] = lock(t, o.client(t, servers, o.name+":"), "x")
	}
	for _, o := range []tenant{a, b} {
		c := o.client(t, servers, o.name+":")
		holder := first[o]
		isHeld(t, c, "x")
		must(t, holder.Extend(t.Context()))
		if in, err := c.Inspect(t.Context(), "x"); err != nil || in.State.Owner != holder.Owner() {
			t.Errorf("%s: Inspect: %+v, %v", o.name, in.State, err)
		}
		got := waiting(t, servers, o.name+":x", c.Mutex("x"))
		must(t, holder.Unlock(t.Context()))
		second := <-got
		if second == nil {
			t.FailNow()
		}
		// No Redisson client listens: the lock is handed over.
		third := waiting(t, servers, o.name+":x", o.client(t, servers, o.name+":").Mutex("x"))
		must(t, second.Unlock(t.Context()))
		last := <-third
		if last == nil {
			t.FailNow()
		}
		if holder.Token() >= second.Token() || second.Token() >= last.Token() {
			t.Errorf("%s: tokens %d, %d, %d do not rise", o.name, holder.Token(), second.Token(), last.Token())
		}
		must(t, last.Unlock(t.Context()))

		both, err := multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("y")}, unhurried)
		must(t, err)
		d := o.client(t, servers, o.name+":")
		other, err := multilock.New([]quorumlock.Locker{d.Mutex("y"), d.Mutex("z")}, unhurried)
		must(t, err)
		lease, err := both.Lock(t.Context())
		must(t, err)
		next := waiting(t, servers, o.name+":y", other)
		must(t, lease.Unlock(t.Context()))
		if lease = <-next; lease == nil {
			t.FailNow()
		}
		must(t, lease.Unlock(t.Context()))

		lease = lock(t, c, "x")
		must(t, c.ForceUnlock(t.Context(), "x"))
		told(t, lease)
	}
	for _, o := range []tenant{a, b} {
		if denied := deniedTo(t, servers, o.name); len(denied) > 0 {
			t.Errorf("%s was denied what it needs: %q", o.name, denied)
		}
	}
}

// A client without access to Redisson's fair locks still locks and unlocks.
func TestLocksWorkWithoutAccessToFairLocks(t *testing.T) {
	needUsers(t)
	servers := five[:3]
	t.Cleanup(func() { noLocks(t, servers, patience) })
	o := tenant{"unfair", "pass"}
	o.admit(t, servers, lockCommands()...)
	for _, s := range servers {
		t.Cleanup(func() { must(t, s.admin.ACLDelUser(context.Background(), o.name).Err()) })
		rules := slices.DeleteFunc(o.patterns(), func(p string) bool { return strings.HasPrefix(p, "~redisson_lock_queue") })
		allow(t, s, o.name, slices.Concat([]string{"resetkeys", "resetchannels"}, rules)...)
		must(t, s.admin.ACLLogReset(t.Context()).Err())
	}
	c := o.client(t, servers, "unfair:")
	for range 2 {
		lease := lock(t, c, "x")
		got := waiting(t, servers, "unfair:x", o.client(t, servers, "unfair:").Mutex("x"))
		must(t, lease.Unlock(t.Context()))
		next := <-got
		if next == nil {
			t.FailNow()
		}
		must(t, next.Unlock(t.Context()))
		reader, err := c.RWMutex("x").RLock(t.Context())
		must(t, err)
		must(t, reader.Unlock(t.Context()))
	}
	if denied := deniedTo(t, servers, o.name); len(denied) == 0 {
		t.Error("control: nothing was denied")
	}
}

// A tenant cannot touch another's locks, neither with a lock client, nor with its own commands and
// scripts. The patterns alone keep it out, not missing commands.
func TestATenantReachesNothingOfAnothers(t *testing.T) {
	needSince(t, 6, 2, "rules for channels")
	for name, commands := range map[string][]string{
		"with the commands of locks": lockCommands(),
		// The excluded commands show the keys and channels of all users, or are for admins.
		"with nearly all commands": {"+@all", "-@admin", "-@dangerous", "-scan", "-randomkey", "-dbsize", "-pubsub", "-swapdb", "-function", "-script"},
	} {
		t.Run(name, func(t *testing.T) {
			servers := five[:3]
			t.Cleanup(func() { noLocks(t, servers, patience) })
			a, b := tenant{"a", "pass-of-a"}, tenant{"b", "pass-of-b"}
			a.admit(t, servers, lockCommands()...)
			b.admit(t, servers, commands...)
			for _, o := range []tenant{a, b} {
				t.Cleanup(func() {
					for _, s := range servers {
						must(t, s.admin.ACLDelUser(context.Background(), o.name).Err())
					}
				})
			}
			ours := a.client(t, servers, "a:")
			holder := lock(t, ours, "x")
			for _, s := range servers { // a waiter that gets there first yields, with a message
				eventually(t, patience, "the lock at "+s.addr, func() bool {
					n, err := s.admin.Exists(context.Background(), "a:x").Result()
					must(t, err)
					return n == 1
				})
			}
			got := waiting(t, servers, "a:x", a.client(t, servers, "a:").Mutex("x"))
			var wake string
			channels, err := servers[0].admin.PubSubChannels(t.Context(), "quorumlock_wake:*").Result()
			must(t, err)
			if len(channels) != 1 || !strings.HasPrefix(channels[0], "quorumlock_wake:a.host~") {
				t.Fatalf("the wake channels are %q, want one of the tenant's", channels)
			}
			wake = channels[0]
			eavesdropper := servers[0].admin.PSubscribe(t.Context(), "quorumlock_wake:a*", "redisson_lock__channel:{a*")
			defer eavesdropper.Close() //nolint:errcheck // nothing is left to lose on it
			_, err = eavesdropper.Receive(t.Context())
			must(t, err)

			for _, s := range servers {
				reachesNothing(t, b.raw(t, s), wake)
			}
			throughLocks(t, b, servers)
			tellsNobody(t, b, servers, wake)
			select {
			case m := <-eavesdropper.Channel():
				t.Errorf("%q was told on %q", m.Payload, m.Channel)
			case <-time.After(100 * time.Millisecond):
			}

			if holder.Context().Err() != nil {
				t.Fatal("the holder lost its lease")
			}
			_ = eavesdropper.Close()
			must(t, holder.Unlock(t.Context()))
			lease := <-got
			if lease == nil {
				t.FailNow()
			}
			must(t, lease.Unlock(t.Context()))
			if denied := deniedTo(t, servers, "a"); len(denied) > 0 {
				t.Errorf("a was denied what it needs: %q", denied)
			}
		})
	}
}

// reachesNothing tries to use the keys and channels of the lock x of the tenant a.
func reachesNothing(t *testing.T, c *redis.Client, wake string) {
	t.Helper()
	ctx := t.Context()
	var tries [][]any
	for _, key := range []string{"a:x", wire.TokenKey("a:x"), wire.QueueKey("a:x"), wire.EntriesKey("a:x"), wire.QueueKey("a:{x}"), "a:anything"} {
		for _, command := range []string{
			"exists K", "type K", "ttl K", "pttl K", "get K", "getex K", "strlen K", "hgetall K", "hget K f", "hlen K", "zrange K 0 -1", "zcard K", "dump K", "touch K", "watch K", "object encoding K",
			"set K v", "setnx K v", "append K v", "incr K", "del K", "unlink K", "hset K f v", "hdel K f", "hincrby K f 1", "zadd K 1 m", "zrem K m", "expire K 1", "pexpire K 1", "persist K",
			"rename K b:stolen", "rename b:mine K", "copy K b:stolen", "copy b:mine K", "sort K store b:stolen", "sort b:mine by nosort get K", "zunionstore b:stolen 1 K", "lmove K b:stolen left left",
		} {
			if strings.Contains(command, "get K") && strings.HasPrefix(command, "sort") && !since(7, 0) {
				// Old versions of SORT read keys that the user may not read: do not allow it there.
				continue
			}
			fields := strings.Fields(command)
			args := make([]any, len(fields))
			for i, f := range fields {
				if args[i] = f; f == "K" {
					args[i] = key
				}
			}
			tries = append(tries, args)
		}
		for _, script := range []string{
			"return redis.call('exists', KEYS[1])", "return redis.call('del', KEYS[1])", "return redis.call('set', KEYS[1], 'v')", "return redis.call('hgetall', KEYS[1])", "return redis.call('zrange', KEYS[1], 0, -1)",
		} {
			tries = append(tries, []any{"eval", script, 1, key}, []any{"eval", strings.ReplaceAll(script, "KEYS[1]", "ARGV[1]"), 0, key})
		}
	}
	for _, channel := range []string{wake, "quorumlock_wake:a.host~nobody", "quorumlock_wake:a.x", wire.UnlockChannel("a:x")} {
		tries = append(tries, []any{"publish", channel, "0"}, []any{"eval", "return redis.call('publish', ARGV[1], '0')", 0, channel})
		if since(7, 0) {
			tries = append(tries, []any{"spublish", channel, "0"})
		}
	}
	for _, try := range tries {
		if err := c.Do(ctx, try...).Err(); !isDenied(err) {
			t.Errorf("%q: %v, want it denied", try, err)
		}
	}
	for _, channel := range []string{wake, "quorumlock_wake:a.*", "quorumlock_wake:*", "*", wire.UnlockChannel("a:x"), "redisson_lock__channel:*"} {
		kinds := map[string]func(context.Context, ...string) *redis.PubSub{"subscribe": c.Subscribe, "psubscribe": c.PSubscribe}
		if since(7, 0) {
			kinds["ssubscribe"] = c.SSubscribe
		}
		for kind, subscribe := range kinds {
			ps := subscribe(ctx, channel)
			_, err := ps.ReceiveTimeout(ctx, patience)
			if !isDenied(err) {
				t.Errorf("%s %q: %v, want it denied", kind, channel, err)
			}
			_ = ps.Close()
		}
	}
}

// isDenied reports whether a server denies the user a command, in the words of any of its versions.
// The error of a script differs from that of a command.
func isDenied(err error) bool {
	return err != nil && slices.ContainsFunc([]string{"NOPERM", "The user executing the script can't", "ACL failure in script"}, func(said string) bool {
		return strings.Contains(err.Error(), said)
	})
}

// throughLocks tries to take the locks of the tenant a with calls of a lock client, under its
// prefix and by names with braces in them, which our keys use unchanged. Such names with the prefix
// of b are b's own.
func throughLocks(t *testing.T, b tenant, servers []*server) {
	t.Helper()
	for _, prefix := range []string{"a:", ""} {
		c := b.client(t, servers, prefix)
		for _, name := range map[string][]string{"a:": {"x", "free"}, "": {"a:x", "a:free", "{a:x}", "x{a:x}"}}[prefix] {
			for call, do := range map[string]func() error{
				"TryLock":     func() error { _, err := c.Mutex(name).TryLock(t.Context()); return err },
				"ForceUnlock": func() error { return c.ForceUnlock(t.Context(), name) },
				"Inspect":     func() error { _, err := c.Inspect(t.Context(), name); return err },
			} {
				if err := do(); !isDenied(err) {
					t.Errorf("%s of %q with the prefix %q: %v, want it denied", call, name, prefix, err)
				}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if prefix == "a:" {
			if _, err := c.Mutex("x").Lock(ctx); !isDenied(err) {
				t.Errorf("Lock with the prefix %q: %v, want it denied", prefix, err)
			}
		}
		cancel()
	}
	for _, s := range servers {
		n, err := node.Dial(b.url(s))
		must(t, err)
		if _, err := n.Acquire(t.Context(), "a:free", "b.host:1", time.Second, 1); !isDenied(err) {
			t.Errorf("a node's Acquire: %v, want it denied", err)
		}
		must(t, n.Close())
	}
}

// tellsNobody puts a client of the tenant a into the queue of a lock of the tenant b, as if it
// waited there. The scripts of b would call it, but they run with the rights of b.
func tellsNobody(t *testing.T, b tenant, servers []*server, wake string) {
	t.Helper()
	c := b.client(t, servers, "b:")
	waiter := strings.TrimPrefix(wake, "quorumlock_wake:") + ":1"
	for range 3 {
		lease := lock(t, c, "own")
		for _, s := range servers {
			must(t, s.admin.ZAdd(t.Context(), wire.QueueKey("b:own"), redis.Z{Score: 1, Member: waiter}).Err())
			must(t, s.admin.HSet(t.Context(), wire.EntriesKey("b:own"), waiter, time.Now().Add(time.Hour).UnixMilli()).Err())
		}
		must(t, lease.Unlock(t.Context()))
		for _, s := range servers {
			must(t, s.admin.Del(t.Context(), wire.QueueKey("b:own"), wire.EntriesKey("b:own")).Err())
		}
	}
}
