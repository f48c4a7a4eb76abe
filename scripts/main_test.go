package scripts_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

func TestMain(m *testing.M) { locktest.Main(m) }

const (
	alice quorumlock.Owner = "alice:1"
	bob   quorumlock.Owner = "bob:1"

	ttl = 10 * time.Second
	day = 24 * time.Hour

	// kept is how long a new counter is kept after most grants: a day, the hour that a hint may be
	// ahead, the longest TTL of those grants, and the hour in which nobody looks.
	kept = day + 3*time.Hour
)

// server is one node, and what its scripts find and leave there.
type server struct {
	*testing.T
	node *node.Node
	data *miniredis.Miniredis
}

// epoch is what the servers' clocks say at the start: so little that hints such as 100 are within
// an hour of it.
var epoch = time.UnixMilli(1_000_000)

// start returns a node whose clock stands still, and whose keys expire only when the test says so.
func start(t *testing.T) *server {
	t.Helper()
	servers, nodes := locktest.Nodes(t, 1)
	servers[0].Redis.ClockTTL(false)
	servers[0].Redis.SetTime(epoch)
	return &server{t, nodes[0], servers[0].Redis}
}

func (s *server) send(c wire.Call) wire.Reply {
	s.Helper()
	return transport.Of(s.node).Send(s.Context(), c)[0]
}

// acquire is an acquire that must not fail.
func (s *server) acquire(name string, owner quorumlock.Owner, hold int, hint uint64) wire.Answer {
	s.Helper()
	a, err := s.send(wire.Acquire(name, owner, ttl, hold, hint)).Acquired()
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// grant is an acquire that must be granted.
func (s *server) grant(name string, owner quorumlock.Owner, hold int, hint uint64) wire.Answer {
	s.Helper()
	a := s.acquire(name, owner, hold, hint)
	if !a.Granted {
		s.Fatalf("acquire %d for %s was refused", hold, owner)
	}
	return a
}

func (s *server) release(name string, owner quorumlock.Owner, hold int) (left int, held bool) {
	s.Helper()
	left, held, err := s.send(wire.Release(name, owner, hold)).Released()
	if err != nil {
		s.Fatal(err)
	}
	return left, held
}

// done sends a raise, renew or force release that must not fail.
func (s *server) done(c wire.Call) bool {
	s.Helper()
	ok, err := s.send(c).Done()
	if err != nil {
		s.Fatal(err)
	}
	return ok
}

// checkHold checks what the lock's hash has: only owner, with that count, and the mode of a mutex,
// which Redisson's clients do not write; nothing if count is "".
func (s *server) checkHold(name string, owner quorumlock.Owner, count string) {
	s.Helper()
	if count == "" {
		if s.data.Exists(name) {
			fields, _ := s.data.HKeys(name)
			s.Errorf("%.40q is still there, with %q", name, fields)
		}
		return
	}
	fields, err := s.data.HKeys(name)
	fields = slices.DeleteFunc(fields, func(f string) bool { return f == "mode" && s.data.HGet(name, f) == "mutex" })
	if err != nil || len(fields) != 1 || fields[0] != string(owner) {
		s.Errorf("%.40q has the fields %q, %v, want %q alone", name, fields, err, owner)
		return
	}
	if got := s.data.HGet(name, string(owner)); got != count {
		s.Errorf("%s holds %.40q %s times, want %s", owner, name, got, count)
	}
}

func (s *server) checkTTL(key string, want time.Duration) {
	s.Helper()
	if got := s.data.TTL(key); got != want {
		s.Errorf("%.60q expires in %v, want %v", key, got, want)
	}
}

func (s *server) checkToken(name, want string) {
	s.Helper()
	if got, err := s.data.Get(wire.TokenKey(name)); err != nil || got != want {
		s.Errorf("the token of %.40q is %q, %v, want %s", name, got, err, want)
	}
}

func (s *server) checkNoToken(name string) {
	s.Helper()
	if got, err := s.data.Get(wire.TokenKey(name)); err == nil {
		s.Errorf("the token of %.40q is %q, want none", name, got)
	}
}

func (s *server) put(key, value string) {
	s.Helper()
	if err := s.data.Set(key, value); err != nil {
		s.Fatal(err)
	}
}

// channel hears the unlock channel of a lock, or another one.
type channel struct {
	*server
	name     string
	messages chan miniredis.PubsubMessage
}

// listen hears every release of a lock until the end of the test.
func (s *server) listen(name string) channel { return s.listenTo(wire.UnlockChannel(name)) }

func (s *server) listenTo(name string) channel {
	c := channel{s, name, make(chan miniredis.PubsubMessage, 64)}
	sub := s.data.NewSubscriber()
	sub.Subscribe(c.name)
	var pump sync.WaitGroup
	pump.Go(func() {
		for m := range sub.Messages() {
			c.messages <- m
		}
	})
	s.Cleanup(func() {
		sub.Close()
		pump.Wait()
	})
	return c
}

// checkTold checks that one release was published since the last check.
func (c channel) checkTold() {
	c.Helper()
	c.check("00")
	c.checkSilence()
}

// checkSilence checks that nothing was published since the last check.
func (c channel) checkSilence() {
	c.Helper()
	c.data.Publish(c.name, "end") // it comes after all earlier messages
	c.check("end")
}

func (c channel) check(message string) {
	c.Helper()
	if m := <-c.messages; m.Message != message || m.Channel != c.name {
		c.Fatalf("told %q on %q, want %q", m.Message, m.Channel, message)
	}
}
