package simulation

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock/internal/testkit/before"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded/redislua"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// node is a Redis server of the world: miniredis with its own clock. The world's mutex guards it.
type node struct {
	world  *world
	number int
	redis  *miniredis.Miniredis
	in     *redislua.Interpreter
	loaded map[string]string  // scripts by their SHA
	paths  []*path            // of all processes, to here
	heard  map[string][]*conn // subscribers of a channel, in the order in which they came
	down   bool               // refuses connections
	frozen bool               // runs nothing
	deaf   bool               // accepts no connection while frozen; other nodes have a proxy
	held   []message          // the backlog of a freeze
	clock  clock

	twin    *node // another server behind the address; nil if there never is one
	several bool  // one connection of two leads to the twin
	isTwin  bool

	started   time.Time // by its clock
	starts    int
	histories int // the number of histories so far; the last is the present one's id
	former    int // the predecessor of the present one; 0 if it began with a start
}

// redises keeps servers for the next run: to make one takes longer than to empty it.
var redises = sync.Pool{New: func() any {
	m := miniredis.NewMiniRedis()
	c, err := m.Dial() // starts it
	if err != nil {
		panic(err)
	}
	_ = c.Close()
	return m
}}

// interpreters keeps interpreters for the next run, with the scripts that they know.
var interpreters = sync.Pool{New: func() any { return redislua.New() }}

func newNode(w *world, number int, c clock) *node {
	n := &node{
		world: w, number: number, clock: c,
		redis:  redises.Get().(*miniredis.Miniredis),
		in:     interpreters.Get().(*redislua.Interpreter),
		loaded: make(map[string]string),
		heard:  make(map[string][]*conn), histories: 1,
	}
	n.clock.last = n.clock.now()
	n.started = n.clock.last.Add(-time.Hour)
	n.redis.SetTime(n.clock.last)
	_ = n.redis.Set(ageKey, fmt.Sprintf("%s:%040x 3600000", n.runID(), n.histories)) // up for long
	n.in.Attach(redislua.Node{
		Redis:   n.redis.Server(),
		Publish: func(channel, message string) (int, error) { return n.publish(channel, message), nil },
		Info:    func(section string) (string, error) { return n.info(section), nil },
	})
	return n
}

// close returns the reusable parts to their pools.
func (n *node) close() {
	n.redis.FlushAll()
	redises.Put(n.redis)
	n.in.Attach(redislua.Node{})
	interpreters.Put(n.in)
	if n.twin != nil {
		n.twin.close()
	}
}

func (n *node) String() string {
	if n.isTwin {
		return "twin of n" + strconv.Itoa(n.number+1)
	}
	return "n" + strconv.Itoa(n.number+1)
}

// clock is a node's clock: it has a rate of its own, and can be stepped.
type clock struct {
	began time.Time // true time
	zero  time.Time // the clock's time then
	rate  float64
	last  time.Time // when it was last looked at
}

func (c clock) now() time.Time {
	return c.zero.Add(time.Duration(float64(time.Since(c.began)) * c.rate))
}

// tick expires keys by the clock.
func (n *node) tick() time.Time {
	now := n.clock.now()
	if passed := now.Sub(n.clock.last); passed > 0 {
		n.redis.FastForward(passed)
	}
	n.clock.last = now
	n.redis.SetTime(now)
	return now
}

// step sets the clock: keys expire at a time of the clock, so they do earlier or later.
func (n *node) step(by time.Duration) {
	n.tick()
	n.clock.zero = n.clock.zero.Add(by)
	if by > 0 {
		n.tick()
		return
	}
	for _, k := range n.redis.Keys() {
		if ttl := n.redis.TTL(k); ttl > 0 {
			n.redis.SetTTL(k, ttl-by)
		}
	}
	n.clock.last = n.clock.now()
	n.redis.SetTime(n.clock.last)
}

