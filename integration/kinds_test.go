package integration

import (
	"sync"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// users are what workers do with locks of a kind, and what they saw.
type users interface {
	turn(worker int, c *redlock.Client) // one use
	served(n int)                       // waits for so many more
	check(servers []*server)            // that the promises were kept, and nothing is left, when all have stopped
}

// underFaults has workers at work, each with a client of its own, before, while and after a node fails, in each way.
// They must be served so many times before and while it does, and half as many times afterwards.
func underFaults(t *testing.T, times int, begin func(t *testing.T) users, opts ...quorumlock.Option) {
	f := startFleet(t, fleetSize)
	for i, fault := range faults {
		if fault.everywhere {
			continue
		}
		t.Run(fault.name, func(t *testing.T) {
			if fault.users {
				needUsers(t)
			}
			quorum := majority
			if fault.forgets {
				quorum = tolerant
			}
			u := begin(t)
			stop, running := make(chan struct{}), sync.WaitGroup{}
			for worker := range workers {
				c, err := redlock.New(f.nodes(t), append(opts, quorumlock.WithQuorum(quorum), quorumlock.WithNodeTimeout(workTimeout))...)
				must(t, err)
				running.Go(func() {
					for {
						select {
						case <-stop:
							must(t, c.Close())
							return
						default:
							u.turn(worker, c)
						}
					}
				})
			}
			u.served(times)
			heal := fault.befall(t, f[i%fleetSize])
			u.served(times)
			heal()
			u.served(times / 2)
			close(stop)
			running.Wait()
			u.check(f.servers())
		})
	}
}
