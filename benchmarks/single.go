package main

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// duel measures two clients in turns: whatever slows the machine down slows both.
type duel struct {
	srv          *servers
	one, other   client
	ones, others sample
	turns        int
}

func newDuel(srv *servers, one, other func([]string) (client, error)) (*duel, error) {
	a, err := one(srv.addrs())
	if err != nil {
		return nil, err
	}
	b, err := other(srv.addrs())
	if err != nil {
		return nil, errors.Join(err, a.close())
	}
	return &duel{srv: srv, one: a, other: b}, nil
}

// turn measures one lock and unlock of each; who goes first changes with every turn. What one has left
// under way, such as the answers of nodes it did not wait for, is over before the other begins.
func (d *duel) turn(ctx context.Context) error {
	d.turns++
	steps := []func() error{
		func() error { return d.step(ctx, d.one, "one", &d.ones) },
		func() error { return d.step(ctx, d.other, "other", &d.others) },
	}
	first := d.turns % 2
	return errors.Join(steps[first](), steps[1-first]())
}

func (d *duel) step(ctx context.Context, c client, name string, into *sample) error {
	took, err := lockUnlock(ctx, c, "duel:"+name)
	if err != nil {
		return err
	}
	*into = append(*into, took)
	return d.srv.settle(ctx)
}

// reset forgets what was measured, after a warm-up.
func (d *duel) reset() { d.ones, d.others = nil, nil }

func (d *duel) close() error { return errors.Join(d.one.close(), d.other.close()) }

// slowNode measures a client whose nodes are healthy against one that has the last of them far away.
type slowNode struct {
	proxy         *slowProxy
	healthy, slow client
	pace          time.Duration // from one lock to the next; 0: back to back
	healthySample sample
	slowSample    sample
	idle          int // goroutines when nothing is under way
}

func newSlowNode(srv *servers, delay, pace time.Duration) (*slowNode, error) {
	addrs := srv.addrs()
	p, err := startSlowProxy(addrs[len(addrs)-1], delay)
	if err != nil {
		return nil, err
	}
	far := append(addrs[:len(addrs)-1:len(addrs)-1], p.addr())
	healthy, err := openQuorumlock(addrs)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	slow, err := openQuorumlock(far)
	if err != nil {
		return nil, errors.Join(err, healthy.close(), p.close())
	}
	return &slowNode{proxy: p, healthy: healthy, slow: slow, pace: pace}, nil
}

// block measures n of the healthy, then n with the slow node, and waits until the latter's stragglers
// are gone: they would slow the next of the healthy.
func (s *slowNode) block(ctx context.Context, n int) error {
	if err := s.some(ctx, s.healthy, n, &s.healthySample); err != nil {
		return err
	}
	s.idle = runtime.NumGoroutine()
	if err := s.some(ctx, s.slow, n, &s.slowSample); err != nil {
		return err
	}
	return s.drain(ctx)
}

func (s *slowNode) some(ctx context.Context, c client, n int, into *sample) error {
	for range n {
		took, err := lockUnlock(ctx, c, "slow")
		if err != nil {
			return err
		}
		*into = append(*into, took)
		if s.pace > 0 {
			if err := pause(ctx, s.pace-took); err != nil {
				return err
			}
		}
	}
	return nil
}

// drain waits until no more goroutines run than the proxied connections need, for 3 s at most.
func (s *slowNode) drain(ctx context.Context) error {
	last := 0
	for range 30 {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		now := runtime.NumGoroutine()
		if now == last || now <= s.idle {
			return nil
		}
		last = now
	}
	return nil
}

func (s *slowNode) reset() { s.healthySample, s.slowSample = nil, nil }

func (s *slowNode) close() error {
	return errors.Join(s.healthy.close(), s.slow.close(), s.proxy.close())
}
