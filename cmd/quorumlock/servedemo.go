package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// openDemo starts three nodes inside the process, and clients that share locks on them until the
// returned function is called. Every minute one of the nodes freezes for a while.
func openDemo(ctx context.Context) (*cluster, func() error, error) {
	servers, nodes, err := embedded.Nodes(3)
	if err != nil {
		return nil, nil, err
	}
	client, err := redlock.New(nodes)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var working sync.WaitGroup
	clients := []*redlock.Client{client}
	for _, label := range []string{"billing-1", "billing-2", "reports-1", "shop-1", "shop-2", "shop-3"} {
		c, err := demoClient(servers, label)
		if err != nil {
			stop()
			return nil, nil, err
		}
		clients = append(clients, c)
		for _, work := range demoWork(c, label) {
			working.Go(func() {
				for ctx.Err() == nil {
					work(ctx)
				}
			})
		}
	}
	working.Go(func() {
		for pause(ctx, 12*time.Second) {
			servers[1].Stall()
			pause(ctx, 8*time.Second)
			servers[1].Resume()
			pause(ctx, 40*time.Second)
		}
	})
	return &cluster{client, nodes, 2, ""}, func() error {
		stop()
		working.Wait()
		var failed []error
		for _, c := range clients {
			failed = append(failed, c.Close())
		}
		for _, s := range servers {
			s.Close()
		}
		return errs.Join(failed...)
	}, nil
}

func demoClient(servers []*embedded.Server, label string) (*redlock.Client, error) {
	nodes := make([]*node.Node, len(servers))
	for i, s := range servers {
		var err error
		if nodes[i], err = s.Node(); err != nil {
			return nil, err
		}
	}
	return redlock.New(nodes, quorumlock.WithLabel(label))
}

// demoWork returns the repeated work of a client. Each function takes one lock, holds it for a
// while, and pauses.
func demoWork(c *redlock.Client, label string) []func(context.Context) {
	hold := func(l quorumlock.Locker, held, rest time.Duration) func(context.Context) {
		return func(ctx context.Context) {
			// waits while there is no quorum
			_ = quorumlock.Do(ctx, l, func(ctx context.Context) error {
				pause(ctx, about(held))
				return nil
			})
			pause(ctx, about(rest))
		}
	}
	catalogue := c.RWMutex("shop:catalogue")
	work := []func(context.Context){hold(c.Mutex("billing:invoices"), 6*time.Second, 2*time.Second)}
	switch label {
	case "reports-1":
		work = append(work, hold(c.Mutex("reports:nightly"), 5*time.Minute, time.Second), hold(catalogue, 4*time.Second, 25*time.Second))
	default:
		work = append(work, hold(c.Semaphore("printers", 2), 9*time.Second, 12*time.Second), hold(catalogue.RLocker(), 5*time.Second, 8*time.Second),
			func(ctx context.Context) {
				hold(c.Mutex(fmt.Sprintf("shop:order:%d", 1000+rand.IntN(6))), 3*time.Second, 15*time.Second)(ctx)
			})
	}
	return work
}

// about returns a random time with mean d.
func about(d time.Duration) time.Duration { return d/2 + rand.N(d) }

// pause waits for d or until ctx is done, and reports whether d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
