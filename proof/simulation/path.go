package simulation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// path is one process's way to one node, with its own faults. The world's mutex guards all of it.
type path struct {
	world *world
	proc  *process
	node  *node
	twin  *path // to the other server of the same address; nil if there is none
	dials int   // while the address leads to both
	conns map[*conn]bool
	sent  map[string]int // how often the like of a message was sent

	cutThere, cutBack bool      // messages vanish
	stalled           bool      // messages wait, and arrive in the end
	heldThere         []message // meanwhile
	heldBack          []answer
	troubled          time.Time // when something last went wrong here
	unanswered        time.Time // when a connection that awaited an answer last ended
}

func newPath(p *process, n *node) *path {
	path := &path{world: p.world, proc: p, node: n, conns: make(map[*conn]bool), sent: make(map[string]int)}
	n.paths = append(n.paths, path)
	return path
}

// message is a request under way.
type message struct {
	path *path
	conn *conn
	args []string
	dice dice
	at   time.Time // when it was sent

	calls  []message // the calls of a bundle; nil for other requests
	script string    // empty for other commands
	source string    // set only in the calls of a bundle
	keys   []string
	shares bool   // it acquires for a reader
	slots  bool   // it is for a semaphore
	lock   string // of a script
	argv   []string
	place  place
	who    string // the subject of the script, by its name in the trace
	owner  string // by its alias, like the next two; empty if there is none
	waiter string
	heir   string // that it names
	parked bool   // it releases a hold that was detached
}

// answer is a reply or a push under way.
type answer struct {
	conn  *conn
	bytes []byte
	to    *message // nil for a push
}

// dial opens a connection. It takes no time: go-redis holds a mutex meanwhile when it subscribes,
// and the time of a bubble stands still while a goroutine waits for a mutex.
func (p *path) dial(context.Context, string, string) (net.Conn, error) {
	p.world.mu.Lock()
	defer p.world.mu.Unlock()
	if p.node.several {
		p.trouble()
		if p.dials++; p.dials%2 == 0 {
			p = p.twin
		}
	}
	if p.refuses() || p.node.frozen && p.node.deaf {
		p.trouble()
		return nil, &net.OpError{Op: "dial", Net: "simulated", Err: errors.New("connection refused")}
	}
	c := newConn(p)
	p.conns[c] = true
	return c, nil
}

// refuses reports whether no connection can be made.
func (p *path) refuses() bool { return p.node.down || p.cutThere || p.cutBack || p.proc.dead }

func (p *path) trouble() { p.troubled = time.Now() }

// awaits reports whether an answer is to come.
func (p *path) awaits() bool {
	for c := range p.conns {
		if c.waiting > 0 {
			return true
		}
	}
	return false
}

func (p *path) reset() {
	for c := range p.conns {
		if c.waiting == 0 && len(c.channels) == 0 {
			// Before it uses an idle connection, go-redis checks it, and opens another: see Write.
			continue
		}
		p.node.forget(c)
		c.reset()
	}
}

// request takes a request of the client.
func (p *path) request(c *conn, args []string) {
	m := message{path: p, conn: c, args: args}
	verb := strings.ToLower(args[0])
	switch verb {
	case "hello", "client", "info": // at once, see dial
		c.take([]byte(c.introduce(args)))
		return
	case "evalsha", "eval":
		from := 3 + count(args[2])
		m.script, m.keys, m.argv = named[args[1]], args[3:from], args[from:]
		switch {
		case p.proc.java:
			m.script = ""
		case m.script == wire.Bundle.Name:
			for s, of := range wire.Unbundled(m.keys, m.argv) {
				call := message{path: p, conn: c, script: s.Name, source: s.Source, keys: of[0], argv: of[1], at: time.Now()}
				verb += ", " + call.describe()
				m.calls = append(m.calls, call)
			}
			m.who = verb
		default:
			verb = m.describe()
		}
	}
	p.sent[verb]++
	m.dice = p.world.dice.of(p.proc.id, p.node.String(), verb, strconv.Itoa(p.sent[verb]))
	m.at = time.Now()
	c.waiting++
	c.coming++
	for _, call := range m.each() {
		p.world.watch.sent(call)
	}
	if p.proc.paused {
		p.proc.out = append(p.proc.out, m)
		return
	}
	p.send(m)
}

