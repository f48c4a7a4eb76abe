package node_test

import (
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// listenAt listens at a new port of the loopback interface, or at a socket.
func listenAt(t *testing.T, network, addr string) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), network, addr)
	testkit.Must(t, err, "Listen at %s", addr)
	return listener
}

// serveConns serves connections until the end of the test. serve handles each of them, which is
// closed when it returns.
func serveConns(t *testing.T, listener net.Listener, serve func(conn net.Conn)) (addr string) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close() //nolint:errcheck // the client has gone, or will find out
				serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		testkit.OK(t, listener.Close(), "Close")
		serving.Wait()
	})
	return listener.Addr().String()
}

// anyPort is an unused port of the loopback interface.
const anyPort = "127.0.0.1:0"

// startFlood returns the address of a server that is no Redis, on the loopback interface until the
// end of the test. It answers a number of requests, after, with an error. At the next it sends
// first and, if then is not empty, then again and again. When the client has ended the connection,
// ended has a value.
func startFlood(t *testing.T, after int, first, then string) (addr string, ended <-chan struct{}) {
	t.Helper()
	chunk := []byte(strings.Repeat(then, 1+(1<<16)/max(len(then), 1)))
	end := make(chan struct{}, 1)
	return serveConns(t, listenAt(t, "tcp", anyPort), func(conn net.Conn) {
		defer func() {
			select {
			case end <- struct{}{}:
			default: // it has one
			}
		}()
		for i := range after + 1 {
			request := make([]byte, 4096)
			n, err := conn.Read(request)
			if err != nil {
				return
			}
			if i < after {
				commands := strings.Count(string(request[:n]), "\r\n*") + 1
				_, _ = io.WriteString(conn, strings.Repeat("-ERR unknown command\r\n", commands))
			}
		}
		for b := []byte(first); ; b = chunk {
			if _, err := conn.Write(b); err != nil {
				return
			}
			if then == "" {
				_, _ = io.Copy(io.Discard, conn) // silent from here on
				return
			}
		}
	}), end
}

// floods are streams of a server that are no reply of Redis, each with a part of the error.
var floods = map[string]struct{ first, then, want string }{
	"a line without end":            {"+", "a", "a line of more than 65536 bytes"},
	"a huge array":                  {"*2000000000\r\n", "", "a reply of 2000000000 elements"},
	"a huge map":                    {"%1000000000\r\n", "", "a reply of 2000000000 elements"},
	"a huge string":                 {"$2000000000\r\n", "", "a string of 2000000000 bytes"},
	"arrays in arrays without end":  {"*1\r\n", "*1\r\n", "nested more than"},
	"big arrays in big arrays":      {"*1000000\r\n", "*1000000\r\n", "a reply of 2000000 elements"},
	"attributes without end":        {"|0\r\n", "|0\r\n", "attributes"},
	"big strings in an array":       {"*100\r\n", "$1048576\r\n" + strings.Repeat("x", 1<<20) + "\r\n", "more than 16777216 bytes"},
	"zeros":                         {"\x00", "\x00", `begins with '\x00'`},
	"another protocol":              {"HTTP/1.1 400 Bad Request\r\n\r\n", "", `begins with 'H'`},
	"a server that wants TLS":       {"\x15\x03\x01\x00\x02\x02\x0a", "", "use a rediss:// URL"},
	"a length that is no number":    {"*1e9\r\n", "", "a length that is no number"},
	"a length without end":          {"$", "1", "a length that is no number"},
	"a message that nobody sent":    {">2000000000\r\n", "", "a reply of 2000000000 elements"},
	"a huge error":                  {"!2000000000\r\n", "", "a string of 2000000000 bytes"},
	"a length beyond every integer": {"*99999999999999999999\r\n", "", "a length that is no number"},
}

func TestAReplyThatIsNoneOfRedisEndsTheConnectionBeforeItCostsMemory(t *testing.T) {
	for name, tt := range floods {
		for when, after := range map[string]int{"at the handshake": 0, "at a script": 2} {
			t.Run(name+", "+when, func(t *testing.T) {
				addr, _ := startFlood(t, after, tt.first, tt.then)
				n := dial(t, "redis://"+addr, node.WithTimeout(never))
				var err error
				allocated := allocation(func() { _, err = n.Acquire(t.Context(), "x", alice, ttl, 1) })
				e, ok := errors.AsType[*quorumlock.NodeError](err)
				// go-redis refuses some of it by itself, where it expects a reply of another kind.
				if !ok || e.Node != addr || !strings.Contains(err.Error(), tt.want) && (after > 0 || !strings.Contains(err.Error(), ": redis: ")) {
					t.Errorf("error %.300v, want a *NodeError that says %q", err, tt.want)
				}
				if allocated > 128<<20 { // by two connections: see servers
					t.Errorf("it took %d MB of memory", allocated>>20)
				}
			})
		}
	}
}

func TestAFloodOnASubscriptionEndsItsConnection(t *testing.T) {
	for when, after := range map[string]int{"at the handshake": 0, "when subscribing": 2} {
		t.Run(when, func(t *testing.T) {
			addr, ended := startFlood(t, after, "*2000000000\r\n", "")
			n := dial(t, "redis://"+addr, node.WithTimeout(never))
			allocated := allocation(func() {
				stop := transport.Of(n).Listen("channel", func(string) { t.Error("something was heard") })
				defer stop()
				<-ended
			})
			if allocated > 64<<20 {
				t.Errorf("it took %d MB of memory", allocated>>20)
			}
		})
	}
}

// allocation is how many bytes of memory the program allocates while f runs.
func allocation(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// never is a node timeout beyond the end of a test: a call that needs it fails the test.
const never = time.Hour

// The memory of a long pipeline is not kept for ever.
func TestALongPipelineCostsNoMemoryAfterwards(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *embedded.Server, n *node.Node) {
		heap := func() int64 {
			for range 4 { // the second empties a sync.Pool
				runtime.GC()
			}
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		call := func(name string, calls int) {
			for _, r := range testkit.Send(t.Context(), n, slices.Repeat([]wire.Call{wire.Release(name, "a:1", 1)}, calls)...) {
				testkit.Must(t, r.Err, "Release")
			}
		}
		call("x", 1)
		call("x", 10)
		before := heap()
		call(strings.Repeat("n", 3000), 250)
		call("x", 10) // so that the server keeps no more of it
		if kept := heap() - before; kept > 1<<20 {
			t.Errorf("%d bytes are kept of a pipeline of 4 MB", kept)
		}
	})
}
