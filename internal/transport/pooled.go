package transport

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/errs/refusal"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Each call to a client that New was given uses a connection of the client's pool. The client's
// hooks, pool, limiter and, for a cluster, the slot of the key apply as for other commands.

// once is a command that go-redis must not retry: after a lost reply, the script may have run.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// sendAlone runs scripts in one round trip. It returns at ctx's deadline. For patient, see roundTrip.
func (n *Node) sendAlone(ctx context.Context, calls []wire.Call, patient bool) []wire.Reply {
	if n.prompt {
		replies := n.roundTrip(ctx, calls, patient)
		// The connection has the same deadline as ctx, and may reach it first.
		if deadline, ok := ctx.Deadline(); len(calls) > 0 && (ctx.Err() != nil || ok && !time.Now().Before(deadline)) {
			n.connect(string(calls[0].AppendKey(nil, 0)))
		}
		return replies
	}
	answered := make(chan []wire.Reply, 1)
	err := n.locks.Go(func() { answered <- n.roundTrip(ctx, calls, patient) })
	if err == nil {
		select {
		case replies := <-answered:
			return replies
		case <-ctx.Done(): // the goroutine ends with the client's own timeouts
			reload(n.client)
			err = n.usedUp(ctx.Err())
		}
	}
	return unanswered(calls, n.Failure(err, false))
}

// connect makes a connection for later calls, within the node's own timeout. It is called after a
// call on key has timed out, for a client that heeds deadlines. Such a client dials again with
// every call. If connecting takes longer than a call may take, no call would ever get a connection.
func (n *Node) connect(key string) {
	if !n.connecting.CompareAndSwap(false, true) {
		return
	}
	err := n.locks.Go(func() {
		defer n.connecting.Store(false)
		ctx, cancel := context.WithTimeout(n.open, n.config.Timeout)
		defer cancel()
		// An error is dropped: the next call finds out. A cluster has a server for each key.
		cluster, ok := n.client.(*redis.ClusterClient)
		if !ok {
			_ = n.client.Ping(ctx).Err()
		} else if server, err := cluster.MasterForKey(ctx, key); err == nil {
			_ = server.Ping(ctx).Err()
		}
	})
	if err != nil { // the node is closed
		n.connecting.Store(false)
	}
}

// roundTrip calls the scripts by their SHAs. It sends a call again only if the call has not run: with
// the source of a script that the node does not know, and after a pause while the slot of its keys
// moves. Without patience, a call whose slot moves fails.
func (n *Node) roundTrip(ctx context.Context, calls []wire.Call, patient bool) []wire.Reply {
	if n.cluster {
		n.askForShards(ctx)
	}
	cmds, todo := make([]once, len(calls)), make([]int, len(calls))
	for i, c := range calls {
		cmds[i], todo[i] = alone(ctx, "evalsha", n.scriptFor(c.Script).SHA(), c), i
	}
	last := make(map[[2]string]int) // by waiter and lock, the last call that is over
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		n.process(ctx, cmds, todo)
		sent, moves := todo, false
		todo = nil
		for _, i := range slices.Backward(sent) {
			err, whose := cmds[i].Err(), [2]string{calls[i].Waiter(), calls[i].Lock()}
			isUnknown := err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") && cmds[i].Name() == "evalsha"
			isMoving := err != nil && patient && n.cluster && isMoving(err)
			isOvertaken := calls[i].Begins() && last[whose] > i // its waiter may have left since
			if !isUnknown && !isMoving || isOvertaken {
				last[whose] = max(last[whose], i)
				continue
			}
			if todo, moves = append(todo, i), moves || isMoving; isUnknown {
				cmds[i] = alone(ctx, "eval", n.scriptFor(calls[i].Script).Source, calls[i])
			}
		}
		if len(todo) == 0 || moves && !n.sleep(ctx, pause) {
			break
		}
		slices.Reverse(todo)
	}

	replies := make([]wire.Reply, len(calls))
	for i, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			said := newServerError(err.Error())
			why, _ := refusal.Of(said)
			switch {
			case !answered(err):
				reload(n.client)
				err = n.usedUp(err)
			case n.cluster && why.Kind == refusal.Stopped: // it deleted a key that another server may now make
				err = cutOff{said}
			case string(said) != err.Error():
				err = said
				if says(said, "READONLY") {
					n.leaveReplica(ctx, string(calls[i].AppendKey(nil, 0)))
				}
			}
			replies[i].Err = n.Failure(err, errors.Is(ctx.Err(), context.DeadlineExceeded))
			continue
		}
		replies[i].Value = cmd.Val()
	}
	return replies
}

// The pauses between two tries of a call whose slot moves.
const (
	firstPause = 4 * time.Millisecond
	lastPause  = 128 * time.Millisecond
)

// isMoving reports whether a server of a cluster has not run a call because its slot moves, or has
// moved. go-redis follows MOVED and ASK at once, but gives up after some of them. It does not repeat
// a call after TRYAGAIN: some keys of the call are at one server, or will be, and some at another
// (redis.io, "Redis cluster specification").
func isMoving(err error) bool {
	return slices.ContainsFunc([]string{"MOVED ", "ASK ", "TRYAGAIN "}, func(code string) bool { return redis.HasErrorPrefix(err, code) })
}

// sleep waits for a pause, and reports whether to go on. It returns false at once if ctx would end
// first.
func (n *Node) sleep(ctx context.Context, pause time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return false
	}
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
	case <-n.open.Done():
	}
	return false
}

// leaveReplica makes the client leave a server that has become a replica. go-redis leaves after a
// READONLY error, but before Redis 7 does not recognize that error from a script. So leaveReplica
// sends a write outside a script. On a master the write changes nothing, because no lock has that
// field. go-redis most likely uses the same connection for the write, and then closes that
// connection.
func (n *Node) leaveReplica(ctx context.Context, key string) {
	if n.cluster {
		reload(n.client)
		return
	}
	_ = n.client.Process(ctx, once{redis.NewCmd(ctx, "hdel", key, "")})
}

// usedUp adds an exhausted pool of the client as the reason to the error of an unanswered call.
func (n *Node) usedUp(err error) error {
	c, ok := n.client.(*redis.Client)
	if !ok {
		return err
	}
	if s := c.PoolStats(); s.IdleConns > 0 || int(s.TotalConns) < c.Options().PoolSize {
		return err
	}
	return fmt.Errorf("all %d connections of the client's pool are in use: %w", c.Options().PoolSize, err)
}

// reload makes a cluster client reload its map of servers in the background. It is called after a
// failed connection, because a replica may have replaced the server. go-redis alone would use the
// old server for up to a minute.
func reload(client redis.UniversalClient) {
	if c, ok := client.(*redis.ClusterClient); ok {
		c.ReloadState(context.Background())
	}
}

func alone(ctx context.Context, verb, script string, c wire.Call) once {
	keys, argv := c.Keys(), c.Args()
	args := make([]any, 0, 3+len(keys)+len(argv))
	args = append(args, verb, script, len(keys))
	for _, k := range keys {
		args = append(args, k)
	}
	for _, a := range argv {
		args = append(args, a)
	}
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return once{cmd}
}

// process sends the commands at these indices.
func (n *Node) process(ctx context.Context, cmds []once, at []int) {
	if len(at) == 1 {
		_ = n.client.Process(ctx, cmds[at[0]]) // the command keeps its error
		return
	}
	pipe := n.client.Pipeline()
	for _, i := range at {
		_ = pipe.Process(ctx, cmds[i])
	}
	_, _ = pipe.Exec(ctx)
}
