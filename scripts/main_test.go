package scripts_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	alice quorumlock.Owner = "alice:1"
	bob   quorumlock.Owner = "bob:1"

	ttl  = 10 * time.Second
	life = 2 * time.Second // of an entry in a queue
	day  = 24 * time.Hour
	year = 365 * day

	// kept is how long a new counter is kept after most grants: a minute each for how far a hint may
	// be ahead, for the minute in which nobody looks, for how far a hint may be behind, and for a
	// node's clock that is set back.
	kept = 4 * time.Minute
	// past is how long the clock is past a token when the counter ends, at least.
	past = kept - time.Minute
)

var (
	// epoch is what the servers' clocks say at the start: so little that hints such as 100 are
	// within a minute of it.
	epoch = time.UnixMilli(30_000)
	today = time.UnixMilli(1_790_000_000_000)
)

// server is one node, and what its scripts find and leave there.
type server struct {
	*testing.T
	node *node.Node
	data *miniredis.Miniredis
	now  time.Time                       // of its clock
	told <-chan miniredis.PubsubPmessage // on all wake channels, for the tests of queues
}

// start returns a node whose clock stands still, and whose keys expire only when the test says so.
func start(t *testing.T) *server {
	t.Helper()
	servers, nodes := testkit.Nodes(t, 1)
	servers[0].Redis.ClockTTL(false)
	s := &server{T: t, node: nodes[0], data: servers[0].Redis}
	s.setClock(epoch)
	return s
}

// gather is start, with ears for all wake channels.
func gather(t *testing.T) *server {
	t.Helper()
	s := start(t)
	sub := s.data.NewSubscriber()
	sub.Psubscribe("quorumlock_wake:*")
	s.told = pump(s, sub, sub.Pmessages())
	return s
}

// busy is gather, with x held by holder:1 with the token 100.
func busy(t *testing.T) *server {
	t.Helper()
	s := gather(t)
	s.grant("x", "holder:1", 1, 100)
	return s
}

// pump takes all messages, for which the publisher waits, until the end of the test.
func pump[M any](s *server, sub *miniredis.Subscriber, from <-chan M) <-chan M {
	to := make(chan M, 1000)
	var pumps sync.WaitGroup
	pumps.Go(func() {
		for m := range from {
			to <- m
		}
	})
	s.Cleanup(func() {
		sub.Close()
		pumps.Wait()
	})
	return to
}

func (s *server) setClock(now time.Time) {
	s.now = now
	s.data.SetTime(now)
}

func (s *server) wait(d time.Duration) {
	s.setClock(s.now.Add(d))
	s.data.FastForward(d)
}

func (s *server) send(c wire.Call) wire.Reply {
	s.Helper()
	return testkit.Send(s.Context(), s.node, c)[0]
}

// do sends a call that must not fail.
func (s *server) do(c wire.Call) wire.Reply {
	s.Helper()
	r := s.send(c)
	if r.Err != nil {
		s.Fatal(r.Err)
	}
	return r
}

// acquired sends an acquire that must not fail.
func (s *server) acquired(c wire.Call) wire.Answer {
	s.Helper()
	a, err := s.send(c).Acquired()
	if err != nil {
		s.Fatal(err)
	}
	return a
}

// checkAnswer sends an acquire, and checks the whole answer.
func (s *server) checkAnswer(c wire.Call, want wire.Answer) {
	s.Helper()
	if got := s.acquired(c); got != want {
		s.Errorf("answer %+v, want %+v", got, want)
	}
}

func (s *server) acquire(name string, owner quorumlock.Owner, hold int, hint uint64) wire.Answer {
	s.Helper()
	return s.acquired(wire.Acquire(name, owner, ttl, hold, hint))
}

// grant is an acquire that must be granted.
func (s *server) grant(name string, owner quorumlock.Owner, hold int, hint uint64) wire.Answer {
	s.Helper()
	a := s.acquire(name, owner, hold, hint)
	s.checkGranted(a)
	return a
}

// share lets an owner share the lock x for a time.
func (s *server) share(owner quorumlock.Owner, ttl time.Duration) {
	s.Helper()
	s.checkGranted(s.acquired(wire.Acquire("x", owner, ttl, 1, 100).Shared()))
}