// describe sets the subject of a script, and returns a description of it.
func (m *message) describe() string {
	m.lock = m.keys[0]
	if m.script == "latch" {
		m.who = m.argv[1] + " " + strings.Join(m.argv[5:], " ")
		return m.script + " " + m.who
	}
	if m.script == "share" {
		m.script, m.shares = "acquire", true
	}
	m.script, m.slots = strings.CutPrefix(m.script, slotted)
	m.place = placeOf(m.script, m.argv)
	m.path.proc.meet(m)
	how := ""
	if m.script == "acquire" {
		if how = m.argv[3]; m.place.waiter != "" {
			how = "wait"
		}
	}
	return how + m.script + " " + m.lock + " " + m.who
}

// each returns the calls of a bundle; of any other request, the request itself.
func (m *message) each() []message {
	if m.calls != nil {
		return m.calls
	}
	return []message{*m}
}

// send puts a request on its way.
func (p *path) send(m message) {
	c := m.conn
	fate := m.dice.of("fate").share()
	if p.cutThere || p.proc.dead || p.world.faulty() && m.script != "" && fate < p.world.plan.Drop {
		p.world.trace(fmt.Sprintf("%v to %v: %s for %s is lost", p.proc, p.node, m.script, m.who))
		p.trouble()
		c.dark = true
		return
	}
	at := later(p.world.delay(m.dice.of("there")), &c.lastThere)
	p.world.post.send(at, m.dice.of("there"), func() { p.node.arrive(m) })
}

// later is in how long something arrives that takes d, after all that was sent before.
func later(d time.Duration, last *time.Time) time.Duration {
	now := time.Now()
	at := now.Add(d)
	if !at.After(*last) {
		at = last.Add(1)
	}
	*last = at
	return at.Sub(now)
}

// reply sends the answer to a request on its way back.
func (p *path) reply(m message, b []byte) {
	d := m.dice.of("back")
	if p.world.faulty() && m.script != "" && d.of("fate").share() < p.world.plan.LoseReply {
		if m.conn.unknown > 0 {
			p.trouble() // the client will not send it again
		}
		if d.of("how").share() < 0.5 {
			p.world.trace(fmt.Sprintf("%v to %v: the reply to %s for %s is lost", p.node, p.proc, m.script, m.who))
			m.conn.dark = true
		} else {
			p.world.trace(fmt.Sprintf("%v to %v: reset before the reply to %s for %s", p.node, p.proc, m.script, m.who))
			p.node.forget(m.conn)
			m.conn.cut()
		}
		return
	}
	p.back(answer{m.conn, b, &m}, d)
}

// push sends a message to a subscriber.
func (p *path) push(c *conn, channel, text string) {
	said := p.proc.alias(text)
	if f := strings.Fields(said); f[0] == "handoff" { // the proof differs from run to run
		f[5] = "proof"
		said = strings.Join(f, " ")
	}
	p.sent["push"+said]++
	d := p.world.dice.of(p.node.String(), p.proc.id, "push", said, strconv.Itoa(p.sent["push"+said]))
	p.back(answer{c, fmt.Appendf(nil, "*3\r\n$7\r\nmessage\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(channel), channel, len(text), text), nil}, d)
}

func (p *path) back(a answer, d dice) {
	if p.cutBack || p.proc.dead {
		p.trouble()
		a.conn.dark = true
		return
	}
	if a.conn.dark {
		return
	}
	at := later(p.world.delay(d), &a.conn.lastBack)
	p.world.post.send(at, d, func() { p.deliver(a) })
}

// deliver gives an answer to the client.
func (p *path) deliver(a answer) {
	switch {
	case a.conn.dark, a.conn.closed, a.conn.err != nil:
	case p.stalled:
		p.heldBack = append(p.heldBack, a)
	case p.proc.paused:
		p.proc.in = append(p.proc.in, a)
	default:
		if a.to != nil {
			a.conn.waiting--
			if a.conn.unknown > 0 && time.Since(a.to.at) >= p.world.plan.NodeTimeout-time.Millisecond {
				p.trouble() // there is no time to send the source
			}
			if a.conn.waiting == 0 {
				a.conn.unknown = 0
			}
		}
		a.conn.take(a.bytes)
		if a.to == nil && (bytes.Contains(a.bytes, []byte("turn ")) || bytes.Contains(a.bytes, []byte("handoff "))) {
			for _, told := range p.proc.turns {
				told()
			}
		}
	}
}

// stall holds messages back, both ways, until resume.
func (p *path) stall() { p.stalled = true }

func (p *path) resume() {
	p.stalled = false
	there, back := p.heldThere, p.heldBack
	p.heldThere, p.heldBack = nil, nil
	for _, m := range there {
		p.node.arrive(m)
	}
	for _, a := range back {
		p.deliver(a)
	}
}
