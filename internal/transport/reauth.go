package transport

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// Credentials are a user and a password. See node.Credentials.
type Credentials struct {
	User, Password string
	Expires        time.Time // zero: never
}

// A server may close a connection whose credentials have expired. So each lane sends AUTH with new
// credentials in time, as one of its calls. The connection of subscriptions is replaced instead:
// go-redis sends no AUTH on it.

// refreshPause is the shortest pause between two refreshes of a connection's credentials.
const refreshPause = 10 * time.Second

// untilRefresh returns the time until new credentials are needed. A quarter of the time is left for
// failures, and for caches that return the same credentials until shortly before they expire. Nodes
// differ by up to an eighth: a slow AUTH, which may cost a connection, must not meet a quorum.
func (n *Node) untilRefresh(expires time.Time) time.Duration {
	name := fnv.New32a()
	_, _ = name.Write([]byte(n.String())) // never fails
	d := time.Until(expires)
	return max(d-d/4-d/8000*time.Duration(name.Sum32()%1000), refreshPause)
}

// provider returns Credentials for go-redis, or nil if there is none. got receives the credentials
// of each new connection.
func (n *Node) provider(got func(Credentials)) func(context.Context) (user, password string, err error) {
	ask := n.config.Credentials
	if ask == nil {
		return nil
	}
	return func(ctx context.Context) (user, password string, err error) {
		c, err := n.credentials(ctx)
		if err == nil {
			got(c)
		}
		return c.User, c.Password, err
	}
}

// credentials calls the function of WithCredentials, and returns when ctx is done. Not every such
// function heeds its ctx.
func (n *Node) credentials(ctx context.Context) (Credentials, error) {
	if err := begin(ctx, n.asking); err != nil {
		return Credentials{}, err
	}
	var c Credentials
	answered := make(chan error, 1)
	go func() {
		var err error
		defer func() {
			<-n.asking
			if r := recover(); r != nil {
				err = fmt.Errorf("the function of WithCredentials panicked: %v", r)
			}
			answered <- err
		}()
		c, err = n.config.Credentials(ctx)
	}()
	select {
	case err := <-answered:
		return c, err
	case <-ctx.Done():
		return Credentials{}, ctx.Err()
	}
}

// accepted reports whether a new connection is accepted, with new credentials.
func (n *Node) accepted(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, n.connectLimit)
	defer cancel()
	works := false
	_ = n.With(ctx, func(conn redis.Cmdable) { works = conn.Ping(ctx).Err() == nil })
	return works
}

// keepAuthenticated sends AUTH on a connection, each time before its credentials expire, until stop
// is called.
func (l *lane) keepAuthenticated(k *connection) (stop func()) {
	ctx, cancel := context.WithCancel(l.ctx)
	expires := k.expires
	l.node.workers.Go(func() error {
		for !expires.IsZero() {
			select {
			case <-time.After(l.node.untilRefresh(expires)):
			case <-ctx.Done():
				return nil
			}
			if until, err := l.reauthenticate(ctx, k); err == nil {
				expires = until
			}
		}
		return nil
	})
	return cancel
}

// reauthenticate sends AUTH with new credentials, and returns their expiry. After a refusal the
// connection still has its old credentials, and is used until the server closes it. It is replaced
// earlier only if the new credentials work on another connection.
func (l *lane) reauthenticate(ctx context.Context, k *connection) (expires time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.node.connectLimit)
	defer cancel()
	c, err := l.node.credentials(ctx)
	switch {
	case err != nil:
		return time.Time{}, err
	case ctx.Err() != nil: // the connection has ended meanwhile
		return time.Time{}, ctx.Err()
	case c.Password == "": // go-redis sends no AUTH, either
		return c.Expires, nil
	}
	done := make(chan error, 1)
	l.add(newAuth(l, c, func(rs []wire.Reply) { done <- rs[0].Err }), nil)
	if err = <-done; err == nil {
		return c.Expires, nil
	}
	if _, refused := errors.AsType[redis.Error](err); refused && l.node.accepted(ctx) {
		l.retire(k)
	}
	return time.Time{}, err
}

// newAuth returns a request to send AUTH.
func newAuth(l *lane, c Credentials, answer func([]wire.Reply)) *request {
	args := []string{"auth", c.User, c.Password}
	if c.User == "" {
		args = []string{"auth", c.Password}
	}
	return newOther(l, args, answer)
}

// newOther returns a request to send a command that is no script.
func newOther(l *lane, args []string, answer func([]wire.Reply)) *request {
	sent := appendArray(nil, len(args))
	for _, arg := range args {
		sent = appendBulk(sent, arg)
	}
	t := newRequest(l, l.node.connectLimit, nil, answer)
	t.cmds = []*command{{request: t, script: &wire.Script{}, sent: sent}}
	t.replies, t.left, t.size = make([]wire.Reply, 1), 1, len(sent)
	t.limit = l.node.config.Timeout // it must not keep the calls beside it waiting for longer
	return t
}

// retire ends a connection after the pipelines under way. Queued calls wait for a new one.
func (l *lane) retire(k *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.stale = true
	if l.conn == k && len(l.underWay) == 0 {
		l.cut(k, errStale)
	}
}

// authenticates records the latest credentials of subscriptions.
func (n *Node) authenticates(c Credentials) {
	h := &n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refresh = time.Time{}
	if !c.Expires.IsZero() {
		h.refresh = time.Now().Add(n.untilRefresh(c.Expires))
	}
}

// expiring returns a channel that fires when the connection needs new credentials, nil if never.
func (h *hub) expiring() <-chan time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refresh.IsZero() {
		return nil
	}
	return time.After(time.Until(h.refresh))
}

// testCredentials reports in a channel whether the server accepts new credentials.
func (h *hub) testCredentials() <-chan bool {
	accepted := make(chan bool, 1)
	h.finished.Go(func() { accepted <- h.accepted(h.open) })
	return accepted
}
