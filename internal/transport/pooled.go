package transport

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs/refusal"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Each call to a client that New was given uses a connection of the client's pool. The client's
// hooks, pool, limiter and, for a cluster, the slot of the key apply as for other commands.

// once is a command that go-redis must not retry: after a lost reply, the script may have run.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// pool has the calls that use connections of the client, and those that wait for one. So a call that
// is given up while it waits is never sent, and a node that is slower than its callers does no work
// for callers that have left.
type pool struct {
	mu      sync.Mutex
	size    int               // connections of the client; 0 if it has several pools
	most    int               // of these may be in use now: see leave
	changed time.Time         // when most was last halved
	unsent  map[*silence]bool // of the calls that have no connection yet
	waits   [2]list.List      // of *turn, by lane: the calls that wait for a connection
	sent    list.List         // of *turn, in the order of sending
}

// turn is the use of a connection.
type turn struct {
	quiet *silence
	limit time.Duration
	come  chan struct{} // closed when there is a connection
	begun time.Time     // when it was closed
	at    *list.Element // in one of the lists
}

// init sets the number of connections that the client may have.
func (p *pool) init(rdb redis.UniversalClient) {
	p.unsent = make(map[*silence]bool)
	c, ok := rdb.(*redis.Client)
	if !ok { // a cluster has a pool for each server
		return
	}
	p.size = c.Options().PoolSize
	if most := c.Options().MaxActiveConns; most > 0 {
		p.size = min(p.size, most)
	}
	p.most = p.size
}

// listen returns the silence of a call that is yet to be sent. End it with stop.
func (p *pool) listen(ctx context.Context, limit time.Duration) *silence {
	quiet := newSilence(ctx, limit)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unsent[quiet] = true
	return quiet
}

func (p *pool) stop(quiet *silence) {
	quiet.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.unsent, quiet)
}

// enter waits for a connection, ahead of the foreground's calls for a call of the background. It
// returns nil if the silence ends first.
func (p *pool) enter(lane client.Lane, quiet *silence, limit time.Duration) *turn {
	t := &turn{quiet: quiet, limit: limit, come: make(chan struct{})}
	p.mu.Lock()
	t.at = p.waits[lane].PushBack(t)
	p.next()
	p.mu.Unlock()
	select {
	case <-t.come:
		return t
	case <-quiet.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-t.come:
		return t
	default:
		p.waits[lane].Remove(t.at)
		return nil
	}
}

// next gives the free connections to calls that wait. The caller holds mu.
func (p *pool) next() {
	for _, lane := range []client.Lane{client.Background, client.Foreground} {
		line := &p.waits[lane]
		for line.Len() > 0 && (p.size == 0 || p.sent.Len() < p.most) {
			t := line.Remove(line.Front()).(*turn)
			delete(p.unsent, t.quiet)
			t.at, t.begun = p.sent.PushBack(t), time.Now()
			close(t.come)
		}
	}
}

// leave gives the connection back. An answer begins anew the limits of all calls that were sent
// later, or are yet to be sent: the node serves its calls in turn.
//
// If an answer takes much of the limit, fewer connections are used: many clients together would
// otherwise ask a slow node for more than it can answer in time. Their number is halved once a
// round trip, and rises by one with each quick answer.
func (p *pool) leave(t *turn, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch took := now.Sub(t.begun); {
	case took < t.limit/8 && answered:
		p.most = min(p.most+1, p.size)
	case took > t.limit/4 && t.begun.After(p.changed):
		p.most, p.changed = max(p.most/2, 1), now
	}
	if answered {
		for e := t.at.Next(); e != nil; e = e.Next() {
			e.Value.(*turn).quiet.heard()
		}
		for quiet := range p.unsent {
			quiet.heard()
		}
	}
	p.sent.Remove(t.at)
	p.next()
}

// sendAlone runs scripts in one round trip. It returns once the silence ends. Then the client still
// reads the answer, for maxPatience at most, so that a slow node does not lose its connections. For
// patient, see roundTrip.
func (n *Node) sendAlone(lane client.Lane, quiet *silence, limit time.Duration, calls []wire.Call, patient bool) []wire.Reply {
	t := n.pool.enter(lane, quiet, limit)
	if t == nil {
		return unanswered(calls, n.Failure(n.usedUp(errUnsent), true))
	}
	answers, until := make(chan []wire.Reply, 1), time.Now().Add(limit)
	err := n.locks.Go(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(quiet), max(limit, maxPatience))
		defer cancel()
		replies := n.roundTrip(ctx, until, calls, patient)
		n.pool.leave(t, slices.ContainsFunc(replies, func(r wire.Reply) bool { return r.Err == nil || answered(errors.Unwrap(r.Err)) }))
		answers <- replies
	})
	if err != nil {
		n.pool.leave(t, false)
		return unanswered(calls, n.Failure(err, false))
	}
	select {
	case replies := <-answers:
		return replies
	case <-quiet.Done():
		reload(n.client)
		return unanswered(calls, n.Failure(n.usedUp(context.DeadlineExceeded), false))
	}
}

// roundTrip calls the scripts by their SHAs. It sends a call again only if the call has not run: with
// the source of a script that the node does not know, and after a pause while the slot of its keys
// moves, but not later than until. Without patience, a call whose slot moves fails.
func (n *Node) roundTrip(ctx context.Context, until time.Time, calls []wire.Call, patient bool) []wire.Reply {
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
		if len(todo) == 0 || moves && !n.sleep(ctx, until, pause) {
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

// sleep waits for a pause, and reports whether to go on. It returns false at once if it would end too
// late.
func (n *Node) sleep(ctx context.Context, until time.Time, pause time.Duration) bool {
	if time.Until(until) <= pause {
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
