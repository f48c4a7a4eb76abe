package node_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// tap is a dialer to a server that records the data written to each of its connections.
type tap struct {
	s      *embedded.Server
	mu     sync.Mutex
	writes []string // of scripts
	dials  int
	fail   int // so many writes of scripts fail before any byte is sent
}

func (p *tap) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := p.s.DialContext(ctx, network, addr)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dials++
	return tapped{conn, p}, err
}

type tapped struct {
	net.Conn
	tap *tap
}

func (c tapped) Write(b []byte) (int, error) {
	c.tap.mu.Lock()
	fails := false
	if strings.Contains(string(b), "eval") {
		if fails = c.tap.fail > 0; fails {
			c.tap.fail--
		} else {
			c.tap.writes = append(c.tap.writes, string(b))
		}
	}
	c.tap.mu.Unlock()
	if fails {
		_ = c.Conn.Close()
		return 0, io.ErrClosedPipe
	}
	return c.Conn.Write(b)
}

// warm makes the node connect, and its server know the script. From here on, a round trip is 20 ms.
func warm(n *node.Node, p *tap) {
	for range 2 {
		newAsked().do(n, "warm", time.Second)
		synctest.Wait()
	}
	p.s.Delay(10 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes, p.dials = nil, 0
}

// inTap runs a test with a node whose connections are recorded, and with asked calls.
func inTap(t *testing.T, test func(t *testing.T, p *tap, n *node.Node, a *asked)) {
	t.Helper()
	inTapOf(t, func(t *testing.T, p *tap) *node.Node { return dial(t, "redis://h", node.WithDialer(p.dial)) }, test)
}

// ofOne is a node over a client with a single connection.
func ofOne(t *testing.T, p *tap) *node.Node {
	return over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: p.dial, PoolSize: 1}))
}

func inTapOf(t *testing.T, connect func(t *testing.T, p *tap) *node.Node, test func(t *testing.T, p *tap, n *node.Node, a *asked)) {
	t.Helper()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		p := &tap{s: s}
		n := connect(t, p)
		warm(n, p)
		test(t, p, n, newAsked())
	})
}

func (p *tap) sent(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	times := 0
	for _, w := range p.writes {
		times += strings.Count(w, "\r\n"+key+"\r\n")
	}
	return times
}

// A lone call is sent at once. Calls until its answer go together.
func TestCallsOfEverybodyShareAPipeline(t *testing.T) {
	t.Parallel()
	inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
		a.do(n, "alone", time.Second)
		synctest.Wait()
		want := []string{"alone"}
		for i := range 100 {
			want = append(want, fmt.Sprint("key-", i))
			a.do(n, want[i+1], time.Second)
		}
		settle(40 * time.Millisecond)
		a.check(t, "alone", 20*time.Millisecond)
		for _, key := range want[1:] {
			a.check(t, key, 40*time.Millisecond)
		}
		if !slices.Equal(a.order, want) {
			t.Errorf("answered in the order %q", a.order)
		}
		if len(p.writes) != 2 || p.dials != 0 {
			t.Errorf("%d writes and %d new connections, want 2 and none", len(p.writes), p.dials)
		}
	})
}

