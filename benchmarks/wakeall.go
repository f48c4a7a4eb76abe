package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/scripts"
)

// wakeAll is the lock as Redisson waits for it: every waiter listens for releases, and every release
// wakes them all. It is made from the primitives of a node and has no line.
//
// It is kinder to the nodes than a plain composition of Redisson's locks would be, so that the
// comparison is with the idea and not with its mistakes: it stays subscribed from one wait to the next,
// what a contender without a quorum gives back wakes nobody, and who had a share of the votes tries
// again after a random pause while those who had none sleep until the next release.
type wakeAll struct {
	nodes []*node.Node

	mu    sync.Mutex
	name  string
	stops []func()
	heard chan struct{} // capacity 1: a release, or that one may have been missed
}

func openWakeAll(addrs []string) (client, error) {
	nodes, err := dialNodes(addrs)
	if err != nil {
		return nil, err
	}
	return &wakeAll{nodes: nodes, heard: make(chan struct{}, 1)}, nil
}

const wakeAllTTL = quorumlock.DefaultTTL

// splitPause is the longest pause of a contender that won some nodes but no quorum.
const splitPause = 10 * time.Millisecond

// lock is for one caller at a time: a contender has a client of its own.
func (w *wakeAll) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		w.forgetHeard()
		owner := quorumlock.NewOwner()
		granted, sleep := w.attempt(ctx, name, owner)
		if len(granted) > len(w.nodes)/2 {
			return func(ctx context.Context) error { return w.release(ctx, granted, name, owner) }, nil
		}
		heard := w.heard
		if len(granted) > 0 {
			if err := w.giveBack(ctx, granted, name, owner); err != nil {
				return nil, err
			}
			heard, sleep = nil, rand.N(splitPause)
		}
		if w.listen(name) {
			continue // what was told before it listened is missed
		}
		select {
		case <-heard:
		case <-time.After(max(sleep, time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// forgetHeard drops a wake-up from before the attempt that follows.
func (w *wakeAll) forgetHeard() {
	select {
	case <-w.heard:
	default:
	}
}

// giveBack frees what an attempt has won in vain, without a word to anybody.
func (w *wakeAll) giveBack(ctx context.Context, nodes []*node.Node, name string, owner quorumlock.Owner) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), node.DefaultTimeout)
	defer cancel()
	return each(nodes, func(n *node.Node) error {
		return n.Client().Eval(ctx, "return redis.call('hdel', KEYS[1], ARGV[1])", []string{name}, string(owner)).Err()
	})
}

// attempt asks all nodes at once and returns those that granted, and for how long yet the lock is held
// at those that refused.
func (w *wakeAll) attempt(ctx context.Context, name string, owner quorumlock.Owner) (granted []*node.Node, ttl time.Duration) {
	type vote struct {
		node   *node.Node
		answer scripts.Answer
	}
	votes := make(chan vote, len(w.nodes))
	for _, n := range w.nodes {
		go func() {
			a, err := n.Acquire(ctx, name, owner, wakeAllTTL, 1)
			if err != nil {
				a = scripts.Answer{} // the node undoes what it may have done
			}
			votes <- vote{n, a}
		}()
	}
	for range w.nodes {
		v := <-votes
		if v.answer.Granted {
			granted = append(granted, v.node)
		}
		ttl = max(ttl, v.answer.TTL)
	}
	return granted, ttl
}

// release frees the lock at the nodes and wakes all who wait, even when ctx is done.
func (w *wakeAll) release(ctx context.Context, nodes []*node.Node, name string, owner quorumlock.Owner) error {
	ctx = context.WithoutCancel(ctx)
	return each(nodes, func(n *node.Node) error {
		_, err := n.Release(ctx, name, owner, 1)
		return err
	})
}

// each runs f for all nodes at once and waits for all of them.
func each(nodes []*node.Node, f func(*node.Node) error) error {
	errs := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() { errs <- f(n) }()
	}
	var err error
	for range nodes {
		err = errors.Join(err, <-errs)
	}
	return err
}

// listen subscribes to the releases of a lock and reports whether it was not yet.
func (w *wakeAll) listen(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.name == name {
		return false
	}
	w.forget()
	w.name = name
	for _, n := range w.nodes {
		w.stops = append(w.stops, n.Listen(scripts.UnlockChannel(name), func(string) {
			select {
			case w.heard <- struct{}{}:
			default:
			}
		}))
	}
	return true
}

func (w *wakeAll) forget() {
	for _, stop := range w.stops {
		stop()
	}
	w.stops, w.name = nil, ""
}

func (w *wakeAll) close() error {
	w.mu.Lock()
	w.forget()
	w.mu.Unlock()
	var err error
	for _, n := range w.nodes {
		err = errors.Join(err, n.Close())
	}
	return err
}
