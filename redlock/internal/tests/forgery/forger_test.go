package forgery

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const (
	wakeChannels = "quorumlock_wake:"

	// highToken is near the last token. A store that has seen it refuses all other writers.
	highToken uint64 = 9007199254740000
)

// forger is a third party that may publish and subscribe on the channels, and touches no key. It
// does not know how messages are made: it hears genuine ones, and changes them.
type forger struct {
	t       *testing.T
	servers []*embedded.Server

	mu    sync.Mutex
	heard []told
}

// take returns the messages on a channel since its last call. It takes no time.
func (f *forger) take(channel string) []told {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.heard
	f.heard = nil
	return slices.DeleteFunc(all, func(m told) bool { return m.channel != channel })
}

// tell publishes a message at one server.
func (f *forger) tell(server int, channel, message string) {
	f.servers[server].Redis.Publish(channel, message)
}

// tellAll publishes a message at all servers, and waits until its effects are over.
func (f *forger) tellAll(channel, message string) {
	for i := range f.servers {
		f.tell(i, channel, message)
	}
	synctest.Wait()
}

// channels returns all wake channels with a subscriber.
func (f *forger) channels() []string {
	var all []string
	for _, s := range f.servers {
		all = append(all, s.Redis.PubSubChannels(wakeChannels+"*")...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// channelOf returns the wake channel of the client to which an owner or waiter belongs.
func (f *forger) channelOf(o quorumlock.Owner) string {
	f.t.Helper()
	for _, c := range f.channels() {
		if strings.HasPrefix(string(o), strings.TrimPrefix(c, wakeChannels)+":") {
			return c
		}
	}
	f.t.Fatalf("control: nobody listens for %s, but on %q", o, f.channels())
	return ""
}

// handOver makes one client hand a lock over to another, and returns the messages and the new
// lease. In its first wait, a client may make another attempt once its subscription is established.
// Then it gets no handoff, and the function tries again.
func (f *forger) handOver(from, to *redlock.Client, name string) (genuine, *quorumlock.Lease) {
	f.t.Helper()
	for range 5 {
		testkit.Warm(f.t, to)
		holder := testkit.MustLock(f.t, from.Mutex(name))
		got := testkit.Waiter(f.t, to.Mutex(name))
		g := genuine{name: name, waiter: waiterFor(f.t, from, name)}
		g.channel = f.channelOf(g.waiter)
		f.take("")
		attempts := testkit.Ran(f.servers, "acquire")
		testkit.MustUnlock(f.t, holder)
		lease := <-got
		if lease == nil {
			f.t.FailNow()
		}
		g.token = lease.Token()
		g.messages = f.take(g.channel)
		if testkit.Ran(f.servers, "acquire") == attempts && len(g.messages) == len(f.servers) {
			return g, lease
		}
		testkit.Unlock(f.t, lease)
	}
	f.t.Fatalf("control: %q is not handed over", name)
	return genuine{}, nil
}

// told is a message that a server published on a wake channel.
type told struct {
	server  int
	channel string
	message string
}

// eavesdrop returns a forger that hears all wake channels of the servers until the end of the test.
// It does not listen on Redisson's channel: with a subscriber there, a release hands nothing over.
func eavesdrop(t *testing.T, servers []*embedded.Server) *forger {
	f := &forger{t: t, servers: servers}
	for i, s := range servers {
		sub := s.Redis.NewSubscriber()
		sub.Psubscribe(wakeChannels + "*")
		var pump sync.WaitGroup
		pump.Go(func() {
			for m := range sub.Pmessages() {
				f.mu.Lock()
				f.heard = append(f.heard, told{i, m.Channel, m.Message})
				f.mu.Unlock()
			}
		})
		t.Cleanup(func() {
			sub.Punsubscribe(wakeChannels + "*")
			sub.Close()
			pump.Wait()
		})
	}
	return f
}

// waiterFor returns the last waiter in the queue of a lock.
func waiterFor(t *testing.T, c *redlock.Client, name string) quorumlock.Owner {
	t.Helper()
	in, err := c.Inspect(t.Context(), name)
	if err != nil || len(in.State.Queue) == 0 {
		t.Fatalf("control: nobody is queued for %q: %+v, %v", name, in.State, err)
	}
	return in.State.Queue[len(in.State.Queue)-1].Owner
}

// genuine is the messages with which the servers handed the lock to a waiter.
type genuine struct {
	messages []told
	channel  string
	waiter   quorumlock.Owner
	name     string
	token    uint64
}

// forged returns the message of a server, changed for another waiter, token and lock. numbers, if
// any, replace the small numbers in it, such as an attempt's and a cell's.
func (g genuine) forged(m told, waiter quorumlock.Owner, token uint64, name string, numbers ...int) string {
	form, next := g.blank(m), 0
	if len(numbers) > 0 {
		form = number.ReplaceAllStringFunc(form, func(was string) string {
			if next++; next > len(numbers) {
				return was
			}
			return strconv.Itoa(numbers[next-1])
		})
	}
	return strings.NewReplacer(blanks[0], string(waiter), blanks[1], strconv.FormatUint(token, 10), blanks[2], name).Replace(form)
}

// renumbered returns a server's message with each of its small numbers replaced by n, one at a
// time.
func (g genuine) renumbered(m told, n int) (all []string) {
	form := g.blank(m)
	for _, at := range number.FindAllStringIndex(form, -1) {
		changed := form[:at[0]] + strconv.Itoa(n) + form[at[1]:]
		all = append(all, strings.NewReplacer(blanks[0], string(g.waiter), blanks[1], strconv.FormatUint(g.token, 10), blanks[2], g.name).Replace(changed))
	}
	return all
}

func (g genuine) blank(m told) string {
	old := []string{string(g.waiter), blanks[0], g.name, blanks[2]}
	if g.token > 0 { // it is known
		old = append(old, strconv.FormatUint(g.token, 10), blanks[1])
	}
	return strings.NewReplacer(old...).Replace(m.message)
}

var number = regexp.MustCompile(`\b\d{1,3}\b`)

// blanks stand for the waiter, the token and the lock in a template. No message has them, and they
// are no numbers.
var blanks = []string{"\x01", "\x02", "\x03"}

// none checks that a waiter was not given the lock that somebody holds.
func none(t *testing.T, got <-chan *quorumlock.Lease, holder *quorumlock.Lease) {
	t.Helper()
	synctest.Wait()
	select {
	case lease := <-got:
		if lease != nil && holder.Context().Err() == nil {
			t.Fatalf("a waiter was given %q with token %d while the lease with token %d is valid", lease.Name(), lease.Token(), holder.Token())
		}
		t.Fatalf("a waiter's Lock ended: %v; the holder's lease: %v", lease, holder.Context().Err())
	default:
	}
}

// untouched checks that all servers have the lock of a lease that is valid, right now.
func untouched(t *testing.T, servers []*embedded.Server, lease *quorumlock.Lease) {
	t.Helper()
	synctest.Wait()
	testkit.Held(t, lease)
	if n := testkit.Holds(servers, lease.Name(), lease.Owner()); n < len(servers) {
		t.Errorf("%d of %d servers have %q as its holder's, whose lease is valid for %v", n, len(servers), lease.Name(), time.Until(lease.ValidUntil()))
	}
}

// forging runs a test with a forger on three and on five nodes, with a number of clients.
func forging(t *testing.T, clients int, test func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server)) {
	for _, n := range []int{3, 5} {
		testkit.Run(t, fmt.Sprint(n, " nodes"), func(t *testing.T) {
			c, servers := testkit.Fleet(t, clients, n)
			test(t, eavesdrop(t, servers), c, servers)
		})
	}
}

// mutants returns all that is made of a message by changing one of its fields.
func mutants(message string, others ...string) []string {
	fields := strings.Split(message, " ")
	var all []string
	add := func(fields ...string) { all = append(all, strings.Join(fields, " ")) }
	values := append([]string{
		"", " ", "0", "1", "2", "3", "4", "5", "-1", "007", "1e3", "0x1", "9007199254740000", "9007199254740991", "9223372036854775807", "18446744073709551615",
		"18446744073709551616", "-9223372036854775808", "*", "/", ":", "x", "y", "\x00", "\n", "\xff", "handoff", "turn", "next", "é", strings.Repeat("9", 400),
	}, others...)
	for i := range fields {
		for _, v := range values {
			changed := slices.Clone(fields)
			changed[i] = v
			add(changed...)
		}
		add(slices.Delete(slices.Clone(fields), i, i+1)...)
		add(slices.Insert(slices.Clone(fields), i, fields[i])...)
		add(fields[:i]...)
		add(fields[i:]...)
		if i > 0 {
			swapped := slices.Clone(fields)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			add(swapped...)
		}
	}
	return append(all, message, message+" ", " "+message, message+"\n"+message, strings.ToUpper(message), strings.ReplaceAll(message, " ", "  "))
}
