package node

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// wire is the one connection of a lane. go-redis dials it, shakes hands, writes the commands and reads the replies. It
// is used by the worker of its lane alone, except for cut.
type wire struct {
	client *redis.Client           // the wire's own: it has no other connection
	title  *atomic.Pointer[string] // the name that the server shows of the connection; of the node
	conn   *redis.Conn             // nil while there is none
	pipe   redis.Pipeliner

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

// newWire returns the wire for a server. dial is without the limits of replies.
func newWire(o redis.Options, dial Dialer, title *atomic.Pointer[string]) *wire {
	w := &wire{title: title, until: until{Context: context.Background()}}
	w.probe = func(fd uintptr) bool {
		w.open = isOpen(fd)
		return true
	}
	o.Dialer = quiet(bounding(dial, func(b *bounded, n int) {
		w.last.Store(b)
		w.wrote.Add(int64(n))
	}))
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.PipelinePoolSize = 4, 0, 0, 0, -1
	o.ReadBufferSize, o.WriteBufferSize = readBuffer, writeBuffer
	o.Protocol = 2           // nothing comes unasked: go-redis need not look for it before every pipeline
	o.DisableIdentity = true // connect says it, as the command that it needs anyhow
	w.client = redis.NewClient(&o)
	return w
}

// connect makes the connection, until ctx is done.
func (w *wire) connect(ctx context.Context) error {
	conn := w.client.EphemeralConn() // which does not go back to the pool
	pipe := conn.Pipeline()
	name := pipe.ClientSetInfo(ctx, redis.WithLibraryName(""))
	_ = pipe.ClientSetInfo(ctx, redis.WithLibraryVersion(redis.Version()))
	var title *redis.BoolCmd
	if t := w.title.Load(); t != nil && w.client.Options().ClientName == "" { // the URL may have a name for it
		title = pipe.ClientSetName(ctx, *t)
	}
	_, err := pipe.Exec(ctx)
	if title != nil && err != nil && err == title.Err() && answered(err) { //nolint:errorlint // the very one: the others did well
		err = nil // the user may lack the permission
	}
	// go-redis uses no connection that has answered READONLY.
	if err != nil && (name.Err() == nil || !answered(name.Err()) || redis.HasErrorPrefix(err, "READONLY")) {
		_ = conn.Close() // err says more
		return err
	}
	// An old server does not know the command, and a user may lack the permission: either way it is connected.
	w.conn, w.pipe = conn, conn.Pipeline()
	return nil
}

// isReady reports whether there is a connection that can be used.
func (w *wire) isReady() bool { return w.conn != nil }

// check drops the connection if the server, or a proxy, has closed it while it was idle. It costs a system call, and
// cannot see through TLS.
func (w *wire) check() {
	if w.conn == nil || !looksAtIdle {
		return
	}
	b := w.last.Load()
	if b == nil {
		return
	}
	if w.raw == nil {
		socket, ok := b.Conn.(syscall.Conn)
		if !ok {
			return
		}
		var err error
		if w.raw, err = socket.SyscallConn(); err != nil {
			w.drop()
			return
		}
	}
	w.open = false
	_ = b.Conn.SetReadDeadline(time.Time{}) // a read with a deadline that has passed would not look
	if err := w.raw.Read(w.probe); err != nil || !w.open {
		w.drop()
	}
}

// exec sends the commands, whose bytes are out, and reads their replies, until the deadline. It reports whether any of it may have
// been sent. After an error the connection is of no use.
func (w *wire) exec(deadline time.Time, cmds []redis.Cmder, out []byte) (sent bool, err error) {
	w.until.at = deadline
	before := w.wrote.Load()
	w.last.Load().covered.expect(out, len(cmds))
	if len(cmds) == 1 {
		err = w.conn.Process(&w.until, cmds[0])
	} else {
		_ = w.pipe.BatchProcess(&w.until, cmds...)
		_, err = w.pipe.Exec(&w.until)
	}
	return w.wrote.Load() != before, err
}

// drop closes the connection.
func (w *wire) drop() {
	if w.conn == nil {
		return
	}
	w.cut()
	_ = w.conn.Close() // there is nothing left to lose on it
	w.conn, w.pipe, w.raw = nil, nil, nil
}

// cut ends a pipeline that is under way. Unlike drop, it may be called while the worker uses the wire.
func (w *wire) cut() {
	if b := w.last.Load(); b != nil {
		_ = b.Conn.Close()
	}
}

func (w *wire) close() {
	_ = w.client.Close()
}

var _ net.Conn = (*bounded)(nil)