func TestCallsOverLanes(t *testing.T) {
	own := func(t *testing.T, s *embedded.Server) *node.Node {
		n := over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext, ContextTimeoutEnabled: true}))
		testkit.Send(t.Context(), n, count("warm"))
		for range 2 { // idle connections
			c := n.Client().(*redis.Client).Conn()
			defer c.Close() //nolint:errcheck // the connection returns to the pool
			testkit.OK(t, c.Ping(t.Context()).Err(), "Ping")
		}
		return n
	}
	entry := wire.Entry{Waiter: "c:1", Ticket: 77, TTL: time.Second, Callers: 1}
	sameWaiter := func(key string) wire.Call { return wire.AcquireQueued(key, "c:1.1", ttl, 5, &entry, 0) }
	sameQueue := func(key string) wire.Call {
		e := entry
		e.Waiter, e.Queue = quorumlock.Owner("c:"+strconv.Itoa(int(key[0]))), &entry
		return wire.AcquireQueued("lock", e.Waiter+".1", ttl, 5, &e, 0)
	}
	const hanging = "lose, a asks 500ms, wait 2s, resume, a is lost at 500ms, b asks 1s, b is answered at 2s, wait 1h, c asks 1s, c is answered at 1h2s"
	stories(t, map[string]story{
		// Those sent on a broken connection have an unknown outcome, and are not resent. Others move on.
		"sent when the connection breaks": {steps: "connected, lose a reply, sent asks 1s, wait 0s, queued asks 1s, wait 500ms, sent is lost at 10ms, queued is answered, " +
			"sent ran 1, sent was sent 1, queued ran 1, queued was sent 1"},
		"sent with the source": {steps: "lose a reply, a asks 1s, wait 1s, a is lost, a ran 1"},
		// A connection may be broken before anything was sent on it. The calls move on, once.
		"one broken connection":  {steps: "connected, break 1, a asks 1s, wait 500ms, a is answered, a was sent 1"},
		"two broken connections": {steps: "connected, break 2, a asks 1s, wait 500ms, a is unsent, a was sent 0"},
		// A node that does not answer costs the calls sent to it. Calls queued behind them are not sent
		// after their own deadline; the others go as soon as the connection is abandoned.
		"a frozen node": {steps: "connected, stall, flight asks 100ms, wait 0s, brief asks 30ms, patient asks 1s, hasty asks 20ms, wait 200ms, flight is lost at 100ms, " +
			"brief is unsent at 30ms, hasty is unsent at 20ms, resume, wait 1s, patient is answered, brief was sent 0, flight was sent 1, patient was sent 1"},
		// A node that answers is not silent, however many calls are before one.
		"a busy node": {steps: "connected, serve 400ms, a asks 1s, wait 0s, b asks 1s, c asks 1s, d asks 1s, e asks 1s, wait 0s, f asks 1s, wait 5s, " +
			"c is answered, e is answered, f is answered, f was sent 1"},
		"a busy node that hangs":   {steps: "connected, serve 400ms, a asks 1s, b asks 1s, c asks 1s, wait 500ms, stall, d asks 1s, wait 3s, a is answered, c is lost, d is unsent, resume"},
		"Close":                    {steps: "connected, stall, flight asks 1m, wait 0s, queued asks 1m, close, late asks 1m, flight is lost at 0s, queued is closed at 0s, late is closed at 0s, resume"},
		"a refused connection":     {steps: "kill, a asks 1s, b asks 1s, c asks 1s, a is refused at 0s, b is refused at 0s, c is refused at 0s"},
		"a slow connection":        {steps: "stall, a asks 3s, wait 2.5s, resume, a is answered at 2.5s"}, // and it may take one
		"a handshake, no deadline": {node: overWithoutDeadlines, steps: strings.Replace(hanging, "lost", "unsent", 1)},
		"no deadline":              {node: overWithoutDeadlines, steps: "before asks 1s, wait 0s, " + hanging},
		// Over a client of the caller's, the calls of one waiter go one after the other. A call that does
		// not get its turn in time is answered at its deadline, and is never sent.
		"of one waiter": {own, sameWaiter, "stall, sent asks 1s, brief asks 300ms, long asks 1s, patient asks 3s, wait 2s, resume, wait 1s, sent is lost at 1s, " +
			"brief is unsent at 300ms, long is unsent at 1s, patient is answered at 2s, brief holds 0, long holds 0, patient holds 1"},
		// An attempt waits for the one before it in its local queue, but so briefly that a long
		// round trip still fits.
		"of one local queue": {own, sameQueue, "connected, delay 10ms, sent asks 1s, queued asks 1s, wait 1s, sent is answered at 40ms, queued is answered at 60ms"},
		"of one local queue, far away": {own, sameQueue, "first asks 1s, wait 1s, delay 450ms, sent asks 1s, queued asks 1s, wait 1s, " +
			"sent is answered at 1.9s, queued is answered at 1.9625s"},
	})
}

