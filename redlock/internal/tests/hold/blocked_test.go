package hold

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// gate is code of a user that blocks while it is shut.
type gate struct {
	shut atomic.Bool
	open chan struct{}
}

func (g *gate) pass() {
	if g.shut.Load() {
		<-g.open
	}
}

type gatedLog struct {
	slog.Handler
	*gate
}

func (l gatedLog) Enabled(context.Context, slog.Level) bool { return true }

func (l gatedLog) Handle(context.Context, slog.Record) error {
	l.pass()
	return nil
}

// Whatever blocks, the end of the client comes in time, and every lease is over by then.
func TestNoCodeOfTheUserHoldsUpTheEnd(t *testing.T) {
	type options struct {
		lock []quorumlock.Option
		node func(s *embedded.Server) []node.Option
	}
	for name, gated := range map[string]func(g *gate) options{
		"a logger": func(g *gate) options {
			return options{lock: []quorumlock.Option{quorumlock.WithLogger(slog.New(gatedLog{slog.DiscardHandler, g}))}}
		},
		"an observer": func(g *gate) options {
			return options{lock: []quorumlock.Option{quorumlock.WithObserver(testkit.Observer(func(quorumlock.Event) { g.pass() }))}}
		},
		"an observer of losses": func(g *gate) options {
			return options{lock: []quorumlock.Option{quorumlock.WithObserver(testkit.Observer(func(e quorumlock.Event) {
				if e.Kind == quorumlock.EventLost {
					g.pass()
				}
			}))}}
		},
		"a dialer": func(g *gate) options {
			return options{node: func(s *embedded.Server) []node.Option {
				return []node.Option{node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
					g.pass()
					return s.DialContext(ctx, network, addr)
				})}
			}}
		},
		"credentials": func(g *gate) options {
			return options{node: func(*embedded.Server) []node.Option {
				return []node.Option{node.WithCredentials(func(context.Context) (node.Credentials, error) {
					g.pass()
					return node.Credentials{}, nil
				})}
			}}
		},
	} {
		for how, end := range map[string]func(c *redlock.Client) (time.Duration, error){
			"Close": func(c *redlock.Client) (time.Duration, error) { return time.Second, c.Close() },
			"Shutdown": func(c *redlock.Client) (time.Duration, error) {
				ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
				defer cancel()
				_ = c.Shutdown(ctx) // the lease is held, so it is ctx's error
				return 3 * time.Second, nil
			},
		} {
			testkit.Run(t, name+", "+how, func(t *testing.T) {
				g := &gate{open: make(chan struct{})}
				opts := gated(g)
				servers, _ := testkit.Nodes(t, 3)
				var nodes []*node.Node
				for _, s := range servers {
					var more []node.Option
					if opts.node != nil {
						more = opts.node(s)
					}
					n, err := s.Node(more...)
					testkit.Must(t, err, "Dial")
					nodes = append(nodes, n)
				}
				c := testkit.Of(t, nodes, opts.lock...)
				lease := testkit.Lock(t, c.Mutex("x"))
				waits := testkit.Go(func() error { return testkit.Err(c.Mutex("x").Lock(t.Context())) })
				time.Sleep(time.Second)
				g.shut.Store(true)
				servers[2].Kill()
				time.Sleep(time.Second)
				servers[2].Restart(true)
				time.Sleep(time.Second)
				began := time.Now()
				limit, err := end(c)
				testkit.OK(t, err, "%s", how)
				testkit.Took(t, began, 0, limit+600*time.Millisecond, "%s", how)
				if lease.Context().Err() == nil {
					t.Error("the lease is not over")
				}
				close(g.open)
				testkit.Is(t, <-waits, quorumlock.ErrClosed, "the Lock that waits")
			})
		}
	}
}

// A node that is frozen answers nothing until the node timeout, and Close does not wait for that.
func TestCloseWaitsForFrozenNodesForASecond(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithTTL(5*time.Minute), quorumlock.WithNodeTimeout(time.Minute))
		testkit.Warm(t, c)
		testkit.Each(servers, (*embedded.Server).Stall)
		waits := testkit.Go(func() error { return testkit.Err(c.Mutex("x").Lock(t.Context())) })
		time.Sleep(time.Second)
		began := time.Now()
		testkit.OK(t, c.Close(), "Close")
		testkit.Took(t, began, 0, 1500*time.Millisecond, "Close")
		testkit.Is(t, <-waits, quorumlock.ErrClosed, "the Lock that waits")
		if left := testkit.AllGoroutines(); len(left) > 0 {
			t.Errorf("after Close there are %d goroutines:\n%s", len(left), left[0])
		}
		testkit.Each(servers, (*embedded.Server).Resume)
	})
}
