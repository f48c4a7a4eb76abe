package node_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// asked collects the answers of Do.
type asked struct {
	mu      sync.Mutex
	answers map[string]int
	errs    map[string]error
	order   []string
	at      map[string]time.Duration
	began   time.Time
}

func newAsked() *asked {
	return &asked{answers: make(map[string]int), errs: make(map[string]error), at: make(map[string]time.Duration), began: time.Now()}
}

// do asks the node to count for a key, within a limit.
func (a *asked) do(n *node.Node, key string, limit time.Duration) {
	transport.Of(n).Do(context.Background(), quorum.Foreground, time.Now().Add(limit), []wire.Call{count(key)}, a.answer(key))
}

// answer notes the answer for a key.
func (a *asked) answer(key string) func([]wire.Reply) {
	return func(rs []wire.Reply) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.answers[key]++
		a.errs[key] = rs[0].Err
		a.at[key] = time.Since(a.began)
		a.order = append(a.order, key)
	}
}

// check checks that each key was answered once, after so long, with or without an error.
func (a *asked) check(t *testing.T, key string, at time.Duration, fails bool) {
	t.Helper()
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.answers[key] != 1 || a.at[key] != at || (a.errs[key] != nil) != fails {
		t.Errorf("%s: %d answers, after %v, error %v: want one after %v, error: %v", key, a.answers[key], a.at[key], a.errs[key], at, fails)
	}
	if _, ok := errors.AsType[*quorumlock.NodeError](a.errs[key]); fails && !ok {
		t.Errorf("%s: error %v, want a *NodeError", key, a.errs[key])
	}
}

// settle lets so much time pass, and all that happens then.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// notSent reports whether an error means that the call was not sent.
func notSent(err error) bool {
	_, ok := errors.AsType[interface {
		error
		NotSent()
	}](err)
	return ok
}

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

// inTap runs a test with a node, its connections recorded, and a round trip of 20 ms. It is
// connected, and the server knows the script.
func inTap(t *testing.T, test func(t *testing.T, p *tap, n *node.Node)) {
	t.Helper()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		p := &tap{s: s}
		n := dial(t, "redis://h", node.WithDialer(p.dial))
		for range 2 {
			a := newAsked()
			a.do(n, "warm", time.Second)
			synctest.Wait()
		}
		s.Delay(10 * time.Millisecond)
		p.mu.Lock()
		p.writes, p.dials = nil, 0
		p.mu.Unlock()
		test(t, p, n)
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
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		a := newAsked()
		a.do(n, "alone", time.Second)
		synctest.Wait()
		for i := range 100 {
			a.do(n, fmt.Sprint("key-", i), time.Second)
		}
		settle(40 * time.Millisecond)
		a.check(t, "alone", 20*time.Millisecond, false)
		for i := range 100 {
			a.check(t, fmt.Sprint("key-", i), 40*time.Millisecond, false)
			if got := a.order[i+1]; got != fmt.Sprint("key-", i) {
				t.Errorf("answer %d is that of %s", i+1, got)
			}
		}
		if len(p.writes) != 2 || p.dials != 0 {
			t.Errorf("%d writes and %d new connections, want 2 and none", len(p.writes), p.dials)
		}
	})
}

// Calls sent on a broken connection have an unknown outcome, and are not resent. Unsent ones move
// on.
func TestWhatWasSentOnAConnectionThatBrokeIsNotSentAgain(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		a := newAsked()
		p.s.LoseReplies(1)
		a.do(n, "sent", time.Second)
		synctest.Wait()
		a.do(n, "queued", time.Second)
		settle(500 * time.Millisecond)
		a.check(t, "sent", 10*time.Millisecond, true)
		if notSent(a.errs["sent"]) {
			t.Errorf("error %v says that it was not sent", a.errs["sent"])
		}
		if a.answers["queued"] != 1 || a.errs["queued"] != nil {
			t.Errorf("queued: %d answers, %v", a.answers["queued"], a.errs["queued"])
		}
		for _, key := range []string{"sent", "queued"} {
			if got, _ := p.s.Redis.Get(key); got != "1" || p.sent(key) != 1 {
				t.Errorf("%s was sent %d times, and ran %q times", key, p.sent(key), got)
			}
		}
	})
}