// The memory that attempts cost at a frozen node is bounded. Recalled calls leave their place in a
// full queue to others. Calls that are no attempts are never refused.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		what string
		key  string
		most int
	}{
		{"calls", "k", 8192},
		{"bytes", strings.Repeat("k", 64<<10), 15},
	} {
		inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
			p.s.Stall()
			for _, key := range []string{"flight", "first"} { // the first in the queue is not recalled
				a.do(n, key, time.Minute)
				synctest.Wait()
			}
			a.asks(n, "attempt", attempt("a")...)
			a.asks(n, "release", wire.Release("a", first, 1).At(0))
			testkit.Is(t, a.err("attempt"), wire.ErrRecalled, "the attempt")
			waits, refused := 0, 0
			for i := range tt.most + 10 {
				answered := false
				waiter := quorumlock.Owner(fmt.Sprint("c~1:", 100+i))
				call := wire.AcquireInTurn(fmt.Sprint(i, tt.key), waiter+".1", ttl, 1, wire.Entry{Waiter: waiter, Ticket: 1, TTL: time.Second}).At(0)
				transport.Of(n).Do(t.Context(), client.Foreground, time.Minute, []wire.Call{call}, func(rs []wire.Reply) {
					answered = true
					if !wire.IsUnsent(rs[0].Err) && refused > 0 {
						return // by Close
					}
					refused++
				})
				if !answered {
					waits++
				}
			}
			a.do(n, "no attempt", time.Minute)
			transport.Of(n).Do(t.Context(), client.Background, time.Minute, []wire.Call{wire.Renew(tt.key, first, ttl)}, a.answer("renewal"))
			for _, key := range []string{"no attempt", "renewal"} {
				if a.answers[key] > 0 {
					t.Errorf("%s is refused: %v", key, a.errs[key])
				}
			}
			if waits != tt.most || refused != 10 {
				t.Errorf("%s: %d calls wait and %d are refused at once, want %d and 10", tt.what, waits, refused, tt.most)
			}
			p.s.Resume()
			settle(time.Minute / 2)
			a.do(n, "after", time.Second)
			settle(time.Second)
			a.answered(t, "after")
		})
	}
}

// A script that the node does not know is sent again with its source, once for all of the pipeline,
// and keeps its order.
func TestAPipelineOfUnknownScriptsIsSentTheSourceOnce(t *testing.T) {
	t.Parallel()
	inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
		a.do(n, "first", time.Second)
		synctest.Wait()
		want := []string{"first"}
		for i := range 20 {
			want = append(want, fmt.Sprint("key-", i))
			a.do(n, want[i+1], time.Second)
		}
		settle(15 * time.Millisecond)
		p.s.FlushScripts()
		settle(time.Second)
		a.answered(t, want...)
		if !slices.Equal(a.order, want) {
			t.Errorf("answered in the order %q", a.order)
		}
		for _, key := range want {
			got, _ := p.s.Redis.Get(key)
			testkit.Equal(t, got, "1", "runs of %s", key)
		}
		sources := strings.Count(strings.Join(p.writes, ""), "return redis.call('incr'")
		testkit.Equal(t, sources, 1, "times that the source was sent")
	})
}

// A server, or a proxy, that does not reply to INFO costs two connections, and no more.
func TestServerThatDoesNotReplyToInfoIsAskedForLocks(t *testing.T) {
	for name, id := range map[string]int{"nor has CLIENT ID": 0, "but has CLIENT ID": 7} {
		testkit.Run(t, name, func(t *testing.T) {
			f := standalone(id, func(args []string) string {
				if args[0] == "info" {
					return ""
				}
				return ":1\r\n"
			})
			n := dial(t, "redis://h", node.WithDialer(f.dial))
			for range 2 {
				testkit.Send(t.Context(), n, count("a")) // no answer in time
			}
			testkit.OK(t, testkit.Send(t.Context(), n, count("a"))[0].Err, "the third call")
		})
	}
}

// A caller's own client also leaves a demoted master. It recognizes the error only in the form of
// Redis 7.
func TestACallersOwnClientLeavesAServerThatIsReadOnly(t *testing.T) {
	for name, answer := range map[string]string{
		"Redis 7": "-READONLY x\r\n", "Redis 6": "-ERR Error running script (call to f_5b3f): @user_script:20: @user_script: 20: -READONLY x\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var promoted atomic.Bool
			f := standalone(7, func(args []string) string {
				switch {
				case args[0] == "info":
					return "-NOPERM x\r\n"
				case promoted.Load():
					return ":1\r\n"
				case args[0] == "evalsha":
					return answer
				}
				return "-READONLY x\r\n"
			})
			n := over(t, redis.NewClient(&redis.Options{Addr: "h:1", Dialer: f.dial, Protocol: 2, MaxRetries: -1}))
			if err := testkit.Send(t.Context(), n, count("a"))[0].Err; err == nil || !strings.HasSuffix(err.Error(), ": READONLY x") {
				t.Errorf("the replica: %v", err)
			}
			promoted.Store(true)
			before := f.usedConns()
			testkit.OK(t, testkit.Send(t.Context(), n, count("a"))[0].Err, "the promoted server")
			testkit.Equal(t, f.usedConns(), before+1, "connections, with one that is not the replica's")
		})
	}
}

