package integration

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock/node"
)

// member is a server with all that can be made to fail about it: its clock and the way to it, too.
type member struct {
	*server
	way   *proxy
	ahead time.Duration // its wall clock is, of the true one
	leap  time.Duration // by which faults step it
}

// fleet is five members that faults strike.
type fleet []*member

func startFleet(t *testing.T, n int) fleet {
	t.Helper()
	clock := withClock(t)
	f := make(fleet, n)
	var g errgroup.Group
	for i := range f {
		g.Go(func() error {
			// A process's writes outlive it, synced or not: the tests do not kill the machine.
			s, err := launch(&redis.Options{}, []string{"--appendonly", "yes", "--appendfsync", "no"}, clock)
			if s != nil {
				f[i] = &member{server: s, leap: time.Hour}
			}
			return err
		})
	}
	err := g.Wait()
	for _, m := range f {
		if m != nil {
			t.Cleanup(func() { must(t, m.end()) })
		}
	}
	must(t, err)
	for _, m := range f {
		m.way = startProxy(t, m.addr)
	}
	return f
}

// nodes returns nodes with connections of their own.
func (f fleet) nodes(t *testing.T) []*node.Node {
	t.Helper()
	nodes := make([]*node.Node, len(f))
	for i, m := range f {
		var err error
		nodes[i], err = node.Dial("redis://"+m.way.addr(), node.WithName(m.addr))
		must(t, err)
	}
	return nodes
}

func (f fleet) servers() []*server {
	servers := make([]*server, len(f))
	for i, m := range f {
		servers[i] = m.server
	}
	return servers
}

// scripts is how many the clients have asked for.
func (f fleet) scripts() (n int64) {
	for _, m := range f {
		n += m.way.scripts.Load()
	}
	return n
}
