package node_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

func acquires(n int) (calls []wire.Call) {
	for i := range n {
		calls = append(calls, wire.Acquire(fmt.Sprint("key-", i), alice, ttl, 1, uint64(1000+i)))
	}
	return calls
}

// Calls that go together cost the server one script, as far as their scripts can be in a bundle.
func TestCallsThatGoTogetherAreABundle(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		calls := acquires(43)
		calls[20] = count("other")
		for range 2 { // the second time the server knows the script
			transport.Of(n).Send(t.Context(), calls...)
		}
		p.mu.Lock()
		got := p.writes[len(p.writes)-1]
		p.mu.Unlock()
		// Twenty, the other script, and a bundle of the rest: nothing follows a bundle.
		if n := strings.Count(got, "\r\nevalsha\r\n"); n != 22 {
			t.Errorf("43 calls were sent as %d commands, want 22", n)
		}
		if n := strings.Count(got, wire.Bundle.SHA); n != 1 {
			t.Errorf("%d bundles, want 1", n)
		}
		p.mu.Lock()
		p.writes = nil
		p.mu.Unlock()
		transport.Of(n).Send(t.Context(), acquires(300)...)
		if n := strings.Count(strings.Join(p.writes, ""), "\r\nevalsha\r\n"); n != 300-256+1 {
			t.Errorf("300 calls were sent as %d commands, want a bundle of 256 and the others alone", n)
		}
	})
}

// A bundle does what its calls do one by one, and replies the same, errors included.
func TestABundleIsItsCallsOneByOne(t *testing.T) {
	synctest.Test(t, compareBundles)
}

func compareBundles(t *testing.T) {
	servers, nodes := locktest.Nodes(t, 2)
	time.Sleep(time.Minute) // so long have they been up, by the guard
	for _, s := range servers {
		s.Redis.ClockTTL(false)
		s.Redis.SetTime(time.UnixMilli(1_000_000))
		_ = s.Redis.Set("wrong", "no hash")
		_, _ = s.Redis.Push(wire.TokenKey("worse"), "no counter")
		_ = s.Redis.Set(wire.TokenKey("worst"), "no number")
	}
	dice := rand.New(rand.NewPCG(1, 2))
	some := func(of ...string) string { return of[dice.IntN(len(of))] }
	call := func(i int) wire.Call {
		name := some("a", "b", "c", "{d}", "wrong", "worse", "worst")
		waiter := quorumlock.Owner(some("x~1:1", "y~1:2", "z~1:3"))
		owner := wire.OfCell(wire.OwnerOf(waiter, 1), 0)
		e := wire.Entry{Waiter: waiter, Ticket: int64(dice.IntN(100)), TTL: time.Minute, Callers: 1,
			Successor: wire.Successor{Attempt: 2, TTL: ttl, Secret: "secret"}}
		switch dice.IntN(9) {
		case 0:
			return wire.AcquireInTurn(name, owner, ttl, uint64(i), e)
		case 1:
			return wire.Acquire(name, owner, ttl, 1+dice.IntN(2), uint64(i))
		case 2:
			return wire.Acquire(name, owner, ttl, 1, uint64(i)).Shared()
		case 3:
			return wire.Acquire(name, owner, ttl, 1, uint64(i)).Guarded(time.Hour)
		case 4:
			return wire.Acquire(name, owner, ttl, 1, uint64(i)).Shared().Guarded(time.Second)
		case 5:
			return wire.Renew(name, owner, ttl)
		case 6:
			return wire.Raise(name, owner, ttl, uint64(i-1), uint64(i))
		case 7:
			return wire.ReleaseAndLeave(name, owner, waiter, true)
		}
		return wire.Release(name, owner, 1)
	}
	errs := 0
	for i := 0; i < 20_000; {
		calls := make([]wire.Call, 3+dice.IntN(40))
		for k := range calls {
			i++
			calls[k] = call(i)
		}
		together := transport.Of(nodes[0]).Send(t.Context(), calls...)
		for k, c := range calls {
			alone := transport.Of(nodes[1]).Send(t.Context(), c)[0]
			if alone.Err != nil {
				errs++
			}
			if got, want := result(together[k]), result(alone); !reflect.DeepEqual(got, want) {
				t.Fatalf("call %d, %s of %q: %v in a bundle, %v alone", i, c.Script.Name, c.Keys(), got, want)
			}
		}
		if a, b := servers[0].Redis.Dump(), servers[1].Redis.Dump(); a != b {
			t.Fatalf("after call %d, a bundle left\n%s\nand the same calls one by one\n%s", i, a, b)
		}
	}
	if errs == 0 {
		t.Error("no call failed")
	}
	if a, b := servers[0].Ran("bundle"), servers[1].Ran("bundle"); a != 0 || b != 0 {
		t.Errorf("%d and %d runs are counted as bundles, not as what is in them", a, b)
	}
}