// A connection may turn out to be broken before anything was sent on it. The calls move on, once.
func TestWhatWasNotSentMovesOnToTheNextConnectionOnce(t *testing.T) {
	for _, broken := range []int{1, 2} {
		inTap(t, func(t *testing.T, p *tap, n *node.Node) {
			a := newAsked()
			p.mu.Lock()
			p.fail = broken
			p.mu.Unlock()
			a.do(n, "a", time.Second)
			settle(time.Second / 2)
			want := broken - 1 // errors
			a.mu.Lock()
			defer a.mu.Unlock()
			if err := a.errs["a"]; a.answers["a"] != 1 || (err != nil) != (want == 1) || err != nil && !notSent(err) {
				t.Errorf("%d broken connections: %d answers, %v", broken, a.answers["a"], err)
			}
			if got := p.sent("a"); got != 1-want {
				t.Errorf("%d broken connections: it was sent %d times", broken, got)
			}
		})
	}
}

// A node that does not answer costs the calls sent to it. Calls queued behind them are not sent
// after their own deadline; the others go as soon as the connection is abandoned.
func TestAFrozenNodeCostsItsOwnCallsAndSendsNothingLate(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		p.s.Stall()
		a := newAsked()
		a.do(n, "flight", 100*time.Millisecond)
		synctest.Wait()
		a.do(n, "brief", 30*time.Millisecond)
		a.do(n, "patient", time.Second)
		a.do(n, "hasty", 20*time.Millisecond) // before that of a call that was queued earlier
		settle(200 * time.Millisecond)
		a.check(t, "flight", 100*time.Millisecond, true)
		a.check(t, "brief", 30*time.Millisecond, true)
		a.check(t, "hasty", 20*time.Millisecond, true)
		if !notSent(a.errs["brief"]) || notSent(a.errs["flight"]) {
			t.Errorf("brief: %v, flight: %v: the first was not sent, the second was", a.errs["brief"], a.errs["flight"])
		}
		p.s.Resume()
		settle(time.Second)
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.answers["patient"] != 1 || a.errs["patient"] != nil {
			t.Errorf("patient: %d answers, %v", a.answers["patient"], a.errs["patient"])
		}
		if p.sent("brief") != 0 || p.sent("flight") != 1 || p.sent("patient") != 1 {
			t.Errorf("sent %d, %d and %d times", p.sent("brief"), p.sent("flight"), p.sent("patient"))
		}
	})
}

// The memory that a frozen node costs is bounded.
func TestTheQueueIsBounded(t *testing.T) {
	for _, tt := range []struct {
		what string
		key  string
		most int
	}{
		{"calls", "k", 8192},
		{"bytes", strings.Repeat("k", 64<<10), 63},
	} {
		inTap(t, func(t *testing.T, p *tap, n *node.Node) {
			p.s.Stall()
			waits, refused := 0, 0
			for range tt.most + 10 {
				answered := false
				transport.Of(n).Do(t.Context(), quorum.Foreground, time.Now().Add(time.Minute), []wire.Call{count(tt.key)}, func(rs []wire.Reply) {
					answered = true
					if !notSent(rs[0].Err) && refused > 0 {
						return // by Close
					}
					refused++
				})
				if !answered {
					waits++
				}
			}
			if waits != tt.most || refused != 10 {
				t.Errorf("%s: %d calls wait and %d are refused at once, want %d and 10", tt.what, waits, refused, tt.most)
			}
			p.s.Resume()
			settle(time.Minute / 2)
			a := newAsked()
			a.do(n, "after", time.Second)
			settle(time.Second)
			if a.errs["after"] != nil || a.answers["after"] != 1 {
				t.Errorf("%s: after that: %v", tt.what, a.errs["after"])
			}
		})
	}
}

// A script that the node does not know is sent again with its source, once for all of the pipeline,
// and keeps its order.
func TestAPipelineOfUnknownScriptsIsSentTheSourceOnce(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		a := newAsked()
		a.do(n, "first", time.Second)
		synctest.Wait()
		for i := range 20 {
			a.do(n, fmt.Sprint("key-", i), time.Second)
		}
		settle(15 * time.Millisecond)
		p.s.FlushScripts()
		settle(time.Second)
		if len(a.order) != 21 {
			t.Fatalf("%d answers", len(a.order))
		}
		for i := range 20 {
			key := fmt.Sprint("key-", i)
			if got, _ := p.s.Redis.Get(key); got != "1" || a.errs[key] != nil || a.order[i+1] != key {
				t.Errorf("%s ran %q times: %v; answer %d is that of %s", key, got, a.errs[key], i+1, a.order[i+1])
			}
		}
		if all := strings.Join(p.writes, ""); strings.Count(all, "return redis.call('incr'") != 1 {
			t.Errorf("the source was sent %d times", strings.Count(all, "return redis.call('incr'"))
		}
	})
}

