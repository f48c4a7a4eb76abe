package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
	"github.com/quorumlock/quorumlock/redlock"
)

// dev is quorumlock dev within the process.
type dev struct {
	t       *testing.T
	urls    []string
	input   *io.PipeWriter
	output  *bufio.Reader
	errors  *bufio.Reader
	stop    context.CancelFunc
	stopped chan int // receives the status
}

// startDev starts it on free ports, unless args set another. It ends with the test.
func startDev(t *testing.T, args ...string) *dev {
	t.Helper()
	in, input := io.Pipe()
	output, out := io.Pipe()
	errors, errs := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	d := &dev{t: t, input: input, output: bufio.NewReader(output), errors: bufio.NewReader(errors), stop: stop, stopped: make(chan int, 1)}
	go func() { d.stopped <- run(ctx, append([]string{"dev", "--port", "0"}, args...), in, out, errs) }()
	t.Cleanup(func() {
		go io.Copy(io.Discard, output) //nolint:errcheck // it never fails
		stop()
		testkit.Equal(t, <-d.stopped, 0, "status")
		_ = input.Close() // ends the read that is under way
		_ = out.Close()
	})
	nodes, ok := strings.CutPrefix(d.line(), "QUORUMLOCK_NODES=")
	if !ok {
		t.Fatalf("no line with the nodes: %q", nodes)
	}
	d.urls = strings.Split(nodes, ",")
	has(t, d.line(), "Type stop 1")
	return d
}

// line returns the next line of the output.
func (d *dev) line() string {
	d.t.Helper()
	line, err := d.output.ReadString('\n')
	testkit.Must(d.t, err, "the next line of the output")
	return strings.TrimSuffix(line, "\n")
}

// does gives a command, and checks the lines of the output about it.
func (d *dev) does(command string, want ...string) {
	d.t.Helper()
	_, err := io.WriteString(d.input, command+"\n")
	testkit.Must(d.t, err, "%s", command)
	for _, line := range want {
		testkit.Equal(d.t, d.line(), line, "the output of %q", command)
	}
}