// The answer to one script of a pipeline may show that the server must not be asked. An unknown
// script of the pipeline has not run, and is not sent to that server again.
func TestAScriptThatIsUnknownToAReadOnlyServerIsNotSent(t *testing.T) {
	t.Parallel()
	inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
		const source = `return redis.error_reply("READONLY You can't write against a read only replica.")`
		writes := wire.NewCall(&wire.Script{Source: source}, []string{"a"})
		p.s.FlushScripts()
		testkit.Must(t, n.Client().ScriptLoad(t.Context(), source).Err(), "ScriptLoad")
		for name, calls := range map[string][]wire.Call{"before it": {writes, count("a")}, "behind it": {count("a"), writes}} {
			for i, r := range testkit.Send(t.Context(), n, calls...) {
				if r.Err == nil || wire.IsUnsent(r.Err) != (calls[i].Script != writes.Script) {
					t.Errorf("READONLY %s: reply %d: %v", name, i, r.Err)
				}
			}
		}
		if got, _ := p.s.Redis.Get("a"); got != "" {
			t.Errorf("the unknown script ran %s times", got)
		}
		settle(time.Second) // the pause after two refusals
		a.do(n, "b", time.Second)
		settle(500 * time.Millisecond)
		a.answered(t, "b")
	})
}

// Renewals have a way of their own: a full one does not delay a lock.
func TestBackgroundCallsDoNotDelayForegroundOnes(t *testing.T) {
	t.Parallel()
	inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
		many := make([]wire.Call, 500)
		for i := range many {
			many[i] = count("many")
		}
		done := false
		transport.Of(n).Do(t.Context(), client.Background, time.Second, many, func([]wire.Reply) { done = true })
		synctest.Wait()
		a.do(n, "a", time.Second)
		settle(30 * time.Millisecond)
		a.check(t, "a", 20*time.Millisecond)
		settle(time.Second)
		if !done {
			t.Error("the others were not answered")
		}
	})
}

// A pending release waits for its answer for longer than an attempt may wait behind it.
func TestAReleaseWithoutAnAnswerDelaysNoForegroundCall(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		p, a := &tap{s: s}, newAsked()
		n := dial(t, "redis://h", node.WithDialer(p.dial))
		a.do(n, "first", time.Second) // the other lane has no connection yet
		settle(time.Millisecond)
		s.Lose()
		transport.Of(n).Do(t.Context(), client.Releases, time.Second, []wire.Call{count("released")}, a.answer("released"))
		settle(time.Millisecond)
		s.Resume()
		a.do(n, "a", 100*time.Millisecond)
		settle(2 * time.Second)
		a.answered(t, "first", "a")
	})
}

const first quorumlock.Owner = "c~1:7.1" // the first attempt of c~1:7

func attempt(names ...string) (calls []wire.Call) {
	for i, name := range names {
		calls = append(calls, wire.AcquireInTurn(name, first, ttl, 1, wire.Entry{Waiter: "c~1:7", Ticket: 1, TTL: time.Second}).At(i))
	}
	return calls
}

// Attempts go behind the other calls, but for one whose waiter has sent more.
func TestAttemptsGoLast(t *testing.T) {
	t.Parallel()
	inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
		a.do(n, "flight", time.Second)
		synctest.Wait()
		own := wire.AcquireInTurn("b", "c~1:8.1", ttl, 1, wire.Entry{Waiter: "c~1:8", Ticket: 2, TTL: time.Second}).At(0)
		a.asks(n, "attempt", attempt("a")...)
		a.asks(n, "its own", own)
		a.do(n, "count", time.Second)
		a.asks(n, "renewal of its own", wire.Renew("b", "c~1:8.1", ttl).At(0))
		settle(time.Second)
		if want := []string{"flight", "count", "its own", "renewal of its own", "attempt"}; !slices.Equal(a.order, want) {
			t.Errorf("answered in the order %q, want %q", a.order, want)
		}
	})
}

// The time of an answer, such as that of a blocking Observer, is not silence of the node. An answer
// that blocks forever does not block the other callers forever.
func TestAnAnswerThatTakesLongCostsNoOther(t *testing.T) {
	t.Parallel()
	for takes, how := range map[time.Duration]string{7 * time.Second: "answered", time.Hour: "lost"} {
		inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
			transport.Of(n).Do(t.Context(), client.Foreground, time.Second, []wire.Call{count("a")}, func([]wire.Reply) { time.Sleep(takes) })
			a.do(n, "b", time.Second)
			settle(10 * time.Second)
			a.is(t, "b beside an answer of "+takes.String(), "b", how, false, 0)
			settle(time.Hour)
		})
	}
}

