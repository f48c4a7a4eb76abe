package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
)

// A lane dials, go-redis shakes hands (HELLO, AUTH, SELECT), and then the lane takes the
// connection. go-redis sees only a guard.

// connection is the connection of a lane.
type connection struct {
	net.Conn
	replies reader

	server      string        // its run ID; empty if it is unknown
	title       *string       // the name that the server shows; nil for none
	standsAlone bool          // the server may get bundles
	expires     time.Time     // of its credentials; zero: never
	shook       time.Duration // how long the handshake took

	// Of the lane's mutex.
	trip   time.Duration // the shortest round trip so far
	source bool          // the next bundle carries its source
	stale  bool          // sends no more pipelines, and ends after those under way
	cause  error         // the reason why it is unusable; nil while it is usable
}

// slow returns how long the server may be silent on the connection by its round trips so far, even
// if a call may take less. More connections would make a slow server slower.
func (k *connection) slow() time.Duration {
	if k.trip == unknownTrip {
		return 2 * k.shook
	}
	return min(2*k.shook, 8*k.trip)
}

// dialled is the result of a dialer.
type dialled struct {
	conn net.Conn
	to   *target
	err  error
}

// maxHung limits the calls of a user's dialer, and those of the function of WithCredentials, that
// run at a time. Only those that hang and ignore their ctx are so many.
const maxHung = 16

// startDial dials until ctx is done, and sends the result to a channel without a buffer. Not every
// dialer heeds its ctx. A late connection can be received until alive is done, and is then closed.
// A late error is dropped.
func (n *Node) startDial(ctx, alive context.Context, result chan<- dialled) {
	go func() {
		to := n.target.Load()
		conn, err := n.tryDial(ctx, to)
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil:
			select {
			case result <- dialled{nil, to, err}:
			case <-ctx.Done():
			}
		default:
			select {
			case result <- dialled{conn, to, nil}:
			case <-alive.Done():
				_ = conn.Close() // nothing was sent on it
			}
		}
	}()
}

// dialWithin dials, and returns when ctx is done.
func (n *Node) dialWithin(ctx context.Context) (net.Conn, error) {
	result := make(chan dialled)
	n.startDial(ctx, ctx, result)
	select {
	case d := <-result:
		return d.conn, d.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialerOf returns go-redis's dialer. It does the TLS handshake itself: a server without TLS
// usually takes the first bytes for a command, and waits for the rest.
func (t *target) dialerOf(o redis.Options) Dialer {
	config := o.TLSConfig
	o.TLSConfig = nil
	dial := redis.NewDialer(&o)
	if config == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if o.DialTimeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, o.DialTimeout)
			defer cancel()
		}
		t.shaking.Store(false)
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		t.shaking.Store(true)
		secure := tls.Client(conn, config)
		err = secure.HandshakeContext(ctx)
		if _, refused := errors.AsType[*tls.CertificateVerificationError](err); err == nil || refused {
			t.shaking.Store(false)
		}
		switch {
		case err == nil:
			return secure, nil
		case t.shaking.Load():
			err = fmt.Errorf("%s: %w", noHandshake, err)
		}
		_ = conn.Close()
		return nil, err
	}
}

const noHandshake = "the TLS handshake fails: if the port is without TLS, use a redis:// URL"

// unsentNow returns the error of a call that was not sent within its limit.
func (n *Node) unsentNow() *quorumlock.NodeError {
	t := n.target.Load()
	if t.shaking.Load() {
		return n.Failure(fmt.Errorf("%s: %w", noHandshake, errUnsent), true)
	}
	return t.unsent
}

// tryDial calls the dialer, which may be the user's.
func (n *Node) tryDial(ctx context.Context, t *target) (conn net.Conn, err error) {
	if err := begin(ctx, n.dialling); err != nil {
		return nil, err
	}
	defer func() {
		<-n.dialling
		if r := recover(); r != nil {
			err = fmt.Errorf("the dialer panicked: %v", r)
		}
	}()
	if t.bar != nil {
		return nil, t.bar
	}
	conn, err = t.dial(ctx, t.session.Network, t.session.Addr)
	if err == nil && conn == nil {
		err = errors.New("the dialer returned neither a connection nor an error")
	}
	return conn, err
}