// result is a reply as it can be compared. How deep in Lua an error was raised is no part of it.
func result(r wire.Reply) any {
	if r.Err == nil {
		return r.Boxed().Value
	}
	e, _ := errors.AsType[*quorumlock.NodeError](r.Err)
	if _, raised, found := strings.Cut(e.Err.Error(), ">:"); found {
		_, raised, _ = strings.Cut(raised, ": ")
		return raised
	}
	return e.Err.Error()
}

// fake is a server that answers as the test says.
type fake struct {
	mode   string // that HELLO tells; an error if it is empty
	id     int    // that CLIENT ID tells; HELLO tells 7
	answer func(args []string) string

	withholds string // a command that has no reply; the script after it has

	mu    sync.Mutex
	asked [][]string // scripts
	dials int        // connections that scripts were sent on
}

func (f *fake) dial(context.Context, string, string) (net.Conn, error) {
	client, server := net.Pipe()
	replies := make(chan string, 100) // what a socket keeps
	go func() {
		for r := range replies {
			_, _ = io.WriteString(server, r)
		}
		_ = server.Close()
	}()
	go func() {
		defer close(replies)
		in := bufio.NewReader(server)
		used := false
		for {
			args := make([]string, header(in))
			for i := range args {
				b := make([]byte, header(in)+2)
				_, _ = io.ReadFull(in, b)
				args[i] = string(b[:len(b)-2])
			}
			if len(args) == 0 {
				return
			}
			if !used && strings.HasPrefix(args[0], "eval") {
				used = true
				f.mu.Lock()
				f.dials++
				f.mu.Unlock()
			}
			r := f.reply(args)
			if r == "" {
				return // and the connection ends
			}
			if f.withholds == args[0] {
				continue
			}
			replies <- r
		}
	}()
	return client, nil
}

// header reads the number of a line such as *3.
func header(in *bufio.Reader) int {
	line, _ := in.ReadString('\n')
	n, _ := strconv.Atoi(strings.Trim(line, "*$\r\n"))
	return n
}

func (f *fake) reply(args []string) string {
	switch args[0] {
	case "hello":
		if f.mode == "" {
			return "-ERR unknown command\r\n"
		}
		return fmt.Sprintf("*6\r\n$5\r\nproto\r\n:2\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$%d\r\n%s\r\n", len(f.mode), f.mode)
	case "client":
		if args[1] == "id" {
			if f.id == 0 {
				return "-ERR unknown command\r\n"
			}
			return fmt.Sprintf(":%d\r\n", f.id)
		}
		return "+OK\r\n"
	case "info":
		return "-NOPERM x\r\n"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, args)
	return f.answer(args)
}

// commands returns how many bundles, and how many calls alone, were sent.
func (f *fake) commands() (bundles, alone int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, args := range f.asked {
		if args[1] == wire.Bundle.SHA || args[1] == wire.Bundle.Source {
			bundles++
		} else {
			alone++
		}
	}
	return bundles, alone
}

// A server that may spread the keys of a bundle gets none.
func TestOnlyAServerThatStandsAloneGetsBundles(t *testing.T) {
	for _, tt := range []struct {
		mode string
		id   int
		want int // bundles
	}{{"standalone", 7, 1}, {"cluster", 7, 0}, {"sentinel", 7, 0}, {"", 7, 0}, {"standalone", 8, 0}, {"standalone", 0, 0}} {
		f := &fake{mode: tt.mode, id: tt.id, answer: func(args []string) string {
			if args[1] == wire.Bundle.SHA {
				return "*5\r\n" + strings.Repeat(":1\r\n", 5)
			}
			return ":1\r\n"
		}}
		n := dial(t, "redis://h", node.WithDialer(f.dial))
		for _, r := range transport.Of(n).Send(t.Context(), acquires(5)...) {
			if r.Err != nil {
				t.Error(r.Err)
			}
		}
		if bundles, alone := f.commands(); bundles != tt.want || alone != 5-5*tt.want {
			t.Errorf("%+v: %d bundles and %d calls alone", tt, bundles, alone)
		}
	}
}

