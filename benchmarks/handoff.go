package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// handoff measures the time from one client's Unlock returning to another's Lock returning, and, in
// turns with it, the round trip of a raw EVALSHA.
type handoff struct {
	srv     *servers
	clients []client
	raw     *plainClient

	delays, one, all sample // the handoff; an EVALSHA at one node; at all nodes, waiting for all
	turns            int
}

func newHandoff(srv *servers, v variant) (*handoff, error) {
	clients, err := openAll(v, srv.addrs(), 2)
	if err != nil {
		return nil, err
	}
	return &handoff{srv: srv, clients: clients, raw: &plainClient{plainClients(srv.addrs())}}, nil
}

// standing is for how long the holder holds, so that the next is in line and asleep.
const standing = 10 * time.Millisecond

// handoffPatience bounds one handoff.
const handoffPatience = 10 * time.Second

func (h *handoff) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, handoffPatience)
	defer cancel()
	holder, next := h.clients[h.turns%2], h.clients[1-h.turns%2]
	h.turns++
	delay, err := passOn(ctx, holder, next)
	if err != nil {
		return err
	}
	h.delays = append(h.delays, delay)
	if err := h.srv.settle(ctx); err != nil {
		return err
	}
	return h.measureRaw(ctx)
}

func passOn(ctx context.Context, holder, next client) (time.Duration, error) {
	unlock, err := holder.lock(ctx, "handoff")
	if err != nil {
		return 0, err
	}
	type result struct {
		at     time.Time
		unlock func(context.Context) error
		err    error
	}
	got := make(chan result, 1)
	go func() {
		u, err := next.lock(ctx, "handoff")
		got <- result{time.Now(), u, err}
	}()
	err = pause(ctx, standing)
	err = errors.Join(err, unlock(ctx))
	left := time.Now()
	r := <-got // lock returns at the end of ctx at the latest
	if err := errors.Join(err, r.err); err != nil {
		return 0, err
	}
	return max(r.at.Sub(left), 0), r.unlock(ctx)
}

// measureRaw runs a script that finds nothing to do, and so costs as little as a script can.
func (h *handoff) measureRaw(ctx context.Context) error {
	run := func(rdb *redis.Client) error {
		return releaseScript.Run(ctx, rdb, []string{"nobody's"}, "nobody", 1, "nowhere").Err()
	}
	start := time.Now()
	if err := run(h.raw.clients[h.turns%len(h.raw.clients)]); err != nil {
		return err
	}
	h.one = append(h.one, time.Since(start))
	start = time.Now()
	err := h.raw.all(run)
	h.all = append(h.all, time.Since(start))
	return err
}

func (h *handoff) reset() { h.delays, h.one, h.all = nil, nil, nil }

func (h *handoff) close() error { return errors.Join(closeAll(h.clients), h.raw.close()) }