// begin waits for room among the running calls of a function of the user, until ctx is done.
func begin(ctx context.Context, running chan<- struct{}) error {
	select {
	case running <- struct{}{}:
		return nil
	default:
	}
	select {
	case running <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// over returns a go-redis client over one connection, which calls ready after the handshake.
func (n *Node) over(g *guard, ready func()) *redis.Client {
	o := *n.target.Load().session
	o.OnConnect = func(context.Context, *redis.Conn) error {
		ready()
		return nil
	}
	o.CredentialsProviderContext = n.provider(func(c Credentials) { g.expires = c.Expires })
	o.Dialer = func(context.Context, string, string) (net.Conn, error) { return g, nil }
	return redis.NewClient(&o)
}

// sessionOptions returns the options of a client for one connection.
func sessionOptions(o redis.Options) *redis.Options {
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 1, 0, 0, 0, -1
	o.Protocol, o.ReadTimeout, o.WriteTimeout = laneProtocol, -1, -1 // shakeHands has its own limit
	o.DisableIdentity = true                                         // shakeHands does that
	return &o
}

// laneProtocol is RESP2, which has no push messages.
const laneProtocol = 2

// With calls f with a go-redis connection for f alone: a new one, or one of the client of New.
func (n *Node) With(ctx context.Context, f func(redis.Cmdable)) error {
	if n.lanes[0] == nil {
		f(n.client)
		return nil
	}
	conn, err := n.dialWithin(ctx)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { abort(conn) })()
	client := n.over(newGuard(conn), func() {})
	defer client.Close() //nolint:errcheck // there is nothing left to lose on it
	f(client.Conn())
	return nil
}

// infoPause is how long connections do without INFO after two missing replies, such as from a proxy
// that drops it. A connection that breaks in its handshake must not hide a second server.
const infoPause = time.Minute

// shakeHands makes a connection ready for the lane. After an error, the connection is closed.
func (l *lane) shakeHands(ctx *silence, conn net.Conn) (*connection, error) {
	g := newGuard(conn)
	g.heard = ctx.heard
	stop := context.AfterFunc(ctx, func() { abort(conn) })
	ready := false
	client := l.node.over(g, func() { ready = true })
	defer client.Close() //nolint:errcheck // after an error, there is nothing to lose
	pipe := client.Conn().Pipeline()
	_ = pipe.ClientSetInfo(ctx, redis.WithLibraryName(""))
	_ = pipe.ClientSetInfo(ctx, redis.WithLibraryVersion(redis.Version()))
	title := l.node.title.Load()
	if client.Options().ClientName != "" {
		title = nil // that of the URL
	}
	if title != nil {
		_ = pipe.ClientSetName(ctx, *title)
	}
	asked := askServer(ctx, pipe, laneProtocol, l.dialling.noInfos < 2 || time.Since(l.dialling.noInfo) > infoPause)
	cmds, err := pipe.Exec(ctx)
	switch {
	case asked.onlyInfoFailed():
		l.dialling.noInfo = time.Now()
		l.dialling.noInfos++
	case asked.info.Val() != nil || answered(asked.info.Err()):
		l.dialling.noInfos = 0
	}
	if ready {
		err = broken(ctx, cmds)
	}
	if err == nil && !stop() {
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return nil, err
	}
	if conn, err = g.unwrap(); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &connection{
		Conn: conn, replies: reader{from: conn}, trip: unknownTrip,
		server: asked.server(), title: title, standsAlone: asked.standsAlone(), expires: g.expires,
	}, nil
}

// broken returns the error of a connection that is unusable after HELLO; nil if it is usable. Other
// errors of the server mean an old server or a missing permission.
func broken(ctx context.Context, cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		switch e := cmd.Err(); {
		case e == nil, answered(e) && !says(newServerError(e.Error()), "READONLY"):
		case answered(e), isTimeout(e), ctx.Err() != nil:
			return e
		default:
			advice := "a proxy must support HELLO and CLIENT: "
			if _, told := errors.AsType[lastWord](e); told {
				advice = "" // the server has said why
			}
			return fmt.Errorf("the connection ended before the reply to %s: %s%w", strings.ToUpper(cmd.FullName()), advice, e)
		}
	}
	return nil
}
