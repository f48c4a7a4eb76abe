package transport

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// link is the one connection of a lane. go-redis dials it, shakes hands, writes the commands and reads the replies. It
// is used by the worker of its lane alone, except for cut.
type link struct {
	client *redis.Client           // its own: it has no other connection
	title  *atomic.Pointer[string] // the name that the server shows of the connection; of the node
	conn   *redis.Conn             // nil while there is none
	pipe   redis.Pipeliner
	// bundles is whether the server is sent bundles: it stands alone, and has refused none. Of the worker.
	bundles bool
	noInfo  time.Time // when INFO last had no reply, though the commands before it had
	noInfos int       // in a row

	dialed chan struct{} // a connection is made, and its handshake begins; capacity 1

	wrote atomic.Int64            // bytes, to all connections of the client
	last  atomic.Pointer[bounded] // the connection that was written to last
	raw   syscall.RawConn         // the socket of the connection, once it was looked at
	probe func(fd uintptr) bool
	open  bool // what the probe has found
	until until
}

// until is the context of a pipeline: a deadline and no more. It is used again for the next one.
type until struct {
	context.Context
	at time.Time
}

// Deadline implements context.Context.
func (u *until) Deadline() (time.Time, bool) { return u.at, true }

// The sizes of the buffers of a connection. A write of a full pipeline takes several of the latter.
const (
	readBuffer  = 4 << 10
	writeBuffer = 16 << 10
)

// newLink returns the link to a server. dial is without the limits of replies.
func newLink(o redis.Options, dial Dialer, title *atomic.Pointer[string]) *link {
	k := &link{title: title, dialed: make(chan struct{}, 1), until: until{Context: context.Background()}}
	k.probe = func(fd uintptr) bool {
		k.open = isOpen(fd)
		return true
	}
	o.Dialer = quiet(bounding(k.telling(dial), func(b *bounded, n int) {
		k.last.Store(b)
		k.wrote.Add(int64(n))
	}))
	k.client = redis.NewClient(ofLane(&o))
	return k
}

// telling returns a dialer that signals each new connection on k.dialed.
func (k *link) telling(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err == nil {
			wake(k.dialed)
		}
		return conn, err
	}
}

// laneProtocol is RESP2, which has no push messages: go-redis need not look for them before every
// pipeline.
const laneProtocol = 2

// ofLane sets the options of a client for lane connections, and returns o.
func ofLane(o *redis.Options) *redis.Options {
	// A dial that outlasts its connect keeps its place in the pool, and its permit. With more places than permits, nobody waits for
	// a place, for which go-redis has a timeout of its own.
	o.PoolSize, o.MaxConcurrentDials = 8, 4
	o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 0, 0, 0, -1
	o.ReadBufferSize, o.WriteBufferSize = readBuffer, writeBuffer
	o.Protocol = laneProtocol
	o.DisableIdentity = true // connect says it, as the command that it needs anyhow
	return o
}

// infoPause is how long connections do without INFO after it had no reply twice, such as from a proxy that drops it. A connection that
// breaks in its handshake must not hide a second server.
const infoPause = time.Minute

