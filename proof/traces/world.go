package traces

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

const (
	name  = "lock"
	epoch = scriptmodel.Time(1_700_000_000_000_000) // the nodes' clocks at the beginning
)

var errTimeout = errors.New("timeout")

// world has the clients and nodes of a scenario, which share one clock.
type world struct {
	strings.Builder // the trace
	now             time.Duration
	nodes           []*node
	clients         []*client
	lock            core.Config
	terms           wire.Terms
	tokens          []uint64                 // of the trace
	ahead           map[string]time.Duration // of the clients' wall clocks
}

type node struct {
	*scriptmodel.Node
	delayed []request
}

// client is one call of Lock or TryLock, and its hold.
type client struct {
	*world
	name    string
	caller  wire.Caller
	machine *core.Machine
	hints   engine.Hints
	sent    [][]request // by node
	dead    bool
}

type request struct {
	client *client
	call   core.Call
	script wire.Call
}

func newWorld(nodes int) (*world, error) {
	set, err := options.Resolve()
	if err != nil {
		return nil, err
	}
	w := &world{terms: wire.TermsOf(&set), ahead: make(map[string]time.Duration)}
	for range nodes {
		w.nodes = append(w.nodes, &node{Node: scriptmodel.New("first")})
	}
	w.lock = core.Config{Tree: core.Majority(nodes/2+1, nodes), TTL: set.TTL, HandTTL: w.terms.HandTTL, NodeTimeout: set.NodeTimeout, Drift: set.Drift, Renew: true}
	return w, nil
}

// Cells, NameOf and Shares implement wire.Cells.
func (w *world) Cells() int        { return len(w.nodes) }
func (w *world) NameOf(int) string { return name }
func (w *world) Shares(int) bool   { return false }

func (w *world) clock() scriptmodel.Time { return epoch.Add(w.now) }

func (w *world) client(name string) *client {
	for _, c := range w.clients {
		if c.name == name {
			return c
		}
	}
	return nil
}

// begin begins a call of a client.
func (w *world) begin(name string, tries bool) {
	c := &client{world: w, name: name, sent: make([][]request, len(w.nodes))}
	c.caller = wire.Caller{Waiter: quorumlock.Owner(name + "~00000000-0000-0000-0000-000000000000:1"), Ticket: int64(w.clock())}
	config := w.lock
	if config.Tries = tries; !tries {
		c.caller.Secret = "secret-of-" + name
	}
	c.machine = core.New(&config, func(int) time.Duration { return time.Millisecond }, uint64(len(w.clients)+1))
	w.clients = append(w.clients, c)
	c.step(core.Event{Kind: core.Start})
}

// step gives an event to the machine, and tells the effects.
func (c *client) step(e core.Event) {
	was := c.machine.Phase()
	fx := c.machine.Step(core.Time{Mono: c.now, Boot: c.now}, e)
	if now := c.machine.Phase(); now != was {
		c.tell("%s: %v -> %v%s", c.name, was, now, c.details(fx))
	}
	var said []string
	hint := c.hints.Next(int64(c.clock().Add(c.ahead[c.name])), c.now)
	for _, k := range fx.Calls {
		what := c.words(&k)
		if i := slices.IndexFunc(said, func(s string) bool { return strings.HasSuffix(s, ": "+what) }); i >= 0 {
			said[i] = fmt.Sprintf("%s n%d: %s", strings.TrimSuffix(said[i], ": "+what), k.Cell+1, what)
		} else {
			said = append(said, fmt.Sprintf("%s to n%d: %s", c.name, k.Cell+1, what))
		}
		c.send(k, hint)
	}
	for _, s := range said {
		c.tell("%s", s)
	}
	for _, r := range fx.Rounds {
		c.tell("%s: renewal, won %v", c.name, r.Won)
	}
}

// details are the words for the outcome of a step.
func (c *client) details(fx *core.Effects) string {
	switch {
	case fx.Outcome == core.Acquired:
		return fmt.Sprintf(", the lock is held, token %s", c.token(c.machine.Token()))
	case fx.Outcome == core.Failed:
		return ", " + reasons[fx.Reason]
	case fx.Lost != core.NoReason:
		return ", the lease is lost: " + reasons[fx.Lost]
	case fx.Waiting && fx.Reason != core.NoReason:
		return ", " + reasons[fx.Reason]
	case fx.Released:
		return ", released"
	}
	return ""
}

var reasons = map[core.Reason]string{
	core.Held: "held by another", core.NoQuorum: "no quorum", core.HeldOrNone: "held, or no quorum", core.NoToken: "no agreement on a token",
	core.TooLate: "too late", core.Cancelled: "cancelled", core.NotRenewed: "not renewed", core.Gone: "the keys are gone", core.Closed: "closed",
}

var verbs = [...]string{
	core.Acquire: "acquire", core.Raise: "raise", core.Yield: "yield", core.Release: "release", core.ReleaseAndLeave: "release and leave",
	core.Leave: "leave", core.Renew: "renew", core.Restore: "restore", core.Keep: "keep", core.Park: "park", core.Attach: "attach", core.Return: "return",
}