// crash cuts all connections and refuses new ones.
func (n *node) crash() {
	n.down = true
	for _, p := range n.paths {
		p.reset()
	}
	n.held = nil
}

// restart takes it up again, without any script.
func (n *node) restart() {
	n.down = false
	n.started = n.clock.now()
	n.starts++
	n.histories++
	n.former = 0
	clear(n.loaded)
}

// promote takes up another in its place: one that has run for long, and was its replica until now.
func (n *node) promote() {
	n.down = false
	n.started = n.clock.now().Add(-time.Hour)
	n.former = n.histories
	n.histories++
	clear(n.loaded)
}

// runID names the process of the server.
func (n *node) runID() string { return fmt.Sprintf("%038x%02x", n.starts, n.number) }

// info is the reply to INFO for a section.
func (n *node) info(section string) string {
	switch section {
	case "server":
		return fmt.Sprintf("# Server\r\nrun_id:%s\r\nuptime_in_seconds:%d\r\n", n.runID(), n.clock.now().Unix()-n.started.Unix())
	case "replication":
		return fmt.Sprintf("# Replication\r\nrole:master\r\nmaster_replid:%040x\r\nmaster_replid2:%040x\r\n", n.histories, n.former)
	}
	panic("simulation: INFO of " + section)
}

// forge is a forger that may only publish. It sends a process messages that all locks were handed
// to all of its waiters.
func (n *node) forge(p *process) {
	n.publish(wire.LatchKey(latch), "open")
	var waiters []string
	for alias, waiter := range p.known {
		if strings.HasPrefix(alias, p.id+"w") && !strings.ContainsAny(waiter, "/.") {
			waiters = append(waiters, waiter)
		}
	}
	slices.Sort(waiters)
	for _, waiter := range waiters {
		for attempt := range 4 {
			for _, lock := range n.world.locks() {
				slot := ""
				if lock == semaphore {
					slot = "@0"
				}
				for cell := range 2 * len(n.world.nodes) {
					n.publish(wire.WakeChannel(p.uuid), fmt.Sprintf("handoff %s %d %d 9007199254740000%s %040x %s", waiter, attempt+1, cell, slot, 7, lock))
				}
			}
		}
	}
}

func (n *node) freeze(d dice) {
	n.frozen, n.deaf = true, d.of("deaf").share() < 0.5
}

// maxBacklog is the longest time from a thaw to the end of the backlog.
const maxBacklog = 300 * time.Millisecond

// thaw makes a node run the backlog of its connections, closed ones included. It reads them in
// turn: some may be far behind others, and behind new ones.
func (n *node) thaw(d dice) {
	n.frozen = false
	held := n.held
	n.held = nil
	if d.of("order").share() < 0.5 {
		for _, m := range held {
			if c := m.conn; !time.Now().Before(c.read) {
				c.read = time.Now().Add(m.dice.of("read").below(maxBacklog))
			}
		}
	}
	for _, m := range held {
		n.arrive(m)
	}
}

// arrive takes a request after the earlier requests of its connection.
func (n *node) arrive(m message) {
	if c := m.conn; time.Now().Before(c.read) {
		c.read = c.read.Add(1)
		n.world.post.send(time.Until(c.read), m.dice.of("there"), func() { n.take(m) })
		return
	}
	n.take(m)
}

func (n *node) take(m message) {
	c := m.conn
	switch {
	case c.dark:
	case n.down:
		c.reset()
	case n.frozen:
		n.held = append(n.held, m)
	case m.path.stalled:
		m.path.heldThere = append(m.path.heldThere, m)
	default:
		n.run(m)
	}
}

