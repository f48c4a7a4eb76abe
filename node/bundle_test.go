package node_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// bundles is a fake standalone server. It answers scripts with the replies in order, then with 1.
type bundles struct {
	*fake
	replies []string
	asked   []string // the lock of each script, in order; brackets mark a bundle
}

func newBundles(id int, replies ...string) *bundles {
	b := &bundles{replies: replies}
	b.fake = standalone(id, func(args []string) string {
		if !strings.HasPrefix(args[0], "eval") {
			return "-NOPERM x\r\n"
		}
		keys, _ := strconv.Atoi(args[2])
		said, locks, reply := args[3], []string(nil), ":1\r\n"
		if args[1] == wire.Bundle.SHA() || args[1] == wire.Bundle.Source {
			for _, of := range wire.Unbundled(args[3:3+keys], args[3+keys:]) {
				locks = append(locks, of[0][0])
			}
			said = fmt.Sprint(locks)
			reply = fmt.Sprintf("*%d\r\n%s", len(locks), strings.Repeat(":1\r\n", len(locks)))
		}
		if args[0] == "eval" {
			said = "+" + said
		}
		b.asked = append(b.asked, said)
		if len(b.replies) > 0 {
			reply, b.replies = b.replies[0], b.replies[1:]
		}
		return reply
	})
	return b
}

// sent returns the scripts since the previous sent.
func (b *bundles) sent() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := strings.Join(b.asked, " ")
	b.asked = nil
	return said
}

func acquires(n int) (calls []wire.Call) {
	for i := range n {
		calls = append(calls, wire.Acquire(strconv.Itoa(i), alice, ttl, 1, uint64(1000+i)))
	}
	return calls
}

// A server that may distribute keys over several servers gets no bundles.
func TestOnlyAServerThatStandsAloneGetsBundles(t *testing.T) {
	for _, tt := range []struct {
		id       int    // of CLIENT ID
		old, new string // in the reply to HELLO, which has the ID 7; no HELLO if new is empty
		want     string
	}{
		{7, ":7", ":7", "[0 1 2]"}, {8, ":7", ":7", "0 1 2"}, {0, ":7", ":7", "0 1 2"}, {0, ":7", ":0", "0 1 2"},
		{7, "$10\r\nstandalone", "$7\r\ncluster", "0 1 2"}, {7, "", "", "0 1 2"},
	} {
		b := newBundles(tt.id)
		answer := b.answer
		b.answer = func(args []string) string {
			if args[0] == "hello" && tt.new == "" {
				return unknown
			}
			return strings.Replace(answer(args), tt.old, tt.new, 1)
		}
		n := dial(t, "redis://h", node.WithDialer(b.dial))
		for _, r := range testkit.Send(t.Context(), n, acquires(3)...) {
			testkit.OK(t, r.Err, "%+v", tt)
		}
		testkit.Equal(t, b.sent(), tt.want, "%+v: sent", tt)
	}
}

// The last 3 to 256 calls of a pipeline are a bundle, and nothing is sent behind it.
func TestTheLastCallsAreABundle(t *testing.T) {
	for _, tt := range []struct {
		calls, other, alone int
		unknown             int // calls whose scripts the server does not know
		resent              string
	}{{2, -1, 2, 0, ""}, {3, -1, 0, 0, ""}, {256, -1, 0, 0, ""}, {300, -1, 44, 0, ""}, {7, 3, 4, 0, ""}, {7, 4, 7, 0, ""}, {7, 6, 7, 3, " +0 1 2"}, {7, 6, 7, 4, " +0 [1 2 3]"}} {
		b := newBundles(7, slices.Repeat([]string{"-NOSCRIPT x\r\n"}, tt.unknown)...)
		calls, want := acquires(tt.calls), []string(nil)
		for i := range calls {
			want = append(want, strconv.Itoa(i))
			if i == tt.other {
				calls[i] = count(want[i]) // a script that is in no bundle
			}
		}
		if bundle := want[tt.alone:]; len(bundle) > 0 {
			want = append(slices.Clone(want[:tt.alone]), fmt.Sprint(bundle))
		}
		n := dial(t, "redis://h", node.WithDialer(b.dial))
		testkit.Send(t.Context(), n, calls...)
		testkit.Equal(t, b.sent(), strings.Join(want, " ")+tt.resent, "%+v: sent", tt)
	}
}