// Close answers all waiting calls, sent or not.
func TestCloseAnswersEveryCall(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		p.s.Stall()
		a := newAsked()
		a.do(n, "flight", time.Minute)
		synctest.Wait()
		a.do(n, "queued", time.Minute)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		a.do(n, "late", time.Minute)
		for _, key := range []string{"flight", "queued", "late"} {
			a.check(t, key, 0, true)
		}
		if !errors.Is(a.errs["queued"], quorumlock.ErrClosed) || !errors.Is(a.errs["late"], quorumlock.ErrClosed) {
			t.Errorf("queued: %v, late: %v, want ErrClosed", a.errs["queued"], a.errs["late"])
		}
		p.s.Resume()
	})
}

// A refused connection fails all waiting calls at once. A slow one fails calls at their deadline.
func TestAConnectionThatIsRefusedFailsWhoeverWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.Kill()
		a := newAsked()
		for i := range 10 {
			a.do(n, fmt.Sprint("key-", i), time.Second)
		}
		for i := range 10 {
			key := fmt.Sprint("key-", i)
			a.check(t, key, 0, true)
			if !notSent(a.errs[key]) || !strings.Contains(a.errs[key].Error(), "refused") {
				t.Errorf("%s: %v", key, a.errs[key])
			}
		}
	})
}

func TestAConnectionThatTakesTooLongFailsNobodyEarly(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.Stall()
		a := newAsked()
		a.do(n, "a", 3*time.Second) // and a connection may take one
		settle(2500 * time.Millisecond)
		s.Resume()
		a.check(t, "a", 2500*time.Millisecond, false)
	})
}

// After a demotion of the server, the node uses a new connection: the server's name may lead to the
// new master by then. Redis 6 and KeyDB wrap the error of a command in a script.
func TestAServerThatIsReadOnlyIsConnectedToAnew(t *testing.T) {
	const readOnly = "READONLY You can't write against a read only replica."
	for name, answer := range map[string]string{
		"Redis 7": readOnly,
		"Redis 6": "ERR Error running script (call to f_5b3f): @user_script:20: @user_script: 20: -" + readOnly,
	} {
		t.Run(name, func(t *testing.T) {
			inTap(t, func(t *testing.T, p *tap, n *node.Node) {
				a := newAsked()
				p.s.Redis.SetError(answer)
				a.do(n, "a", time.Second)
				settle(500 * time.Millisecond)
				p.s.Redis.SetError("")
				a.do(n, "b", time.Second)
				settle(500 * time.Millisecond)
				if err := a.errs["a"]; err == nil || !strings.HasSuffix(err.Error(), ": "+readOnly) || strings.Contains(err.Error(), "user_script") {
					t.Errorf("a: %v", err)
				}
				if a.errs["b"] != nil || a.answers["b"] != 1 {
					t.Errorf("b: %v", a.errs["b"])
				}
				if p.dials == 0 {
					t.Error("the connection to the replica was used again")
				}
			})
		})
	}
}

// A server, or a proxy, that does not reply to INFO costs two connections, and no more.
func TestServerThatDoesNotReplyToInfoIsAskedForLocks(t *testing.T) {
	for name, id := range map[string]int{"nor has CLIENT ID": 0, "but has CLIENT ID": 7} {
		locktest.Run(t, name, func(t *testing.T) {
			f := standalone(id, func(args []string) string {
				if args[0] == "info" {
					return ""
				}
				return ":1\r\n"
			})
			n := dial(t, "redis://h", node.WithDialer(f.dial))
			for range 2 {
				transport.Of(n).Send(t.Context(), count("a")) // no answer in time
			}
			if err := transport.Of(n).Send(t.Context(), count("a"))[0].Err; err != nil {
				t.Errorf("the third call: %v", err)
			}
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
			if err := transport.Of(n).Send(t.Context(), count("a"))[0].Err; err == nil || !strings.HasSuffix(err.Error(), ": READONLY x") {
				t.Errorf("the replica: %v", err)
			}
			promoted.Store(true)
			f.mu.Lock()
			before := f.used
			f.mu.Unlock()
			if err := transport.Of(n).Send(t.Context(), count("a"))[0].Err; err != nil {
				t.Error(err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.used != before+1 {
				t.Errorf("%d connections, and %d before: the one to the replica was used again", f.used, before)
			}
		})
	}
}

// The answer to one script of a pipeline may show that the server must not be asked. An unknown
// script of the pipeline has not run, and is not sent to that server again.
func TestAScriptThatIsUnknownToAReadOnlyServerIsNotSent(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		const source = `return redis.error_reply("READONLY You can't write against a read only replica.")`
		sum := sha1.Sum([]byte(source))
		writes := wire.NewCall(&wire.Script{Source: source, SHA: hex.EncodeToString(sum[:])}, []string{"a"})
		p.s.FlushScripts()
		if err := n.Client().ScriptLoad(t.Context(), source).Err(); err != nil {
			t.Fatal(err)
		}
		for name, calls := range map[string][]wire.Call{"before it": {writes, count("a")}, "behind it": {count("a"), writes}} {
			for i, r := range transport.Of(n).Send(t.Context(), calls...) {
				if r.Err == nil || notSent(r.Err) != (calls[i].Script != writes.Script) {
					t.Errorf("READONLY %s: reply %d: %v", name, i, r.Err)
				}
			}
		}
		if got, _ := p.s.Redis.Get("a"); got != "" {
			t.Errorf("the unknown script ran %s times", got)
		}
		a := newAsked()
		a.do(n, "b", time.Second)
		settle(500 * time.Millisecond)
		if a.errs["b"] != nil || a.answers["b"] != 1 {
			t.Errorf("b: %v", a.errs["b"])
		}
	})
}

