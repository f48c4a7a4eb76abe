package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
)

// servers detects an address that leads to several servers at the same time: the address of a
// service, a DNS name with two records, or a load balancer. Behind such an address, different
// servers may grant one lock to two clients. The run ID in INFO identifies a server. Each lane
// connection has a witness: a second connection, made at the same time and closed at once. The
// rules:
//
//   - If a connection and its witness lead to different servers, the address is at fault. All lane
//     connections are closed, and the node answers every call with an error.
//   - If both lead to one server, and the other lane's connection to another, the address has moved
//     on, after a restart or a failover. The other lane's connection and the subscriptions' are
//     closed.
//   - Before the address moves on, and if the first connection has no witness, the lane connects
//     once more. The address is at fault unless that connection and its witness lead to the same
//     server. A subscription's connection moves the address on without that; the lanes then
//     reconnect.
//   - If the address returns to a server that it left less than memory ago, the address is also at
//     fault.
//   - During a fault, calls make the lanes reconnect; at first the lanes also do by themselves. The
//     fault ends when all connections have led to one server for the duration of proof.
//
// An unknown server is no fault. After the handshake, the check costs nothing.
type servers struct {
	onMove func() // called, with mu held, if the address has moved on; must not block

	mu     sync.Mutex
	seats  [2]seat // by client.Lane
	mute   bool    // the latest connection led to an unknown server: the next has no witness
	latest string  // the server that the address led to last
	former string  // the one before that
	left   time.Time

	doubtful  string // the server of the last connection, if another one must confirm it
	doubtedAt time.Time

	fault error     // the answer to every call; nil if there is none
	shown time.Time // when the fault began
	tried time.Time // when a lane connected last during the fault
	since time.Time // since when connections have led to one server; zero if the last two did not
	one   string    // that server
}

// seat is the latest connection of a lane.
type seat struct {
	server string // empty if it is unknown
	conn   net.Conn
}

const (
	memory   = 10 * time.Second
	proof    = time.Second            // as long as a fault lasts at least
	tryEvery = 200 * time.Millisecond // during a fault
)

// areMute reports whether a witness would be useless.
func (s *servers) areMute() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute
}

// barred returns the fault if it is too early to reconnect, and otherwise nil. After nil, the
// caller connects next.
func (s *servers) barred() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil || time.Since(s.tried) >= tryEvery {
		s.tried = time.Now()
		return nil
	}
	return s.fault
}

// errDoubtful is the error of a connection to a new server that another one must confirm.
var errDoubtful = errors.New("the address leads to a new server: one more connection must show that it leads to no other")

// admit records a new connection of a lane, its server and the server of its witness. It returns an
// error if the address is at fault, and errDoubtful if the lane must connect once more. proving
// reports that the lane is to connect again without a call: the fault may end with the next
// connections.
func (s *servers) admit(lane int, conn net.Conn, server, witness string) (proving bool, err error) {
	over, proving, err := s.judge(lane, conn, server, witness)
	for _, c := range over {
		abort(c)
	}
	return proving, err
}

// hear records the server of a new connection outside the lanes. If the server is a different one,
// the address is taken to have moved on, and the lane connections are closed. If the address leads
// to both servers, the next lane connection shows the fault.
func (s *servers) hear(server string) {
	var over []net.Conn
	s.mu.Lock()
	if server != "" && s.fault == nil {
		over = s.move(server)
	}
	s.mu.Unlock()
	for _, c := range over {
		abort(c)
	}
}

// move records the address's server, and returns connections to any other. The caller holds mu.
func (s *servers) move(server string) (over []net.Conn) {
	if s.latest != "" && s.latest != server {
		s.former, s.left = s.latest, time.Now()
		s.onMove()
	}
	s.latest = server
	return s.leave(func(at seat) bool { return at.server != "" && at.server != server })
}

// judge does the work of admit, and returns the connections to close.
func (s *servers) judge(lane int, conn net.Conn, server, witness string) (over []net.Conn, proving bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.mute = server == ""
	before := s.doubtful
	if s.doubtful = ""; now.Sub(s.doubtedAt) >= memory {
		before = ""
	}
	switch {
	case server == "" || s.fault != nil:
	case before != "" && (witness == "" || witness == server) && (server == before || now.Sub(s.doubtedAt) < proof):
		witness = before
	case witness != "" && witness != server: // a fault, below
	case server != s.latest && (s.latest != "" || witness == ""):
		s.doubtful, s.doubtedAt = server, now
		return nil, false, errDoubtful
	}
	if server != "" && server == s.former && now.Sub(s.left) < memory {
		witness = s.latest
	}
	if server != "" && witness != "" && server != witness {
		if s.fault == nil || s.shown.IsZero() {
			s.shown = now
		}
		s.fault = severalServers(server, witness)
		s.since, s.former = time.Time{}, ""
		return s.leave(func(seat) bool { return true }), now.Sub(s.shown) < memory, s.fault
	}
	if s.fault != nil {
		if s.since.IsZero() || s.one != server {
			s.since, s.one = now, server
		}
		if now.Sub(s.since) < proof {
			return nil, true, s.fault
		}
		s.fault, s.shown = nil, time.Time{}
	}
	if server != "" {
		over = s.move(server)
	}
	s.seats[lane] = seat{server, conn}
	return over, false, nil
}

