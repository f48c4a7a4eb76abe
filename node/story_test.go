package node_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// story is a test of one server and one node, in steps that are separated by commas:
//
//	kill, restart, stall, lose, resume      faults of the server
//	lose a reply, delay 10ms, break 1       others; so many writes fail before a byte is sent
//	wait 1s, close, close the client        of the node, within the time of a call
//	connected                               calls are answered; from here on, after 20 ms
//	serve 100ms                             calls one after the other, each for so long
//	a asks 1s                               a call that counts for the key a, with this limit
//	a is answered, a is answered at 1s      its answer, once, and when it came
//	a is lost, unsent, refused or closed    its error, likewise
//	a ran 1, a was sent 1, a holds 1        so often
//	A listens x, A stops                    a listener at a channel
//	publish x text, A hears text ?          its messages since; ?: some may be missed
//	A missed                                it only hears that some may be missed
//	connections 1                           of the server
type story struct {
	node  func(t *testing.T, s *embedded.Server) *node.Node // nil for one that is dialled
	call  func(key string) wire.Call                        // nil for one that counts
	steps string
}

func stories(t *testing.T, all map[string]story) {
	for name, st := range all {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			p := &tap{s: servers[0]}
			if st.call == nil {
				st.call = count
			}
			if st.node != nil {
				st.tell(t, p, st.node(t, p.s))
				return
			}
			st.tell(t, p, dial(t, "redis://h", node.WithName("node-1"), node.WithDialer(p.dial)))
		})
	}
}

func (st story) tell(t *testing.T, p *tap, n *node.Node) {
	s, a, ears := p.s, newAsked(), make(map[string]*ear)
	acts := map[string]func(){
		"kill": s.Kill, "stall": s.Stall, "lose": s.Lose, "resume": s.Resume,
		"restart":          func() { s.Restart(true) },
		"lose a reply":     func() { s.LoseReplies(1) },
		"connected":        func() { warm(n, p) },
		"close the client": func() { _ = n.Client().Close() },
		"close": func() {
			began := time.Now()
			mustClose(t, n)
			testkit.Took(t, began, 0, time.Second, "Close")
		},
	}
	for step := range strings.SplitSeq(st.steps, ", ") {
		words := strings.Fields(step)
		last := words[len(words)-1]
		d, _ := time.ParseDuration(last)
		number, _ := strconv.Atoi(last)
		switch who := words[0]; {
		case acts[step] != nil:
			acts[step]()
		case who == "break":
			p.fail = number
		case who == "delay":
			s.Delay(d)
		case who == "serve":
			one := make(chan struct{}, 1)
			s.Before(func(embedded.Run) {
				one <- struct{}{}
				time.Sleep(d)
				<-one
			})
		case who == "wait":
			settle(d)
		case who == "publish":
			s.Redis.Publish(words[1], last)
		case who == "connections":
			connections(t, s, number)
		case words[1] == "listens":
			ears[who] = listen(n, last)
		case words[1] == "stops":
			ears[who].stop()
		case words[1] == "missed":
			if got := slices.Compact(ears[who].take()); !slices.Equal(got, []string{""}) {
				t.Errorf("%s, but it heard %q", step, got)
			}
		case words[1] == "hears":
			want := strings.Fields(strings.ReplaceAll(step, "?", "<missed>"))[2:]
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "<missed>", "")
			}
			if got := ears[who].take(); !slices.Equal(got, want) {
				t.Errorf("%s, but it heard %q", step, got)
			}
		case words[1] == "asks":
			transport.Of(n).Do(context.Background(), client.Foreground, d, []wire.Call{st.call(who)}, a.answer(who))
		case words[1] == "is":
			synctest.Wait()
			a.is(t, step, who, words[2], len(words) > 3, d)
		case words[1] == "ran":
			got, _ := s.Redis.Get(who)
			testkit.Equal(t, got, last, "%s: runs", step)
		case words[1] == "holds":
			testkit.Equal(t, s.Redis.Exists(who), number > 0, "%s: its key exists", step)
		case words[1] == "was":
			testkit.Equal(t, p.sent(who), number, "%s: times", step)
		default:
			t.Fatalf("no such step: %s", step)
		}
	}
}

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
	transport.Of(n).Do(context.Background(), client.Foreground, limit, []wire.Call{count(key)}, a.answer(key))
}

// asks asks for calls, and answers the key.
func (a *asked) asks(n *node.Node, key string, calls ...wire.Call) {
	transport.Of(n).Do(context.Background(), client.Foreground, time.Second, calls, a.answer(key))
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

// err returns the error of the answer for a key.
func (a *asked) err(key string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.errs[key]
}

// is checks that a key was answered once, how, and if timed, after how long.
func (a *asked) is(t *testing.T, step, key, how string, timed bool, at time.Duration) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.errs[key]
	e, ofNode := errors.AsType[*quorumlock.NodeError](err)
	if ok := map[string]bool{
		"answered": err == nil,
		"lost":     ofNode && !wire.IsUnsent(err),
		"unsent":   ofNode && wire.IsUnsent(err),
		"refused":  ofNode && wire.IsUnsent(err) && strings.Contains(err.Error(), "refused") && e.Node == "node-1",
		"closed":   ofNode && errors.Is(err, quorumlock.ErrClosed),
	}[how]; !ok || a.answers[key] != 1 || timed && a.at[key] != at {
		t.Errorf("%s, but %d answers after %v, error %v", step, a.answers[key], a.at[key], err)
	}
}

// check checks that a key was answered once, after so long, without an error.
func (a *asked) check(t *testing.T, key string, at time.Duration) {
	t.Helper()
	synctest.Wait()
	a.is(t, key+" is answered at "+at.String(), key, "answered", true, at)
}

// answered checks that each key was answered once, without an error.
func (a *asked) answered(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		a.is(t, key+" is answered", key, "answered", false, 0)
	}
}

// settle lets so much time pass, and all that happens then.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