// Each call has its own reply, whatever the others have. A bundle that was refused before it ran is sent as single calls, and so is
// everything else on that connection. Any other error is that of each call: it is not sent again. After one without a code, bundles are
// not tried again on that connection.
func TestWhatABundleIsAnswered(t *testing.T) {
	const wrong, garbled, lost = "WRONGTYPE", "cannot be read", "node h:6379" // every error names the node
	for name, tt := range map[string]struct {
		answers        []string // to the first commands, and then 1
		errs           [3]string
		bundles, alone int
		dials          int
	}{
		"replies":                    {[]string{"*3\r\n:1\r\n*3\r\n:0\r\n$-1\r\n*1\r\n:7\r\n:1\r\n"}, [3]string{}, 1, 0, 1},
		"an error among them":        {[]string{"*3\r\n:1\r\n-WRONGTYPE x\r\n:1\r\n"}, [3]string{1: wrong}, 1, 0, 1},
		"a read-only server":         {[]string{"*3\r\n:1\r\n-READONLY x\r\n:1\r\n"}, [3]string{1: "READONLY"}, 1, 0, 1},
		"a read-only server, old":    {[]string{"*3\r\n:1\r\n-ERR Error running script (in a bundle): @user_script: 20: -READONLY x\r\n:1\r\n"}, [3]string{1: "READONLY"}, 1, 0, 1},
		"a server that loads":        {[]string{"-LOADING x\r\n"}, [3]string{"LOADING", "LOADING", "LOADING"}, 1, 0, 1},
		"words of a proxy":           {[]string{"-ERR for redis cluster, keys must be in one slot\r\n"}, [3]string{"one slot", "one slot", "one slot"}, 1, 0, 1},
		"a forbidden key":            {[]string{"-NOPERM x\r\n", ":1\r\n", "-NOPERM x\r\n", ":1\r\n"}, [3]string{1: "NOPERM"}, 1, 3, 1},
		"a cluster after all":        {[]string{"-CROSSSLOT x\r\n"}, [3]string{}, 1, 3, 1},
		"another Lua":                {[]string{"-NOSCRIPT x\r\n", "-ERR Error compiling script x\r\n"}, [3]string{}, 2, 3, 1},
		"an unknown script":          {[]string{"-NOSCRIPT x\r\n", "*3\r\n:1\r\n:1\r\n:1\r\n"}, [3]string{}, 2, 0, 1},
		"unknown scripts only":       {[]string{"-NOSCRIPT x\r\n", "-NOPERM x\r\n", "-NOSCRIPT x\r\n", "-NOSCRIPT x\r\n", "-NOSCRIPT x\r\n"}, [3]string{}, 2, 6, 1},
		"a script unknown for ever":  {[]string{"-NOSCRIPT x\r\n", "-NOSCRIPT x\r\n"}, [3]string{"NOSCRIPT", "NOSCRIPT", "NOSCRIPT"}, 2, 0, 1},
		"a refusal and no more":      {[]string{"-NOPERM x\r\n", ""}, [3]string{lost, lost, lost}, 1, 1, 1},
		"too few replies":            {[]string{"*2\r\n:1\r\n:1\r\n"}, [3]string{garbled, garbled, garbled}, 1, 0, 1},
		"one reply":                  {[]string{":1\r\n"}, [3]string{garbled, garbled, garbled}, 1, 0, 1},
		"none":                       {[]string{"*-1\r\n"}, [3]string{garbled, garbled, garbled}, 1, 0, 1},
		"a number that is none":      {[]string{"*3\r\n:1\r\n:x\r\n:1\r\n"}, [3]string{"", garbled, garbled}, 1, 0, 1},
		"a reply of another address": {[]string{"*3\r\n:1\r\n:1\r\n-MOVED 1 h:1\r\n"}, [3]string{2: "MOVED"}, 1, 0, 1},
	} {
		f := &fake{mode: "standalone", id: 7}
		answers := tt.answers
		f.answer = func([]string) string {
			if len(answers) == 0 {
				return ":1\r\n"
			}
			a := answers[0]
			answers = answers[1:]
			return a
		}
		n := dial(t, "redis://h", node.WithDialer(f.dial))
		for i, r := range transport.Of(n).Send(t.Context(), acquires(3)...) {
			want := tt.errs[i]
			if want == "" && r.Err != nil || want != "" && (r.Err == nil || !strings.Contains(r.Err.Error(), want)) {
				t.Errorf("%s: reply %d: error %v, want %q", name, i, r.Err, want)
			}
		}
		bundles, alone := f.commands()
		if bundles != tt.bundles || alone != tt.alone || f.dials != tt.dials {
			t.Errorf("%s: %d bundles and %d calls alone over %d connections, want %d, %d and %d", name, bundles, alone, f.dials, tt.bundles, tt.alone, tt.dials)
		}
		// A refusal holds for the connection, and a reply that cannot be read ends it.
		f.mu.Lock()
		f.asked, answers = nil, []string{"*3\r\n:1\r\n:1\r\n:1\r\n"}
		refused := tt.alone > 1 || strings.HasPrefix(tt.answers[0], "-ERR")
		if refused {
			answers = nil
		}
		f.mu.Unlock()
		for i, r := range transport.Of(n).Send(t.Context(), acquires(3)...) {
			if r.Err != nil {
				t.Errorf("%s: reply %d after that: %v", name, i, r.Err)
			}
		}
		if bundles, _ := f.commands(); (bundles == 0) != refused {
			t.Errorf("%s: %d bundles after that", name, bundles)
		}
		ends := tt.errs[2] == garbled || tt.errs[2] == lost || strings.Contains(tt.errs[1], "READONLY")
		if (f.dials > tt.dials) != ends {
			t.Errorf("%s: %d connections after that", name, f.dials)
		}
	}
}