// Renewals have a way of their own: a full one does not delay a lock.
func TestBackgroundCallsDoNotDelayForegroundOnes(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		many := make([]wire.Call, 500)
		for i := range many {
			many[i] = count("many")
		}
		done := false
		transport.Of(n).Do(t.Context(), quorum.Background, time.Now().Add(time.Second), many, func([]wire.Reply) { done = true })
		synctest.Wait()
		a := newAsked()
		a.do(n, "a", time.Second)
		settle(30 * time.Millisecond)
		a.check(t, "a", 20*time.Millisecond, false)
		settle(time.Second)
		if !done {
			t.Error("the others were not answered")
		}
	})
}

// asks asks for calls, and answers the key.
func (a *asked) asks(n *node.Node, key string, calls ...wire.Call) {
	transport.Of(n).Do(context.Background(), quorum.Foreground, time.Now().Add(time.Second), calls, a.answer(key))
}

// err returns the error of the answer for a key.
func (a *asked) err(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.errs[key]
}

const first quorumlock.Owner = "c~1:7.1" // the first attempt of c~1:7

func attempt(names ...string) (calls []wire.Call) {
	for i, name := range names {
		calls = append(calls, wire.AcquireInTurn(name, first, ttl, 1, wire.Entry{Waiter: "c~1:7", Ticket: 1, TTL: time.Second}).At(i))
	}
	return calls
}

// A queued first attempt is recalled only by a call that releases all of it.
func TestAnUnsentAttemptIsRecalled(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			inTap(t, func(t *testing.T, p *tap, n *node.Node) {
				a := newAsked()
				a.do(n, "flight", time.Second)
				synctest.Wait()
				a.do(n, "first", time.Second)
				recalled := 0
				for i, calls := range tt.asks {
					a.asks(n, fmt.Sprint(i), calls...)
				}
				for i := range tt.asks {
					if err := a.err(fmt.Sprint(i)); errors.Is(err, wire.ErrRecalled) && notSent(err) {
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
			})
		})
	}
}

// The first in the queue is not recalled: it finds out whether the node answers. Nor is a call that
// may have been sent.
func TestWhatMayHaveBeenSentIsNotRecalled(t *testing.T) {
	for name, before := range map[string]int{"in the pipeline": 0, "the first in the queue": 1, "behind it": 2} {
		inTap(t, func(t *testing.T, p *tap, n *node.Node) {
			a := newAsked()
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

// A recalled call leaves its place in a full queue to others.
func TestWhatIsRecalledCountsNoMore(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		p.s.Stall()
		a := newAsked()
		a.do(n, "flight", time.Second)
		synctest.Wait()
		refused := 0
		ask := func(calls ...wire.Call) {
			transport.Of(n).Do(t.Context(), quorum.Foreground, time.Now().Add(time.Second), calls, func(rs []wire.Reply) {
				if rs[0].Err != nil && !errors.Is(rs[0].Err, wire.ErrRecalled) {
					refused++
				}
			})
		}
		for range 8189 {
			ask(count("k"))
		}
		ask(attempt("a")...)
		ask(wire.Release("a", first, 1).At(0))
		ask(count("k"))
		if ask(count("k")); refused != 0 {
			t.Error("its place is not given to another")
		}
		if ask(count("k")); refused != 1 {
			t.Errorf("control: %d calls are refused", refused)
		}
		p.s.Resume()
		settle(time.Second)
	})
}