// words describes a call: its verb, and the owner for which it is made.
func (c *client) words(k *core.Call) string {
	s := verbs[k.Do]
	if k.Do == core.Leave {
		return s
	}
	s += " " + c.who(c.caller.Owner(k.Attempt, k.Successor))
	if k.Do == core.Raise {
		s += fmt.Sprintf(" from %s to %s", c.token(k.From), c.token(k.Token))
	}
	return s
}

// who returns a short name of an owner: the client and the number of the attempt.
func (w *world) who(o quorumlock.Owner) string {
	client, rest, _ := strings.Cut(string(o), "~")
	if _, rest, _ = strings.Cut(rest, ":1"); rest == "" {
		rest = "/1"
	}
	return client + rest
}

// token returns a token's place in the trace: see ranked.
func (w *world) token(t uint64) string {
	w.tokens = append(w.tokens, t)
	return fmt.Sprintf("T%d", t)
}

// ranked returns the trace with each token replaced by its rank: T1 is the lowest.
func (w *world) ranked() string {
	slices.Sort(w.tokens)
	all := slices.Compact(w.tokens)
	trace := w.String()
	for i, t := range all {
		trace = strings.ReplaceAll(trace, fmt.Sprintf("T%d", t), fmt.Sprintf("T%d", i+1))
	}
	return trace
}

func (w *world) tell(format string, args ...any) { fmt.Fprintf(w, "  "+format+"\n", args...) }

// send queues a call for its node.
func (c *client) send(k core.Call, hint uint64) {
	entry := &wire.Entry{Waiter: c.caller.Waiter, Ticket: c.caller.Ticket, TTL: c.machine.Life(), Callers: 1}
	script := c.caller.Script(&c.terms, c.world, &k, c.caller.Owner(k.Attempt, k.Successor), entry, hint)
	c.sent[k.Cell] = append(c.sent[k.Cell], request{c, k, script})
}

// run runs a request at its node, tells the reply, and passes the node's messages on.
func (w *world) run(r request) wire.Reply {
	reply, messages := w.nodes[r.call.Cell].Run(w.clock(), r.script)
	heard := slices.Clone(messages)
	c := r.client
	read := c.caller.Read(&r.call, reply, func(quorumlock.Owner) bool { return false })
	w.tell("n%d: %s: %s", r.call.Cell+1, c.words(&r.call), w.answer(&r.call, &read))
	for _, m := range heard {
		w.deliver(int(r.call.Cell), m)
	}
	return reply
}

// answer is the words for a reply.
func (w *world) answer(k *core.Call, r *core.Reply) string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case k.Do == core.Acquire && r.OK, k.Do == core.Restore && r.OK:
		return "granted, token " + w.token(r.Token)
	case k.Do == core.Acquire && r.Free:
		return fmt.Sprintf("free, but %s is first in the queue", w.who(r.Holder))
	case k.Do == core.Acquire:
		return fmt.Sprintf("refused, held by %s; position %d in the queue", w.who(r.Holder), r.Position)
	case r.OK, r.First:
		return "yes"
	}
	return "no"
}

// deliver passes a message of a node to its waiter, at once.
func (w *world) deliver(cell int, m scriptmodel.Message) {
	for _, c := range w.clients {
		if m.Channel != wire.WakeChannel(strings.TrimSuffix(string(c.caller.Waiter), ":1")) {
			continue
		}
		if c.dead {
			w.tell("n%d to %s, which is dead: %s", cell+1, c.name, strings.Fields(m.Text)[0])
			continue
		}
		said, ok := engine.ParseMessage(m.Text)
		if !ok {
			w.tell("n%d to %s: a message that it does not know: %s", cell+1, c.name, m.Text)
			continue
		}
		if e, ok := said.Event(cell, c.caller.Secret); ok {
			w.tell("n%d to %s: %s", cell+1, c.name, strings.Fields(m.Text)[0])
			c.step(e)
		}
	}
}

// reply gives the reply of a request to its client.
func (r *request) reply(reply wire.Reply) {
	if c := r.client; !c.dead {
		c.step(core.Event{Kind: core.Replied, Call: r.call, Reply: c.caller.Read(&r.call, reply, func(quorumlock.Owner) bool { return false })})
	}
}

// wait lets time pass, and wakes the machines that are due.
func (w *world) wait(d time.Duration) {
	for end := w.now + d; w.now < end; {
		next := end
		for _, c := range w.clients {
			if wake := c.machine.Wake(); !c.dead && wake != 0 {
				next = min(next, max(wake, w.now+1))
			}
		}
		w.now = next
		for _, c := range w.clients {
			if wake := c.machine.Wake(); !c.dead && wake != 0 && wake <= w.now {
				c.step(core.Event{Kind: core.Tick})
			}
		}
	}
}