// connect makes the connection, until ctx is done. It returns the run ID of the connected server,
// which is empty if unknown.
func (k *link) connect(ctx context.Context) (server string, err error) {
	conn := k.client.EphemeralConn() // which does not go back to the pool
	pipe := conn.Pipeline()
	name := pipe.ClientSetInfo(ctx, redis.WithLibraryName(""))
	_ = pipe.ClientSetInfo(ctx, redis.WithLibraryVersion(redis.Version()))
	var title *redis.BoolCmd
	if t := k.title.Load(); t != nil && k.client.Options().ClientName == "" { // the URL may have a name for it
		title = pipe.ClientSetName(ctx, *t)
	}
	asked := askServer(ctx, pipe, laneProtocol, k.noInfos < 2 || time.Since(k.noInfo) > infoPause)
	_, err = pipe.Exec(ctx)
	switch {
	case asked.onlyInfoFailed():
		k.noInfo = time.Now()
		k.noInfos++
	case asked.info.Val() != nil || answered(asked.info.Err()):
		k.noInfos = 0
	}
	if title != nil && err != nil && err == title.Err() && answered(err) { //nolint:errorlint // the very one: the others did well
		err = nil // the user may lack the permission
	}
	if err != nil && (err == asked.hello.Err() || err == asked.id.Err() || err == asked.info.Err()) && answered(err) { //nolint:errorlint // likewise
		err = nil // an old server, a proxy, or a user without the permission
	}
	// go-redis uses no connection that has answered READONLY.
	if err != nil && (name.Err() == nil || !answered(name.Err()) || redis.HasErrorPrefix(err, "READONLY")) {
		_ = conn.Close() // err says more
		return "", err
	}
	// An old server does not know the command, and a user may lack the permission: either way it is connected.
	k.conn, k.pipe = conn, conn.Pipeline()
	k.bundles = asked.standsAlone()
	return asked.server(), nil
}

// isReady reports whether there is a connection that can be used.
func (k *link) isReady() bool { return k.conn != nil }

// check drops the connection if the server, or a proxy, has closed it while it was idle. It returns false if the check is
// impossible: on a connection that is no socket, and on Windows. It costs a system call. It looks below TLS, too, without reading:
// nothing was asked, so whatever is there is the end of the connection or, rarely, a record of TLS itself. Either way the worker
// connects anew.
func (k *link) check() (looked bool) {
	if k.conn == nil {
		return true
	}
	if !looksAtIdle {
		return false
	}
	b := k.last.Load()
	if k.raw == nil {
		socket, ok := socketOf(b.Conn).(syscall.Conn)
		if !ok {
			return false
		}
		var err error
		if k.raw, err = socket.SyscallConn(); err != nil {
			k.drop()
			return true
		}
	}
	k.open = false
	_ = b.Conn.SetReadDeadline(time.Time{}) // a read with a deadline that has passed would not look
	if err := k.raw.Read(k.probe); err != nil || !k.open {
		k.drop()
	}
	return true
}

// ping drops the connection unless the server answers before ctx is done. An error is an answer, too: the user may lack the
// permission.
func (k *link) ping(ctx context.Context) {
	if err := k.conn.Ping(ctx).Err(); err != nil && !answered(err) {
		k.drop()
	}
}

// exec sends the commands, whose bytes are out, and reads their replies, until the deadline. It reports whether any of it may have
// been sent. After an error the connection is of no use.
func (k *link) exec(deadline time.Time, cmds []redis.Cmder, out []byte) (sent bool, err error) {
	k.until.at = deadline
	before := k.wrote.Load()
	k.last.Load().covered.expect(out, len(cmds))
	if len(cmds) == 1 {
		err = k.conn.Process(&k.until, cmds[0])
	} else {
		_ = k.pipe.BatchProcess(&k.until, cmds...)
		_, err = k.pipe.Exec(&k.until)
	}
	return k.wrote.Load() != before, err
}

// drop closes the connection.
func (k *link) drop() {
	if k.conn == nil {
		return
	}
	if b := k.last.Load(); b != nil {
		_ = b.Conn.Close()
	}
	_ = k.conn.Close() // there is nothing left to lose on it
	k.conn, k.pipe, k.raw = nil, nil, nil
}

// cut ends a pipeline that is under way. Unlike drop, it may be called while the worker uses the link. What has not reached the
// server yet is thrown away: see abort. When the lane is closed, nothing is: releases that are on their way may arrive.
func (k *link) cut() {
	if b := k.last.Load(); b != nil {
		abort(b.Conn)
	}
}

func (k *link) close() {
	_ = k.client.Close()
}

var _ net.Conn = (*bounded)(nil)