// Each call has its own reply. A bundle that is refused before it runs is resent. Any other error
// is returned for every call.
func TestRepliesToABundle(t *testing.T) {
	const garbled, lost = "cannot be read", "EOF"
	const none, whole, alone = "", "[0 1 2]", "0 1 2"
	all := func(said string) [3]string { return [3]string{said, said, said} }
	for name, tt := range map[string]struct {
		replies []string // to the first scripts
		errs    [3]string
		sent    string
		next    string // scripts sent when the calls are repeated
		ends    bool   // the connection ends
	}{
		"replies":                     {[]string{"*3\r\n:1\r\n*3\r\n:0\r\n$-1\r\n*1\r\n:7\r\n:1\r\n"}, all(none), whole, whole, false},
		"an error among them":         {[]string{"*3\r\n:1\r\n-WRONGTYPE x\r\n:1\r\n"}, [3]string{1: "WRONGTYPE"}, whole, whole, false},
		"NOSCRIPT among them":         {[]string{"*3\r\n:1\r\n-NOSCRIPT x\r\n:1\r\n"}, [3]string{1: "NOSCRIPT"}, whole, whole, false},
		"a read-only server":          {[]string{"*3\r\n:1\r\n-READONLY x\r\n:1\r\n"}, [3]string{1: "READONLY"}, whole, whole, true},
		"a server that loads":         {[]string{"-LOADING x\r\n"}, all("LOADING"), whole, whole, false},
		"an unknown script":           {[]string{"-NOSCRIPT x\r\n"}, all(none), whole + " +" + whole, whole, false},
		"a script that stays unknown": {[]string{"-NOSCRIPT x\r\n", "-NOSCRIPT x\r\n"}, all(none), whole + " +" + whole + " " + alone, alone, false},
		"a compile error":             {[]string{"-NOSCRIPT x\r\n", "-ERR Error compiling script x\r\n"}, all(none), whole + " +" + whole + " " + alone, alone, false},
		"an error of a proxy":         {[]string{"-ERR keys must be in one slot\r\n"}, all("one slot"), whole, alone, false},
		"an undetected cluster":       {[]string{"-CROSSSLOT x\r\n"}, all(none), whole + " " + alone, alone, false},
		"a forbidden key":             {[]string{"-NOPERM x\r\n", ":1\r\n", "-NOPERM x\r\n"}, [3]string{1: "NOPERM"}, whole + " " + alone, alone, false},
		"unknown scripts, too":        {[]string{"-NOPERM x\r\n", "-NOSCRIPT x\r\n", "-NOSCRIPT x\r\n", "-NOSCRIPT x\r\n"}, all(none), whole + " " + alone + " +" + alone, alone, false},
		"the end of the connection":   {[]string{"*3\r\n:1\r\n" + hangUp}, [3]string{"", lost, lost}, whole, whole, true},
		"too few replies":             {[]string{"*2\r\n:1\r\n:1\r\n"}, all(garbled), whole, whole, true},
		"none":                        {[]string{"*-1\r\n"}, all(garbled), whole, whole, true},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			b := newBundles(7, tt.replies...)
			n := dial(t, "redis://h", node.WithDialer(b.dial))
			for i, r := range testkit.Send(t.Context(), n, acquires(3)...) {
				if want := tt.errs[i]; (r.Err != nil) != (want != "") || r.Err != nil && !strings.Contains(r.Err.Error(), want) {
					t.Errorf("reply %d: error %v, want %q", i, r.Err, want)
				}
			}
			settle(time.Second)
			b.mu.Lock()
			b.replies = nil
			b.mu.Unlock()
			sent := b.sent()
			testkit.Send(t.Context(), n, acquires(3)...)
			if next := b.sent(); sent != tt.sent || next != tt.next || (b.used > 1) != tt.ends {
				t.Errorf("sent %s, and then %s, over %d connections, want %s and %s", sent, next, b.used, tt.sent, tt.next)
			}
		})
	}
}

// A server, or a proxy, that refuses a bundle gets no more, on any lane or connection. A server
// with another run ID gets bundles again.
func TestARefusalOfBundlesIsRemembered(t *testing.T) {
	for name, runID := range map[string]func(server string) string{
		"a known run ID":    func(server string) string { return server },
		"an unknown run ID": func(string) string { return "" },
	} {
		testkit.Run(t, name, func(t *testing.T) {
			b, server := newBundles(7), "one"
			answer := b.answer
			b.answer = func(args []string) string {
				if args[0] == "info" {
					said := "redis_mode:standalone\r\nrun_id:" + runID(server) + "\r\n"
					return fmt.Sprintf("$%d\r\n%s\r\n", len(said), said)
				}
				reply := answer(args)
				if strings.HasPrefix(reply, "*") && strings.HasPrefix(args[0], "eval") {
					return "-ERR this proxy allows few keys\r\n"
				}
				return reply
			}
			n := dial(t, "redis://h", node.WithDialer(b.dial))
			send := func(lane client.Lane) string {
				answered := make(chan struct{})
				transport.Of(n).Do(t.Context(), lane, time.Second, acquires(3), func([]wire.Reply) { close(answered) })
				<-answered
				return b.sent()
			}
			for _, lane := range []client.Lane{client.Foreground, client.Background} { // both are connected before the refusal
				transport.Of(n).Do(t.Context(), lane, time.Second, acquires(1), func([]wire.Reply) {})
				settle(time.Second)
			}
			b.sent()
			const whole, alone = "[0 1 2]", "0 1 2"
			if first, other := send(client.Foreground), send(client.Background); first != whole || other != alone {
				t.Errorf("sent %s, and %s in the other lane", first, other)
			}
			b.cut()
			settle(time.Second)
			testkit.Equal(t, send(client.Foreground), alone, "sent over the next connection")
			b.mu.Lock()
			server = "two"
			b.mu.Unlock()
			b.cut()
			settle(time.Second)
			want := whole
			if runID(server) == "" {
				want = alone
			}
			testkit.Equal(t, send(client.Foreground), want, "sent to the next server")
		})
	}
}