// node returns a connection to a node. It gives up at once.
func (d *dev) node(number int) *redis.Client {
	d.t.Helper()
	o, err := redis.ParseURL(d.urls[number-1])
	testkit.Must(d.t, err, "the URL of node %d", number)
	o.MaxRetries, o.DialerRetries, o.ReadTimeout, o.ContextTimeoutEnabled = -1, 1, time.Minute, true
	c := redis.NewClient(o)
	d.t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestDevServesLocksThroughFaults(t *testing.T) {
	d := startDev(t)
	testkit.Equal(t, len(d.urls), 3, "nodes")
	client, err := redlock.Dial(d.urls, quorumlock.WithTTL(time.Minute), quorumlock.WithNodeTimeout(10*time.Second))
	testkit.Must(t, err, "Dial")
	t.Cleanup(func() { _ = client.Close() }) // some nodes may not answer
	lock := client.Mutex("x")

	lease := testkit.Lock(t, lock)
	for _, n := range []int{1, 2, 3} { // the last of them may still be asked
		for node := d.node(n); node.Exists(t.Context(), "x").Val() == 0; {
			time.Sleep(time.Millisecond)
		}
	}
	d.does("stop 2", "node 2 is stopped")
	testkit.OK(t, lease.Extend(t.Context()), "Extend without one of three nodes")
	d.does("stop 2 3", "node 2 is stopped", "node 3 is stopped")
	testkit.Is(t, lease.Extend(t.Context()), quorumlock.ErrNoQuorum, "Extend without two of three nodes")
	d.does("start 2", "node 2 serves")
	d.keys(1, 1)
	d.does("forget 1 3", "node 1 serves", "node 3 serves")
	d.keys(0, 1, 0)
}

// keys checks at how many of the first nodes the lock x is.
func (d *dev) keys(want ...int64) {
	d.t.Helper()
	for i := range want {
		n, err := d.node(i+1).Exists(d.t.Context(), "x").Result()
		if err != nil || n != want[i] {
			d.t.Errorf("node %d has the key %d times, %v, want %d", i+1, n, err, want[i])
		}
	}
}

func TestDevStopsAndFreezesANode(t *testing.T) {
	d := startDev(t, "--nodes", "1")
	open := d.node(1)
	testkit.OK(t, open.Set(t.Context(), "k", "v", 0).Err(), "SET")

	d.does("freeze 1", "node 1 is frozen")
	answered := make(chan error, 1)
	go func() { answered <- open.Set(context.Background(), "k", "late", 0).Err() }()
	for name, c := range map[string]*redis.Client{"a new connection": d.node(1), "an open one": open} {
		err := c.Get(testkit.Within(t, 100*time.Millisecond), "k").Err()
		if late, ok := errors.AsType[net.Error](err); !ok || !late.Timeout() {
			t.Errorf("GET of a frozen node by %s: %v, want a timeout", name, err)
		}
	}
	testkit.Equal(t, len(answered), 0, "answers of a frozen node")
	d.does("thaw 1", "node 1 serves")
	testkit.OK(t, <-answered, "the SET that waited")

	d.does("stop 1", "node 1 is stopped")
	if err := open.Get(t.Context(), "k").Err(); err == nil {
		t.Error("a stopped node answers at an open connection")
	}
	if c, err := net.Dial("tcp", open.Options().Addr); err == nil {
		_ = c.Close()
		t.Error("a stopped node accepts a connection")
	}
	d.does("start 1", "node 1 serves")
	v, err := d.node(1).Get(t.Context(), "k").Result()
	testkit.OK(t, err, "GET")
	testkit.Equal(t, v, "late", "the value after a start")

	d.does("freeze 1", "node 1 is frozen")
	d.does("stop 1", "node 1 is stopped")
	d.does("start 1", "node 1 serves")
	testkit.OK(t, d.node(1).Ping(t.Context()).Err(), "PING")
	d.does("freeze 1", "node 1 is frozen") // it ends frozen, with a connection that waits
	_ = d.node(1).Ping(testkit.Within(t, 10*time.Millisecond))
}

func TestDevNamesTheFixForABadCommand(t *testing.T) {
	d := startDev(t)
	for command, want := range map[string]string{
		"stpo 2":                   `unknown command "stpo": use stop, start, freeze, thaw or forget and the numbers of nodes, or help`,
		"stop":                     "stop: no node is named: use numbers from 1 to 3, as in stop 1",
		"stop 1 4":                 `stop: there is no node "4": use numbers from 1 to 3`,
		"forget all":               `forget: there is no node "all": use numbers from 1 to 3`,
		"thaw \x1b[2J":             `thaw: there is no node "\x1b[2J": use numbers from 1 to 3`,
		strings.Repeat("x", 60000): "unknown command",
	} {
		d.does(command)
		line, err := d.errors.ReadString('\n')
		testkit.Must(t, err, "the error of %q", command)
		has(t, line, "quorumlock: "+want)
	}
	d.does("") // nothing
	d.does("stop 1", "node 1 is stopped")
	d.does("freeze 1")
	line, err := d.errors.ReadString('\n')
	testkit.Must(t, err, "the error of freeze")
	has(t, line, "freeze: node 1: it is stopped: start it first")
	d.does("help", "stop closes the connections of a node and refuses new ones; start lets it")
}

func TestDevOutlivesItsInput(t *testing.T) {
	for name, cause := range map[string]error{"the end": nil, "an error": errors.New("the terminal is gone")} {
		t.Run(name, func(t *testing.T) {
			d := startDev(t)
			_ = d.input.CloseWithError(cause)
			if cause != nil {
				line, err := d.errors.ReadString('\n')
				testkit.Must(t, err, "the error")
				has(t, line, "no more commands are read, and the nodes go on: the terminal is gone")
			}
			for number := range d.urls {
				testkit.OK(t, d.node(number+1).Ping(t.Context()).Err(), "PING")
			}
		})
	}
}

func TestDevTakesThePortsInOrderOrNone(t *testing.T) {
	first := twoPorts(t)
	d := startDev(t, "--nodes", "2", "--port", strconv.Itoa(first))
	for i, url := range d.urls {
		testkit.Equal(t, url, "redis://127.0.0.1:"+strconv.Itoa(first+i), "the URL of node %d", i+1)
	}
	port := strconv.Itoa(first - 1)
	o := invoke(t, "dev", "--port", port)
	testkit.Equal(t, o.status, 1, "status")
	testkit.Equal(t, strings.Count(o.stderr, "\n"), 1, "lines of the error")
	has(t, o.stderr, "dev: --port "+port, "in use", "use another port, or 0 for any free ports")
}

// twoPorts returns a free port after which the next one is free, too.
func twoPorts(t *testing.T) int {
	t.Helper()
	for {
		addr, err := freeport.Addr()
		testkit.Must(t, err, "a port")
		_, text, _ := net.SplitHostPort(addr)
		port, err := strconv.Atoi(text)
		testkit.Must(t, err, "the port")
		if next, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1))); err == nil {
			testkit.Must(t, next.Close(), "Close")
			return port
		}
	}
}