func (s *server) checkGranted(a wire.Answer) {
	s.Helper()
	if !a.Granted {
		s.Fatalf("answer %+v, want a grant", a)
	}
}

// checkRefused checks that an answer is a refusal that names the holder, or the first waiter.
func (s *server) checkRefused(a wire.Answer, by quorumlock.Owner) {
	s.Helper()
	if a.Granted || a.Holder != by {
		s.Errorf("answer %+v, want a refusal that names %s", a, by)
	}
}

func (s *server) release(name string, owner quorumlock.Owner, hold int) {
	s.Helper()
	if _, _, err := s.send(wire.Release(name, owner, hold)).Released(); err != nil {
		s.Fatal(err)
	}
}

// checkRelease sends a release, and checks how many entries it leaves, and whether it was of a
// hold.
func (s *server) checkRelease(c wire.Call, left int, held bool) {
	s.Helper()
	if gotLeft, gotHeld, err := s.send(c).Released(); err != nil || gotLeft != left || gotHeld != held {
		s.Errorf("release: %d left, held %v, %v, want %d, %v", gotLeft, gotHeld, err, left, held)
	}
}

// checkDone sends a raise, renewal, leave, withdrawal or force release, and checks whether it finds
// what it needs.
func (s *server) checkDone(c wire.Call, want bool) {
	s.Helper()
	if got, err := s.send(c).Done(); err != nil || got != want {
		s.Errorf("%s: %v, %v, want %v", c.Script.Name, got, err, want)
	}
}

func (s *server) inspect(name string) quorumlock.State {
	s.Helper()
	state, err := s.send(wire.Inspect(name, 100)).Inspected()
	if err != nil {
		s.Fatal(err)
	}
	return state
}

func (s *server) checkState(name string, want quorumlock.State) {
	s.Helper()
	if got := s.inspect(name); !reflect.DeepEqual(got, want) {
		s.Errorf("the state of %.40q is %+v, want %+v", name, got, want)
	}
}

// refuses checks that a call fails, with an error of a kind unless it is nil, and with a text, and
// changes nothing.
func (s *server) refuses(c wire.Call, kind error, text string) error {
	s.Helper()
	var got any
	var err error
	s.unchanged(func() { got, err = parsers[c.Script.Name](s.send(c)) })
	if err == nil || kind != nil && !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		s.Fatalf("%+v, %v, want the error %v with %q", got, err, kind, text)
	}
	return err
}

// unchanged checks that what is done changes no key.
func (s *server) unchanged(do func()) {
	s.Helper()
	before := s.data.Dump()
	do()
	if after := s.data.Dump(); after != before {
		s.Errorf("it changed\n%s\nto\n%s", before, after)
	}
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

// checkToken checks the counter of x; it must not be there if want is "".
func (s *server) checkToken(want string) {
	s.Helper()
	if got, err := s.data.Get(wire.TokenKey("x")); got != want || (err == nil) != (want != "") {
		s.Errorf("the token is %q, %v, want %q", got, err, want)
	}
}

func (s *server) put(key, value string) {
	s.Helper()
	if err := s.data.Set(key, value); err != nil {
		s.Fatal(err)
	}
}

// putFor puts a value that expires after d, or never if d is 0.
func (s *server) putFor(key, value string, d time.Duration) {
	s.Helper()
	if s.put(key, value); d > 0 {
		s.data.SetTTL(key, d)
	}
}

// channel hears one channel until the end of the test.
type channel struct {
	*server
	name     string
	messages <-chan miniredis.PubsubMessage
}

// listen hears every release of a lock.
func (s *server) listen(name string) channel { return s.listenTo(wire.UnlockChannel(name)) }

func (s *server) listenTo(name string) channel {
	sub := s.data.NewSubscriber()
	sub.Subscribe(name)
	return channel{s, name, pump(s, sub, sub.Messages())}
}

// check checks what was published since the last check.
func (c channel) check(messages ...string) {
	c.Helper()
	c.data.Publish(c.name, "end") // it comes after all earlier messages
	for _, want := range append(messages, "end") {
		if m := <-c.messages; m.Message != want || m.Channel != c.name {
			c.Fatalf("told %q on %q, want %q", m.Message, m.Channel, want)
		}
	}
}

// unlocked is the message of a release.
const unlocked = "00"
