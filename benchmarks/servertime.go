package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
)

// serverTime is what a server spends on one script, in µs, by commandstats: the first acquisition of a
// free lock and its release, with this library's scripts and with the same without a line.
type serverTime struct {
	acquire, release, linelessAcquire, linelessRelease float64
}

const (
	serverTimeNames   = 500 // locks in a batch
	serverTimeBatches = 31  // of each kind
)

// measureServerTime records what a lock and unlock sends to a node, and has it served again and again,
// many names in one pipeline: so nothing but the scripts is measured, not how a client's wake-ups push
// a server aside. Batches of either kind take turns, and the best quarter of them counts: what else the
// machine does makes a batch slower, never faster.
func measureServerTime(ctx context.Context, srv *servers) (serverTime, error) {
	ours, err := record(ctx, srv.all[0], serverTimeNames)
	if err != nil {
		return serverTime{}, err
	}
	lineless, err := linelessCommands(ctx, srv.all[0], serverTimeNames)
	if err != nil {
		return serverTime{}, err
	}
	// By kind: acquire, release, acquire without a line, release without a line.
	batches := [][][]any{ours.acquires, ours.releases, lineless.acquires, lineless.releases}
	times := make([][]float64, len(batches))
	for range serverTimeBatches {
		for kind, commands := range batches {
			if kind%2 == 0 {
				if err := srv.clear(ctx); err != nil {
					return serverTime{}, err
				}
			}
			t, err := srv.all[0].serve(ctx, commands)
			if err != nil {
				return serverTime{}, err
			}
			times[kind] = append(times[kind], t)
		}
	}
	for _, ts := range times {
		slices.Sort(ts)
	}
	const best = serverTimeBatches / 4
	return serverTime{times[0][best], times[1][best], times[2][best], times[3][best]}, nil
}

// serve runs the commands in one pipeline and returns the µs per script.
func (s *server) serve(ctx context.Context, commands [][]any) (float64, error) {
	one := servers{all: []*server{s}}
	before, err := one.commandStats(ctx)
	if err != nil {
		return 0, err
	}
	_, err = s.admin.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, c := range commands {
			p.Do(ctx, c...)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	after, err := one.commandStats(ctx)
	if err != nil {
		return 0, err
	}
	st := after.since(before, "evalsha")
	if st.calls != int64(len(commands)) {
		return 0, fmt.Errorf("%d scripts were run in place of %d", st.calls, len(commands))
	}
	return float64(st.usec) / float64(st.calls), nil
}

// commands are the arguments of what is sent to a node, in the order of the locks' names.
type commands struct{ acquires, releases [][]any }

func nameOf(i int) string { return fmt.Sprintf("time:%d", i) }

// record locks and unlocks names that nobody else wants, and returns what that sends. It fails if an
// uncontended lock or unlock ever sends more than one command to a node.
func record(ctx context.Context, s *server, names int) (commands, error) {
	rec := &recorder{}
	rdb := redis.NewClient(&redis.Options{Addr: s.addr})
	rdb.AddHook(rec)
	n := node.New(rdb)
	err := n.Err()
	if err != nil {
		return commands{}, errors.Join(err, rdb.Close())
	}
	var all commands
	for i := range names + 1 {
		lease, e := n.Mutex(nameOf(i - 1)).Lock(ctx)
		if err = e; err != nil {
			break
		}
		acquire := rec.take()
		if err = lease.Unlock(ctx); err != nil {
			break
		}
		release := rec.take()
		if i == 0 {
			continue // loads the scripts
		}
		if len(acquire) != 1 || len(release) != 1 {
			err = fmt.Errorf("a lock nobody wants takes %d commands to acquire and %d to release, not one each: %v %v", len(acquire), len(release), acquire, release)
			break
		}
		all.acquires = append(all.acquires, acquire[0])
		all.releases = append(all.releases, release[0])
	}
	return all, errors.Join(err, n.Close(), rdb.Close())
}

// linelessCommands are the same for the scripts without a line.
func linelessCommands(ctx context.Context, s *server, names int) (commands, error) {
	for _, script := range []*redis.Script{acquireScript, releaseScript} {
		if err := script.Load(ctx, s.admin).Err(); err != nil {
			return commands{}, err
		}
	}
	var all commands
	id := quorumlock.NewID()
	for i := range names {
		name, owner := nameOf(i), fmt.Sprintf("%s:%d", id, i)
		all.acquires = append(all.acquires, []any{"evalsha", acquireScript.Hash(), 2, name, "redisson_lock_token:{" + name + "}",
			owner, quorumlock.DefaultTTL.Milliseconds(), 1, time.Now().UnixMicro()})
		all.releases = append(all.releases, []any{"evalsha", releaseScript.Hash(), 1, name, owner, 1, "redisson_lock__channel:{" + name + "}"})
	}
	return all, nil
}

// recorder keeps the arguments of every command that a client sends.
type recorder struct {
	mu   sync.Mutex
	sent [][]any
}

var _ redis.Hook = (*recorder)(nil)

func (r *recorder) take() [][]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	sent := r.sent
	r.sent = nil
	return sent
}

func (r *recorder) keep(cmds ...redis.Cmder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, cmd := range cmds {
		r.sent = append(r.sent, cmd.Args())
	}
}

// DialHook implements [redis.Hook].
func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.keep(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.keep(cmds...)
		return next(ctx, cmds)
	}
}
