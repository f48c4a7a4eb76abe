package simulation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/wire"
	qnode "github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// process is a program with a client of the locks. Its paths are its own, and so is its wall clock.
type process struct {
	world  *world
	id     string
	client *redlock.Client
	shared *redlock.Latch  // used by all of its workers; others make one for each call
	redis  []*redis.Client // of the nodes that are given a client
	paths  []*path
	uuid   string       // of its owners; known once it has sent one
	wall   atomic.Int64 // ns that its wall clock is ahead of the truth

	names    map[string]string // of owners and waiters, see meet
	known    map[string]string // the other way round
	attempts map[string]int    // of a waiter
	waiters  int
	tries    int
	parked   int

	ahead    time.Duration // its wall clock was, when its client was made
	wasRight bool          // its clock was, when its client was made
	called   []time.Time   // when its calls began
	turns    []func()      // called when one of its waiters is called
	boots    bool          // it has a clock that counts suspends and never steps, as on Linux
	stepped  bool          // its wall clock was
	forward  time.Time     // when it was last stepped forward
	paused   bool
	gate     chan struct{} // closed when the pause is over
	out      []message     // sent by it in a pause: none of it has left
	in       []answer      // sent to it in a pause
	dead     bool
	java     bool // it has clients of Redisson's
	before   bool // it is a client of the version before
}