// A queued first attempt is recalled only by a call that releases all of it.
func TestAnUnsentAttemptIsRecalled(t *testing.T) {
	t.Parallel()
	release := func(name string) wire.Call { return wire.Release(name, first, 1).At(0) }
	for name, tt := range map[string]struct {
		asks [][]wire.Call
		want int // tasks that are recalled
	}{
		"a release":                  {[][]wire.Call{attempt("a"), {release("a")}}, 2},
		"a release that leaves, too": {[][]wire.Call{attempt("a"), {wire.ReleaseAndLeave("a", first, "c~1:7", true).At(0)}}, 2},
		"a waiter that leaves":       {[][]wire.Call{attempt("a"), {wire.Leave("a", "c~1:7", true).Through(1, 0)}}, 2},
		"of two locks":               {[][]wire.Call{attempt("a", "b"), {release("a"), release("b")}}, 2},
		"of a semaphore":             {[][]wire.Call{{attempt("a")[0].OfSemaphore(3, 0)}, {release("a").OfSemaphore(3, 0)}}, 2},
		"of one of two locks":        {[][]wire.Call{attempt("a", "b"), {release("a")}}, 0},
		"twice of one of two locks":  {[][]wire.Call{attempt("a", "b"), {release("a"), release("a")}}, 0},
		"of another lock":            {[][]wire.Call{attempt("a"), {release("b")}}, 0},
		"and asks for it again":      {[][]wire.Call{attempt("a"), append(attempt("a"), release("a"))}, 0},
		"a yield, which queues":      {[][]wire.Call{attempt("a"), {wire.Yield("a", first, wire.Entry{Waiter: "c~1:7", TTL: time.Second}).At(0)}}, 0},
		"one entry of two":           {[][]wire.Call{attempt("a"), {wire.Release("a", first, 2).At(0)}}, 0},
		"a renewal":                  {[][]wire.Call{attempt("a"), {wire.Renew("a", first, ttl).At(0)}}, 0},
		"behind a restore":           {[][]wire.Call{attempt("a"), {wire.Restore("a", first, ttl, 1).At(0)}, {release("a")}}, 0},
		"of a later attempt":         {[][]wire.Call{{wire.Acquire("a", "c~1:7.2", ttl, 1, 1).At(0)}, {wire.Release("a", "c~1:7.2", 1).At(0)}}, 0},
		"of another waiter":          {[][]wire.Call{attempt("a"), {wire.Release("a", "c~1:8.1", 1).At(0)}}, 0},
		"twice":                      {[][]wire.Call{attempt("a"), {release("a")}, {release("a")}}, 2},
	} {
		test := func(t *testing.T, p *tap, n *node.Node, a *asked) {
			a.do(n, "flight", time.Second)
			synctest.Wait()
			a.do(n, "first", time.Second)
			recalled := 0
			for i, calls := range tt.asks {
				a.asks(n, fmt.Sprint(i), calls...)
			}
			synctest.Wait()
			for i := range tt.asks {
				if err := a.err(fmt.Sprint(i)); errors.Is(err, wire.ErrRecalled) && wire.IsUnsent(err) {
					recalled++
				}
			}
			settle(time.Second)
			if sent := strings.Count(strings.Join(p.writes, ""), "c~1:7.1"); recalled != tt.want || sent > 0 != (recalled < len(tt.asks)) && name != "of a later attempt" {
				t.Errorf("%d of %d are recalled, want %d; sent %d times", recalled, len(tt.asks), tt.want, sent)
			}
			for i := range tt.asks {
				if key := fmt.Sprint(i); a.answers[key] != 1 {
					t.Errorf("%s was answered %d times", key, a.answers[key])
				}
			}
		}
		t.Run(name, func(t *testing.T) { inTap(t, test) })
		t.Run(name+", over a client of the caller's", func(t *testing.T) { inTapOf(t, ofOne, test) })
	}
}

// The first in the queue is not recalled: it finds out whether the node answers. Nor is a call that
// may have been sent.
func TestWhatMayHaveBeenSentIsNotRecalled(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"in the pipeline": 0, "the first in the queue": 1, "behind it": 2} {
		inTap(t, func(t *testing.T, p *tap, n *node.Node, a *asked) {
			for i := range before {
				a.do(n, fmt.Sprint("before-", i), time.Second)
				synctest.Wait()
			}
			a.asks(n, "attempt", attempt("a")...)
			synctest.Wait()
			a.asks(n, "release", wire.Release("a", first, 1).At(0))
			settle(time.Second)
			for _, key := range []string{"attempt", "release"} {
				if got, want := errors.Is(a.errs[key], wire.ErrRecalled), before > 1; got != want || a.answers[key] != 1 {
					t.Errorf("%s, the %s: %d answers, %v", name, key, a.answers[key], a.errs[key])
				}
			}
		})
	}
}