// failed records that a lane could not connect. The proof of the fault's end then begins again.
func (s *servers) failed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since = time.Time{}
}

// leave empties the seats that isTime accepts, and returns their connections. The caller holds mu.
func (s *servers) leave(isTime func(seat) bool) (over []net.Conn) {
	for i, at := range s.seats {
		if at.conn != nil && isTime(at) {
			over = append(over, at.conn)
			s.seats[i] = seat{}
		}
	}
	return over
}

// asked holds the commands that ask a server about itself.
type asked struct {
	hello *redis.Cmd
	id    *redis.IntCmd
	info  *redis.Cmd
}

// askServer queues these commands; INFO only if withInfo. protocol is the RESP version.
func askServer(ctx context.Context, pipe redis.Pipeliner, protocol int, withInfo bool) asked {
	a := asked{pipe.Do(ctx, "hello", protocol), pipe.ClientID(ctx), redis.NewCmd(ctx, "info", "server")}
	if withInfo {
		_ = pipe.Process(ctx, a.info) // a pipeline only queues it
	}
	return a
}

// onlyInfoFailed reports whether the server answered CLIENT ID, but not INFO.
func (a asked) onlyInfoFailed() bool {
	return a.info.Err() != nil && !answered(a.info.Err()) && (a.id.Val() != 0 || answered(a.id.Err()))
}

// standsAlone reports whether HELLO shows a standalone server that is not behind a proxy. A proxy
// may pass on the replies of its servers, but CLIENT ID and HELLO then return different IDs.
func (a asked) standsAlone() bool {
	id, hello := a.id.Val(), a.hello.Val()
	return id != 0 && field[int64](hello, "id") == id && field[string](hello, "mode") == "standalone"
}

// server returns the run ID of a standalone server, which is empty if unknown. Before Redis 6 there
// is no HELLO.
func (a asked) server() string {
	if a.id.Val() == 0 || a.hello.Err() == nil && !a.standsAlone() {
		return ""
	}
	text, _ := a.info.Val().(string)
	said := make(map[string]string)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		said[name] = value
	}
	// server_mode is Valkey's.
	if said["redis_mode"] != "standalone" && said["server_mode"] != "standalone" {
		return ""
	}
	return said["run_id"]
}

// serverOf returns the run ID of the server behind a connection, which is empty if unknown.
func serverOf(ctx context.Context, conn redis.Cmdable, protocol int) string {
	pipe := conn.Pipeline()
	a := askServer(ctx, pipe, protocol, true)
	_, _ = pipe.Exec(ctx) // each has its own error
	return a.server()
}

// look returns the run ID of the server behind a new connection, which is empty if unknown.
func (n *Node) look(ctx context.Context) (server string) {
	// A connection that fails has no server.
	_ = n.With(ctx, func(conn redis.Cmdable) { server = serverOf(ctx, conn, laneProtocol) })
	return server
}

// looks is the number of connections that OneServer opens.
const looks = 4

// OneServer opens several connections at the same time. If they lead to different servers, it
// returns a *[quorumlock.NodeError] that matches [quorumlock.ErrSeveralServers]. It returns nil for
// a cluster, and for servers with unknown run IDs. When ctx is done, or after the node's timeout,
// it returns nil.
func (n *Node) OneServer(ctx context.Context) error {
	client, _ := n.client.(*redis.Client)
	if client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, n.config.Timeout)
	defer cancel()
	count := looks
	if n.lanes[0] == nil {
		count = min(looks, client.Options().PoolSize)
	}
	found, all := make(chan string, count), make(chan struct{})
	defer close(all)
	for range count {
		if err := n.locks.Go(func() {
			if n.lanes[0] != nil {
				found <- n.look(ctx)
				return
			}
			conn := client.Conn()
			defer conn.Close() //nolint:errcheck // there is nothing left to lose on it
			found <- serverOf(ctx, conn, client.Options().Protocol)
			<-all // so that the pool opens more
		}); err != nil {
			return err
		}
	}
	first := ""
	for range count {
		select {
		case server := <-found:
			if first != "" && server != "" && server != first {
				return n.Failure(severalServers(first, server), false)
			}
			first = cmp.Or(first, server)
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

func severalServers(one, other string) error {
	return fmt.Errorf("%w: one connection led to the server with run_id %s, and another to %s",
		quorumlock.ErrSeveralServers, one, other)
}