func newProcess(w *world, number int, plan ProcessPlan) (*process, error) {
	p := &process{world: w, id: fmt.Sprintf("p%d", number+1), names: make(map[string]string), known: make(map[string]string), attempts: make(map[string]int)}
	p.wall.Store(int64(plan.Wall))
	p.ahead, p.before = plan.Wall, plan.Before
	w.mu.Lock()
	p.wasRight = p.right()
	w.mu.Unlock()
	p.boots = number%2 == 0
	nodes := make([]*qnode.Node, len(w.nodes))
	for i, n := range w.nodes {
		path := newPath(p, n)
		if n.twin != nil {
			// The first connections of two processes lead to different servers.
			path.twin, path.dials = newPath(p, n.twin), number
		}
		p.paths = append(p.paths, path)
		if plan.Prompt {
			var err error
			if nodes[i], err = qnode.Dial("redis://"+n.String()+"?protocol=2", qnode.WithName(n.String()), qnode.WithDialer(path.dial)); err != nil {
				return nil, err
			}
			continue
		}
		// With retries: the library must send nothing twice whatever the client does.
		c := redis.NewClient(&redis.Options{
			Addr: n.String(), Dialer: path.dial, Protocol: 2, DisableIdentity: true,
			DialerRetries: 1, ReadTimeout: time.Second,
			ReadBufferSize: 1 << 9, WriteBufferSize: 1 << 10, PipelinePoolSize: -1, PoolSize: 256,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		p.redis = append(p.redis, c)
		var err error
		if nodes[i], err = qnode.New(c, qnode.WithName(n.String())); err != nil {
			panic(err) // the arguments are right
		}
	}
	if w.plan.Orders {
		first := number % len(nodes)
		nodes = slices.Concat(nodes[first:], nodes[:first])
	}
	var err error
	p.client, err = redlock.New(nodes,
		quorumlock.WithTTL(w.plan.TTL), quorumlock.WithNodeTimeout(w.plan.NodeTimeout), quorumlock.WithQuorum(w.plan.Quorum),
		quorumlock.WithDrift(w.plan.Drift), w.plan.guard(),
		// A fixed label, so that the least of several owners is the same in every run.
		quorumlock.WithLabel(p.id))
	if err != nil {
		return nil, err
	}
	seed := w.dice.of("jitter", p.id)
	var jittered atomic.Int64
	client.ClientOf(p.client.Mutex("any")).Simulate(p.now, p.bootClock(), func(d time.Duration) time.Duration {
		return d/2 + seed.of(fmt.Sprint(jittered.Add(1))).below(d)
	})
	p.shared = p.latch(true)
	return p, nil
}

func (p *process) String() string { return p.id }

// meet gives the owners and waiters of a script names that are the same in every run: an attempt is
// named for its waiter and its number among the waiter's attempts. The client's identity is random,
// and two goroutines woken by one message take their numbers in any order.
func (p *process) meet(m *message) {
	owner, waiter := base(m.argv[0]), ""
	switch m.script {
	case "acquire":
		waiter = m.place.waiter
	case "release":
		if len(m.argv) > 3 {
			waiter = m.argv[3]
		}
	case "open":
		waiter = m.argv[4]
		p.name(m.argv[3], p.id+"place")
	case "leave":
		owner, waiter = "", m.argv[0]
	case "transfer":
		if other := base(m.argv[1]); m.argv[2] == "park" && p.names[other] == "" {
			p.parked++
			p.name(other, fmt.Sprintf("%sparked%d", p, p.parked))
			p.world.parked[other] = p.names[other]
		} else if p.names[other] == "" {
			p.names[other] = p.world.parked[other]
		}
	}
	if p.world.parked[owner] != "" { // a parked owner, of no process
		p.names[owner] = p.world.parked[owner]
		owner, m.parked = "", true
	}
	if p.uuid == "" { // its first is an acquire
		p.uuid = m.argv[0][:strings.LastIndexByte(m.argv[0], ':')]
		p.world.procs[p.uuid] = p
	}
	if waiter != "" && p.names[waiter] == "" {
		p.waiters++
		p.name(waiter, fmt.Sprintf("%sw%d", p, p.waiters))
	}
	switch {
	case owner == "" || p.names[owner] != "":
	case waiter != "":
		p.attempts[waiter]++
		p.name(owner, fmt.Sprintf("%s.%d", p.names[waiter], p.attempts[waiter]))
	default:
		p.tries++
		p.name(owner, fmt.Sprintf("%st%d", p, p.tries))
	}
	if heir := m.place.heir; heir != "" && p.names[heir] == "" {
		p.name(heir, p.names[m.place.waiter]+heir[len(m.place.waiter):])
		p.name(m.place.secret, "secret")
	}
	m.who, m.owner, m.waiter, m.heir = p.alias(m.argv[0]), p.alias(owner), p.alias(waiter), p.alias(m.place.heir)
}

func base(owner string) string { return string(wire.Base(quorumlock.Owner(owner))) }

// place is the entry of a waiter that a script is given.
type place struct {
	waiter string
	ticket float64
	unsure bool
	heir   string
	secret string
	shares bool
}

func placeOf(script string, argv []string) (p place) {
	at := map[string]int{"acquire": 3, "release": 4}[script]
	if at == 0 || at >= len(argv) {
		return p
	}
	fields := strings.Fields(argv[at])
	if len(fields) > 1 {
		p.waiter = fields[0]
		ticket, unsure := strings.CutSuffix(fields[1], "?")
		p.ticket, _ = strconv.ParseFloat(ticket, 64)
		p.unsure = unsure
	}
	p.shares = len(fields) > 3 && strings.Contains(fields[3], "s")
	if len(fields) > 7 {
		p.heir, p.secret = fields[0]+"/"+fields[6], fields[7]
	}
	return p
}

// isHeir reports whether an owner, or its alias, is a waiter's successor.
func isHeir(owner string) bool { return strings.Contains(owner, "/") }

func (p *process) name(who, alias string) { p.names[who], p.known[alias] = alias, who }

// alias replaces the owners and waiters in a text by their names.
func (p *process) alias(s string) string {
	if name := p.names[base(s)]; name != "" {
		return name + s[len(base(s)):]
	}
	if !strings.Contains(s, " ") {
		return s
	}
	words := strings.Split(s, " ")
	for i, word := range words {
		if name := p.names[base(word)]; name != "" {
			words[i] = name + word[len(base(word)):]
		}
	}
	return strings.Join(words, " ")
}

// aliased is an error without random identities.
func (p *process) aliased(err error) string {
	if err == nil {
		return "no error"
	}
	if p.uuid == "" {
		return err.Error()
	}
	return strings.ReplaceAll(err.Error(), p.uuid, p.id)
}

// pause stops the process as far as the world can see: no message leaves or reaches it, and its
// workers stand still. Its timers do not: see doc.go.
func (p *process) pause() {
	if p.paused {
		return
	}
	p.paused, p.gate = true, make(chan struct{})
}

func (p *process) resume() {
	if !p.paused {
		return
	}
	p.paused = false
	close(p.gate)
	out, in := p.out, p.in
	p.out, p.in = nil, nil
	for _, a := range in {
		a.conn.path.deliver(a)
	}
	for _, m := range out {
		m.path.send(m)
	}
}

// die cuts the process off for good. Its sent messages arrive.
func (p *process) die() {
	p.dead = true
	for _, path := range p.paths {
		path.trouble()
	}
}

// stand waits while the process is paused, and reports whether it lives.
func (p *process) stand(ctx context.Context) bool {
	for {
		p.world.mu.Lock()
		paused, gate, dead := p.paused, p.gate, p.dead
		p.world.mu.Unlock()
		if dead || ctx.Err() != nil {
			return false
		}
		if !paused {
			return true
		}
		<-gate
	}
}

func (p *process) close() error {
	err := p.client.Close()
	for _, c := range p.redis {
		_ = c.Close() // the nodes do not own them
	}
	return err
}