// The outcome of all calls of a bundle is unknown if its reply is lost, and none is sent again.
func TestABundleWhoseReplyIsLostIsNotSentAgain(t *testing.T) {
	inTap(t, func(t *testing.T, p *tap, n *node.Node) {
		transport.Of(n).Send(t.Context(), acquires(9)...)
		p.s.Redis.FlushDB()
		p.mu.Lock()
		p.writes = nil
		p.mu.Unlock()
		p.s.LoseReplies(1)
		for i, r := range transport.Of(n).Send(t.Context(), acquires(9)...) {
			if r.Err == nil || notSent(r.Err) {
				t.Errorf("call %d: error %v", i, r.Err)
			}
		}
		settle(time.Second)
		for i := range 9 {
			key := fmt.Sprint("key-", i)
			if !p.s.Redis.Exists(key) || p.sent(key) != 1 {
				t.Errorf("%s was sent %d times", key, p.sent(key))
			}
		}
	})
}

// Whatever becomes of a bundle, the calls behind it do not overtake it.
func TestNothingOvertakesABundleThatIsRefused(t *testing.T) {
	for _, refusal := range []string{"-NOSCRIPT x\r\n", "-NOPERM x\r\n"} {
		f := &fake{mode: "standalone", id: 7}
		refused := false
		var order []string // the locks, as their scripts run
		f.answer = func(args []string) string {
			keys, _ := strconv.Atoi(args[2])
			if args[1] != wire.Bundle.SHA && args[1] != wire.Bundle.Source {
				order = append(order, args[3])
				return ":1\r\n"
			}
			if !refused {
				refused = true
				return refusal
			}
			replies := 0
			for range wire.Unbundled(args[3:3+keys], args[3+keys:]) {
				order = append(order, args[3+4*replies])
				replies++
			}
			return fmt.Sprintf("*%d\r\n%s", replies, strings.Repeat(":1\r\n", replies))
		}
		n := dial(t, "redis://h", node.WithDialer(f.dial))
		calls := append(acquires(5), wire.Inspect("key-0", 1), wire.Release("key-0", alice, 1), wire.Release("key-1", alice, 1), wire.Release("key-2", alice, 1))
		for i, r := range transport.Of(n).Send(t.Context(), calls...) {
			if r.Err != nil {
				t.Errorf("%.9q: call %d: %v", refusal, i, r.Err)
			}
		}
		if got, want := strings.Join(order, " "), "key-0 key-1 key-2 key-3 key-4 key-0 key-0 key-1 key-2"; got != want {
			t.Errorf("%.9q: they ran in the order %s, want %s", refusal, got, want)
		}
	}
}

// What a server sends as the reply to a bundle is not kept, however long it is.
func TestALongReplyToABundleCostsNoMemoryAfterwards(t *testing.T) {
	f := &fake{mode: "standalone", id: 7}
	long := true
	f.answer = func([]string) string {
		if long {
			return "*3\r\n:1\r\n:1\r\n$8000000\r\n" + strings.Repeat("x", 8_000_000) + "\r\n"
		}
		return "*3\r\n:1\r\n:1\r\n:1\r\n"
	}
	n := dial(t, "redis://h", node.WithDialer(f.dial))
	heap := func() uint64 {
		for range 4 { // what a sync.Pool has goes with the second
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	transport.Of(n).Send(t.Context(), acquires(3)...) // it cannot be read: it is longer than any script's
	if kept := int64(heap()) - int64(before); kept > 1<<19 {
		t.Errorf("%d bytes are kept of a reply of 8 MB", kept)
	}
	f.mu.Lock()
	long = false
	f.mu.Unlock()
	for _, r := range transport.Of(n).Send(t.Context(), acquires(3)...) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
}