// run runs a request and sends the reply.
func (n *node) run(m message) {
	m.conn.coming--
	for _, call := range m.each() {
		if m.conn.closed || time.Since(n.world.watch.asked(call)) >= n.world.plan.NodeTimeout || n.world.watch.overtaken(n, call) {
			m.path.trouble() // later requests may have overtaken it
			n.world.watch.active(call, func(a *activity) { a.late = n.world.plan.Slow > 0 })
		}
	}
	n.tick()
	if m.path.proc.java && strings.HasPrefix(m.args[0], "eval") {
		n.java(m)
		return
	}
	switch strings.ToLower(m.args[0]) {
	case "del": // Java's
		n.redis.Del(m.args[1])
		n.reply(m, []byte(":1\r\n"))
	case "evalsha":
		source, known := n.loaded[m.args[1]]
		if !known {
			for _, call := range m.each() {
				n.world.watch.received(n, call)
			}
			m.conn.unknown++
			n.reply(m, []byte("-NOSCRIPT No matching script.\r\n"))
			return
		}
		n.script(m, source)
	case "eval":
		n.loaded[shaOf(m.args[1])] = m.args[1]
		n.script(m, m.args[1])
	case "subscribe":
		for _, ch := range m.args[1:] {
			m.conn.channels = with(m.conn.channels, ch)
			if !slices.Contains(n.heard[ch], m.conn) {
				n.heard[ch] = append(n.heard[ch], m.conn)
			}
			n.reply(m, fmt.Appendf(nil, "*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(ch), ch, len(m.conn.channels)))
		}
	case "unsubscribe":
		for _, ch := range m.args[1:] {
			delete(m.conn.channels, ch)
			n.heard[ch] = slices.DeleteFunc(n.heard[ch], func(c *conn) bool { return c == m.conn })
			n.reply(m, fmt.Appendf(nil, "*3\r\n$11\r\nunsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(ch), ch, len(m.conn.channels)))
		}
	case "ping":
		if len(m.conn.channels) > 0 {
			n.reply(m, []byte("*2\r\n$4\r\npong\r\n$0\r\n\r\n"))
		} else {
			n.reply(m, []byte("+PONG\r\n"))
		}
	default: // nothing that the library sends while it locks
		panic(fmt.Sprintf("simulation: a request that no node knows: %q", m.args))
	}
}

func with(set map[string]bool, s string) map[string]bool {
	if set == nil {
		set = make(map[string]bool)
	}
	set[s] = true
	return set
}

// script runs a script, or the scripts of a bundle one by one. The tests of scriptmodel show that
// bundle.lua does the same.
func (n *node) script(m message, source string) {
	if m.calls == nil {
		n.reply(m, n.watched(m, source))
		return
	}
	n.world.bundles++
	replies := fmt.Appendf(nil, "*%d\r\n", len(m.calls))
	for _, call := range m.calls {
		replies = append(replies, n.watched(call, call.source)...)
	}
	n.reply(m, replies)
}

func (n *node) watched(m message, source string) (reply []byte) {
	if m.path.proc.before {
		source = before.Source(source)
	}
	state := n.world.watch.before(n, m)
	reply = n.in.Run(source, m.keys, m.argv)
	n.world.watch.after(n, m, state, string(reply))
	return reply
}

func (n *node) reply(m message, b []byte) {
	m.path.reply(m, b)
}

// publish sends a message to the subscribers.
func (n *node) publish(channel, text string) int {
	subscribers := slices.Clone(n.heard[channel])
	for _, c := range subscribers {
		c.path.push(c, channel, text)
	}
	return len(subscribers)
}

// forget takes a connection out of the subscriptions.
func (n *node) forget(c *conn) {
	for ch := range c.channels {
		n.heard[ch] = slices.DeleteFunc(n.heard[ch], func(d *conn) bool { return c == d })
	}
}

func count(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic(err)
	}
	return n
}

// named has the name of each script by its source and by its SHA, and shas the SHA by its source.
var named, shas = func() (names, shas map[string]string) {
	names, shas = make(map[string]string), make(map[string]string)
	for _, s := range append(wire.Scripts(), wire.Bundle) {
		names[s.SHA()], names[s.Source], shas[s.Source] = s.Name, s.Name, s.SHA()
	}
	return names, shas
}()

func shaOf(source string) string { return shas[source] }
