package transport

import (
	"bytes"
	"container/list"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs/refusal"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Each call to a client that New was given uses a connection of the client's pool. The client's
// hooks, pool, limiter and, for a cluster, the slot of the key apply as for other commands.

// once is a command that go-redis must not retry: after a lost reply, the script may have run.
type once struct{ *redis.Cmd }

func (once) NoRetry() bool { return true }

// pool keeps track of the requests that use a connection of the client, and of those that wait for
// one. A request whose time ends while it waits is never sent. An attempt and its release that meet in
// the queue are not sent either. So a node that is slower than its callers does no work for callers
// that have left.
type pool struct {
	mu       sync.Mutex
	free     int              // connections that no request uses; plenty if the client has several pools
	unsent   map[*turn]bool   // the requests that have no connection yet
	attempts map[string]*turn // those of them that are first attempts, by waiter
	waits    [2]list.List     // of *turn, by lane: the requests that wait for a connection
	sent     list.List        // of *turn, in the order of sending
}

// turn is the use of a connection by a request.
type turn struct {
	*silence
	waiter   string        // of a first attempt
	calls    []wire.Call   // of a first attempt
	come     chan struct{} // closed when there is a connection, or the attempt is recalled
	recalled bool
	at       *list.Element // in one of the lists
}

// init sets the number of connections that the client may have.
func (p *pool) init(rdb redis.UniversalClient) {
	p.unsent, p.attempts, p.free = make(map[*turn]bool), make(map[string]*turn), math.MaxInt32
	if c, ok := rdb.(*redis.Client); ok { // a cluster has a pool for each server
		p.free = c.Options().PoolSize
		if most := c.Options().MaxActiveConns; most > 0 {
			p.free = min(p.free, most)
		}
	}
}

// listen returns the turn of a request that is yet to be sent. End it with stop. It returns nil if the
// calls release all that an unsent attempt would take: then neither the attempt nor the release is
// sent. Any other call of the waiter makes its attempt final.
func (p *pool) listen(ctx context.Context, limit time.Duration, calls []wire.Call) *turn {
	same := func(a, b wire.Call) bool { return bytes.Equal(a.AppendKey(nil, 0), b.AppendKey(nil, 0)) }
	waiter := calls[0].Waiter()
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.attempts[waiter]
	delete(p.attempts, waiter)
	if a != nil && all(calls, (*wire.Call).GivesBack) && slices.EqualFunc(a.calls, calls, same) {
		p.forget(a)
		a.recalled = true
		close(a.come)
		return nil
	}
	t := &turn{silence: newSilence(ctx, limit), come: make(chan struct{})}
	p.unsent[t] = true
	if a == nil && waiter != "" && all(calls, (*wire.Call).IsFirst) {
		t.waiter, t.calls = waiter, calls
		p.attempts[waiter] = t
	}
	return t
}

func (p *pool) stop(t *turn) {
	t.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(t)
}

// forget makes a turn one that cannot be recalled. The caller holds mu.
func (p *pool) forget(t *turn) {
	delete(p.unsent, t)
	if p.attempts[t.waiter] == t {
		delete(p.attempts, t.waiter)
	}
}

// enter waits for a connection, and reports whether there is one. It gives up once the silence or open
// ends. Calls of the background go first.
func (p *pool) enter(open context.Context, lane client.Lane, t *turn) bool {
	p.mu.Lock()
	if !t.recalled {
		t.at = p.waits[lane].PushBack(t)
		p.next()
	}
	p.mu.Unlock()
	select {
	case <-t.come:
	case <-t.Done():
	case <-open.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	has := false
	select {
	case <-t.come:
		has = !t.recalled
	default:
	}
	switch {
	case has && t.Err() == nil:
		return true
	case has:
		p.end(t)
	case t.at != nil:
		p.waits[lane].Remove(t.at)
	}
	p.forget(t) // from here on nobody recalls it
	return false
}

// next gives the free connections to calls that wait. The caller holds mu.
func (p *pool) next() {
	for _, lane := range []client.Lane{client.Background, client.Foreground} {
		line := &p.waits[lane]
		for line.Len() > 0 && p.free > 0 {
			t := line.Remove(line.Front()).(*turn)
			if t.recalled {
				continue
			}
			p.forget(t)
			t.heard() // the limit begins with the sending
			t.at = p.sent.PushBack(t)
			p.free--
			close(t.come)
		}
	}
}

// leave gives the connection back. An answer begins anew the limits of all calls that were sent
// later, or are yet to be sent: the node serves its calls in turn.
func (p *pool) leave(t *turn, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if answered {
		for e := t.at.Next(); e != nil; e = e.Next() {
			e.Value.(*turn).heard()
		}
		for other := range p.unsent {
			other.heard()
		}
	}
	p.end(t)
}

// end gives the connection back. The caller holds mu.
func (p *pool) end(t *turn) {
	p.sent.Remove(t.at)
	p.free++
	p.next()
}

// sending is the ctx of a call for go-redis, which waits for a connection until the silence ends. Once
// the call is sent, only the deadline counts, or the client's ReadTimeout without
// ContextTimeoutEnabled. So a late answer does not cost the connection.
type sending struct {
	*silence
	deadline time.Time
}

func (s sending) Deadline() (time.Time, bool) { return s.deadline, true }

func (s sending) Err() error {
	if s.silence.Err() != nil {
		return context.DeadlineExceeded
	}
	return nil
}

// sendAlone runs scripts in one round trip. It returns once the silence ends, or the node is closed.
// For patient, see roundTrip.
func (n *Node) sendAlone(lane client.Lane, t *turn, limit time.Duration, calls []wire.Call, patient bool) []wire.Reply {
	if !n.pool.enter(n.open, lane, t) {
		switch {
		case t.recalled:
			return unanswered(calls, n.target.Load().recalled)
		case t.Err() == nil:
			return unanswered(calls, n.Failure(notSent{quorumlock.ErrClosed}, false))
		}
		return unanswered(calls, n.Failure(n.usedUp(errUnsent), true))
	}
	answers := make(chan []wire.Reply, 1)
	err := n.locks.Aside(func() {
		replies, serves := n.inParts(t, limit, calls, patient)
		n.pool.leave(t, serves)
		answers <- replies
	})
	if err != nil {
		n.pool.leave(t, false)
		return unanswered(calls, n.Failure(notSent{err}, false))
	}
	select {
	case replies := <-answers:
		return replies
	case <-t.Done():
		reload(n.client)
		err = n.usedUp(context.DeadlineExceeded)
	case <-n.open.Done():
		err = quorumlock.ErrClosed
	}
	return unanswered(calls, n.Failure(err, false))
}

// firstPart is the number of calls in the first part of a request: see inParts.
const firstPart = 16

// inParts runs scripts in several round trips if they are many. The answer to a part begins the limit
// anew: while go-redis reads a long pipeline, nobody sees that the node answers. Each part is twice as
// long as the one before it, but half as long if that one took much of the limit.
func (n *Node) inParts(t *turn, limit time.Duration, calls []wire.Call, patient bool) (replies []wire.Reply, serves bool) {
	for part := firstPart; len(calls) > 0 && t.Err() == nil; {
		now, some := time.Now(), calls[:min(part, len(calls))]
		ctx := sending{t.silence, now.Add(max(limit, n.config.Timeout, maxPatience))}
		r, ok := n.roundTrip(ctx, now.Add(limit), some, patient)
		replies, calls = append(replies, r...), calls[len(some):]
		if !ok {
			break
		}
		t.heard()
		serves = true
		if part *= 2; time.Since(now) > limit/8 {
			part = max(part/4, 1)
		}
	}
	return append(replies, unanswered(calls, n.Failure(n.usedUp(errUnsent), t.Err() != nil))...), serves
}

// roundTrip calls the scripts by their SHAs. It sends a call again only if the call has not run: with
// the source of a script that the node does not know, and after a pause while the slot of its keys
// moves, but not later than until, and not once ctx is done. Without patience, a call whose slot moves
// fails. serves reports that a server has answered.
func (n *Node) roundTrip(ctx context.Context, until time.Time, calls []wire.Call, patient bool) (replies []wire.Reply, serves bool) {
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
		if len(todo) == 0 || ctx.Err() != nil || moves && !n.sleep(ctx, until, pause) {
			break
		}
		slices.Reverse(todo)
	}

	replies = make([]wire.Reply, len(calls))
	for i, cmd := range cmds {
		serves = serves || cmd.Err() == nil || answered(cmd.Err())
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
					n.leaveReplica(string(calls[i].AppendKey(nil, 0)))
				}
			}
			replies[i].Err = n.Failure(err, errors.Is(ctx.Err(), context.DeadlineExceeded))
			continue
		}
		replies[i].Value = cmd.Val()
	}
	return replies, serves
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
func (n *Node) leaveReplica(key string) {
	if n.cluster {
		reload(n.client)
		return
	}
	ctx, cancel := context.WithTimeout(n.open, n.config.Timeout) // the call's own may be over
	defer cancel()
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