// Calls have the same effects and replies in a bundle as alone, errors included.
func TestABundleEqualsSingleCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 2)
		for _, s := range servers {
			s.Redis.ClockTTL(false)
			s.Redis.SetTime(time.UnixMilli(1_000_000))
			_ = s.Redis.Set("wrong", "no hash")
		}
		for _, n := range nodes { // which then know for a second that the server is up
			testkit.Send(t.Context(), n, wire.Ready("x", time.Hour))
		}
		time.Sleep(time.Second)
		e := wire.Entry{Waiter: "c~1:8", Ticket: 5, TTL: time.Minute, Callers: 1, Successor: wire.Successor{Attempt: 2, TTL: ttl, Secret: "s"}}
		calls := []wire.Call{
			wire.Acquire("a", first, ttl, 1, 1000), wire.Renew("a", first, ttl), wire.Acquire("wrong", first, ttl, 1, 1000),
			wire.AcquireInTurn("a", "c~1:8.1", ttl, 1000, e), wire.Raise("a", first, ttl, 1000, 2000), wire.Release("wrong", first, 1),
			wire.Acquire("{b}", first, ttl, 1, 1000).Guarded(time.Nanosecond), wire.Acquire("c", first, ttl, 1, 1000).Shared().Among(0, 1),
			wire.Acquire("d", first, ttl, 1, 1000).Shared().Guarded(time.Hour), wire.Release("a", first, 1), wire.ReleaseAndLeave("{b}", first, "c~1:7", true),
		}
		together := testkit.Send(t.Context(), nodes[0], calls...)
		for i, c := range calls {
			alone := testkit.Send(t.Context(), nodes[1], c)[0]
			if got, want := result(together[i]), result(alone); got != want {
				t.Errorf("call %d, %s: %s in a bundle, %s alone", i, c.Script.Name, got, want)
			}
		}
		if a, b := unnamed(servers[0].Redis.Dump()), unnamed(servers[1].Redis.Dump()); a != b {
			t.Errorf("a bundle left\n%s\nand the same calls one by one\n%s", a, b)
		}
		if ran := servers[0].Ran("bundle"); ran != 0 || servers[0].Ran() != len(calls)+1 {
			t.Errorf("%d bundles and %d scripts ran", ran, servers[0].Ran())
		}
		// Lua's own errors, and all errors before Redis 7, have this prefix.
		r := testkit.Send(t.Context(), nodes[0], wire.NewCall(wire.Bundle, []string{"e", "q", "w", "token"}, "a44", alice, 1000, "no hint", "try"))[0]
		if one, _ := r.Value.([]any); len(one) != 1 || !strings.Contains(fmt.Sprintf("%T %v", one[0], one[0]), "serverError ERR Error running script (in a bundle): ") {
			t.Errorf("an error in Lua: %v, %v", r.Value, r.Err)
		}
	})
}

// result is a reply without the place in Lua where an error was raised.
func result(r wire.Reply) string {
	e, ok := errors.AsType[*quorumlock.NodeError](r.Err)
	if !ok {
		return unnamed(fmt.Sprint(r.Boxed().Value))
	}
	_, code, _ := strings.Cut(": "+e.Err.Error(), ">: ")
	return code
}

// unnamed hides the name of a server.
func unnamed(s string) string { return regexp.MustCompile("[0-9a-f]{12,40}").ReplaceAllString(s, "id") }

// A call of a refused bundle must not run after a later call of its waiter. A far node may have
// received that later call already.
func TestOvertakenCallsOfABundleAreNotResent(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		s.Delay(10 * time.Millisecond)
		n, a := dial(t, "redis://h", node.WithDialer(s.DialContext)), newAsked()
		release := wire.Release("a", first, 1)
		a.asks(n, "so that the server knows the script", release)
		settle(time.Second)
		a.asks(n, "bundle", append(attempt("a", "b"), wire.Acquire("c", bob, ttl, 1, 1))...)
		settle(5 * time.Millisecond) // a quarter of a round trip
		a.asks(n, "release", release)
		settle(time.Second)
		if err := a.err("bundle"); !wire.IsUnsent(err) || a.err("release") != nil {
			t.Errorf("the bundle: %v; the release: %v", err, a.err("release"))
		}
		if s.Redis.Exists("a") || !s.Redis.Exists("b") || !s.Redis.Exists("c") {
			t.Errorf("a exists: %v, want b and c", s.Redis.Exists("a"))
		}
	})
}
