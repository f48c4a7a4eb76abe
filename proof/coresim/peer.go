package coresim

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock/internal/engine"
	"github.com/quorumlock/quorumlock/proof/fleet"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// PeerPlan has the actions of a Redisson client with one thread.
type PeerPlan struct {
	Names  int
	Polls  time.Duration `shrink:"0"` // it asks again after so long; 0: it subscribes
	Silent bool          // its releases have no message, like those of an RSpinLock
	Wait   time.Duration // for a member, at most
	Steps  []PeerStep    `shrink:"drop"`
}

// PeerStep is a lock and unlock by a peer.
type PeerStep struct {
	After, Hold time.Duration
	NoRenew     bool
}

// peers adds Redisson clients to some seeds. Its own generator keeps the other seeds
// unchanged. Redisson knows neither the restart guard nor two addresses of one server.
func (p *Plan) peers() {
	g := generator{rand.New(rand.NewPCG(p.Seed, 0x3ed155))}
	if p.Guard || p.Twins || !g.chance(0.06) {
		return
	}
	if p.Class == calm && g.chance(0.3) {
		p.contest(g)
		return
	}
	for range 1 + g.IntN(3) {
		x := PeerPlan{Silent: g.chance(0.15), Wait: g.between(p.TTL/4, p.TTL)}
		if p.Quorum == p.Nodes { // a RedissonMultiLock needs each member
			x.Names = pick(g, 0, 0, 1, 2)
		}
		if x.Silent || g.chance(0.2) {
			x.Polls = g.between(2*p.Latency, 20*p.Latency)
		}
		for range 1 + g.IntN(5) {
			x.Steps = append(x.Steps, PeerStep{g.between(0, p.TTL/2), g.between(0, p.TTL/3), g.chance(0.2)})
		}
		p.Peers = append(p.Peers, x)
	}
}

// contest makes a plan in which workers and peers compete for x all the time.
func (p *Plan) contest(g generator) {
	p.Contest, p.Readers, p.Crowd, p.Detaches, p.MaxHold = true, false, false, false, 0
	p.TTL, p.NodeTimeout, p.Length = 2*time.Second, 500*time.Millisecond, 2*time.Second
	p.Workers = nil
	hold := g.between(time.Millisecond, 8*time.Millisecond)
	most := int(p.Length / hold)
	if p.Quorum < p.Nodes {
		p.Quorum = p.Nodes/2 + 1
	}
	for i := range 2 + g.IntN(5) {
		p.Workers = append(p.Workers, WorkerPlan{i % len(p.Processes), slices.Repeat([]Step{{Hold: []Use{{After: hold}}}}, most)})
	}
	silent, polls := g.chance(0.25), time.Duration(0)
	if silent {
		polls = g.between(time.Millisecond, 8*time.Millisecond)
	}
	for range 1 + g.IntN(6) {
		p.Peers = append(p.Peers, PeerPlan{Silent: silent, Polls: polls, Wait: 1500 * time.Millisecond, Steps: slices.Repeat([]PeerStep{{Hold: hold}}, most)})
	}
}

// peer plays a plan: as a RedissonRedLock that needs a quorum of the nodes, a RedissonMultiLock of
// x and y at each node, or an RLock of a single node. Its scripts run at the nodes by events of the
// world. Unlike a Redisson client, it treats its hold as over as soon as a node may have dropped
// the key. So mutual exclusion holds under faults, too.
type peer struct {
	generator
	tier   *tier
	number int
	client int // of the fleet
	owner  string
	plan   *PeerPlan
	steps  []PeerStep
	step   *PeerStep
	cells  []site
	limit  int // how many members may fail
	member int // that it asks or waits for
	failed int
	keys   []time.Duration // by member: until when the node keeps its key; 0: it has none
	round  int             // changes with each attempt, to void renewals
	id     int             // changes with each action, to void its timers
	since  time.Duration   // it waits for the member
	hears  bool            // it has subscribed at the member
	told   bool            // a message came that it has not used
	waits  bool            // for a message
	holds  bool
	grants int
	moves  int // members that it got
	backs  int // members that it gave back
	ended  bool
}

func (t *tier) newPeer(i int) *peer {
	p := &peer{tier: t, number: i, client: len(t.procs) + i, plan: &t.plan.Peers[i], generator: generator{rand.New(rand.NewPCG(t.plan.Seed, uint64(i)))}}
	p.owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:" + strconv.Itoa(i+1)
	p.steps = p.plan.Steps
	for name := range semaphore {
		for node := 0; node < t.plan.Nodes && (p.plan.Names == name || p.plan.Names == 2); node++ {
			p.cells = append(p.cells, site{node, name})
		}
	}
	p.limit = t.plan.Nodes - t.plan.Quorum
	return p
}

// Step is fleet.Client's.
func (p *peer) Step(_ fleet.Clock, e fleet.Event, to *fleet.Effects) {
	here := p.hears && e.Node == p.at().node && (e.Channel == "" || e.Channel == unlockChannels[p.at().name])
	switch {
	case e.Kind == fleet.Started:
		p.next()
	case !here:
		to.Unsubscribe(e.Node, e.Channel)
	case e.Kind == fleet.Unsubscribed:
		p.tier.world.At(p.tier.world.Now()+20*time.Millisecond, func() {
			if p.hears {
				p.listen()
			}
		})
	default: // Redisson reads messages as numbers, and ignores those from 2 on
		n, err := strconv.Atoi(e.Text)
		if e.Kind == fleet.Told && (err != nil || n > 1) {
			return
		}
		if p.told = !p.waits; p.waits {
			p.ask()
		}
	}
}

func (p *peer) at() site { return p.cells[min(p.member, len(p.cells)-1)] }

// after runs do after d, unless the peer does something else by then.
func (p *peer) after(d time.Duration, do func()) {
	id := p.id
	p.tier.world.At(p.tier.world.Now()+d, func() {
		if p.id == id {
			do()
		}
	})
}

func (p *peer) next() {
	p.id++
	if len(p.steps) == 0 || p.isLate() {
		p.ended = true
		return
	}
	p.step, p.steps = &p.steps[0], p.steps[1:]
	p.after(p.step.After, p.start)
}

func (p *peer) isLate() bool { return p.tier.world.Now() > p.tier.plan.Length }

// start begins an attempt.
func (p *peer) start() {
	p.keys = make([]time.Duration, len(p.cells))
	p.failed, p.round = 0, p.round+1
	if !p.step.NoRenew {
		p.renewLater(p.round)
	}
	p.visit(0)
}

// visit goes on to a member.
func (p *peer) visit(member int) {
	p.ignore()
	p.member, p.since, p.told = member, p.tier.world.Now(), false
	if member == len(p.cells) {
		p.gets()
		return
	}
	p.ask()
}

// request runs a script at a node. If its reply comes in time, then runs without an error.
func (p *peer) request(at site, script func(*scriptmodel.Node, scriptmodel.Time) error, then func(error)) {
	t, net, lost, over := p.tier, &p.tier.plan.Network, 0.0, false
	if !p.isLate() {
		lost = max(net.Lose, net.LoseReply)
	}
	answer := func(after time.Duration, err error) {
		t.world.At(t.world.Now()+after, func() {
			if !over {
				over = true
				then(err)
			}
		})
	}
	answer(t.plan.NodeTimeout, errTimeout)
	t.world.At(t.world.Now()+p.delay(), func() {
		// A late unlock by an owner would end its next hold: Redisson's owners have no attempts.
		if over || !t.world.Answers(at.node) || p.chance(lost) {
			return
		}
		n, now := t.world.Node(at.node)
		if err := script(n, now); !p.chance(lost) {
			answer(p.delay(), err)
		}
	})
}

func (p *peer) delay() time.Duration {
	net, slow := &p.tier.plan.Network, time.Duration(0)
	if !p.isLate() && p.chance(net.Slow) {
		slow = p.between(0, net.MaxSlow)
	}
	return slow + p.between(net.MinDelay, net.MaxDelay)
}

// ask asks for the member.
func (p *peer) ask() {
	p.id++
	p.waits = false
	id, t, at, granted, left, sent := p.id, p.tier, p.at(), false, time.Duration(0), p.tier.world.Now()
	p.request(at, func(n *scriptmodel.Node, now scriptmodel.Time) (err error) {
		granted, left, err = n.Lock(now, names[at.name], p.owner, t.plan.TTL)
		t.note("n%d: peer%d asks for %s: %v %v", at.node+1, p.number+1, names[at.name], granted, err)
		return err
	}, func(err error) {
		switch over := t.world.Now() >= p.since+p.plan.Wait || p.isLate(); {
		case p.id != id:
		case err == nil && granted:
			p.keys[p.member] = sent + t.plan.Drift.Validity(t.plan.TTL, 0)
			p.moves++
			t.watch.changes++
			p.visit(p.member + 1)
		case err != nil || over:
			p.fails()
		case p.plan.Polls > 0:
			p.after(p.plan.Polls, p.ask)
		case p.told:
			p.told = false
			p.ask()
		case !p.hears:
			p.hears = true
			p.listen()
			p.waitFor(left)
		default:
			p.waitFor(left)
		}
	})
}

// waitFor waits for a message, and for the end of the key at the node.
func (p *peer) waitFor(left time.Duration) {
	p.waits = true
	p.after(max(min(left, p.since+p.plan.Wait-p.tier.world.Now()), time.Millisecond), p.ask)
}

func (p *peer) listen() {
	p.tier.world.Call(p.client, func(_ fleet.Clock, to *fleet.Effects) { to.Subscribe(p.at().node, unlockChannels[p.at().name]) })
}

func (p *peer) ignore() {
	if p.hears {
		p.hears = false
		p.tier.world.Call(p.client, func(_ fleet.Clock, to *fleet.Effects) { to.Unsubscribe(p.at().node, unlockChannels[p.at().name]) })
	}
}

// has returns the number of members that the peer has.
func (p *peer) has() (n int) {
	for _, until := range p.keys {
		if until > 0 {
			n++
		}
	}
	return n
}

// fails goes on after a member that it has not got.
func (p *peer) fails() {
	switch {
	case p.isLate():
		p.back(p.next)
	case p.has() == len(p.cells)-p.limit:
		p.visit(len(p.cells))
	case p.failed == p.limit:
		p.back(func() { p.after(p.between(0, 10*time.Millisecond), p.start) })
	default:
		p.failed++
		p.visit(p.member + 1)
	}
}

// back releases all members, one after another.
func (p *peer) back(then func()) {
	p.id++
	p.ignore()
	p.holds, p.round = false, p.round+1
	var release func(i int)
	release = func(i int) {
		if i == len(p.cells) {
			then()
			return
		}
		t, at := p.tier, p.cells[i]
		p.keys[i] = 0
		p.backs++
		t.watch.changes++
		p.request(at, func(n *scriptmodel.Node, now scriptmodel.Time) error {
			held, err := n.Unlock(now, names[at.name], p.owner)
			t.note("n%d: peer%d releases %s: %v %v", at.node+1, p.number+1, names[at.name], held, err)
			if held && !p.plan.Silent {
				t.world.Publish(at.node, unlockChannels[at.name], "0")
			}
			return err
		}, func(error) { release(i + 1) })
	}
	release(0)
}

// renewLater renews an attempt and its hold from time to time.
func (p *peer) renewLater(round int) {
	t := p.tier
	t.world.At(t.world.Now()+t.plan.TTL/3, func() {
		if p.round != round {
			return
		}
		for i, at := range p.cells {
			sent, held := t.world.Now(), false
			if p.keys[i] == 0 {
				continue
			}
			p.request(at, func(n *scriptmodel.Node, now scriptmodel.Time) (err error) {
				held, err = n.Extend(now, names[at.name], p.owner, t.plan.TTL)
				return err
			}, func(err error) {
				if p.round == round && err == nil && held {
					p.keys[i] = max(p.keys[i], sent+t.plan.Drift.Validity(t.plan.TTL, 0))
				}
			})
		}
		p.renewLater(round)
	})
}

// until returns when the peer stops having enough members.
func (p *peer) until() time.Duration {
	all := slices.Clone(p.keys)
	slices.Sort(all)
	return all[p.limit]
}

// live reports whether the peer has a lock.
func (p *peer) live(name int) bool {
	return p.holds && slices.ContainsFunc(p.cells, func(s site) bool { return s.name == name }) && p.until() > p.tier.world.Now()
}

// gets is called when the peer has enough members.
func (p *peer) gets() {
	t, now := p.tier, p.tier.world.Now()
	if p.until() <= now {
		p.back(p.start)
		return
	}
	p.holds = true
	p.grants++
	t.note("peer%d has %d until %v", p.number+1, p.plan.Names, p.until())
	for name := range names {
		if !p.live(name) || t.plan.Class == beyond {
			continue
		}
		for _, h := range t.watch.holds {
			if t.watch.live(h) && h.call.lock.has(name) {
				t.violate(mutualExclusion, "peer%d got %s while %s holds it", p.number+1, names[name], h.call.caller.Waiter)
			}
		}
		for _, o := range t.peers {
			if o != p && o.live(name) {
				t.violate(mutualExclusion, "peer%d got %s while peer%d has it", p.number+1, names[name], o.number+1)
			}
		}
		for _, s := range t.watch.kept {
			if now < s.to && s.lock.has(name) {
				t.violate(keptOn, "peer%d got %s, which is kept from %v to %v", p.number+1, names[name], s.from, s.to)
			}
		}
	}
	p.after(p.step.Hold, func() {
		p.back(func() {
			for name := range names {
				t.noticed(name, true)
			}
			p.next()
		})
	})
}

// besidePeers checks that no peer has the lock of a hold.
func (t *tier) besidePeers(h *hold) {
	for _, p := range t.peers {
		for _, name := range h.call.lock.names {
			if t.plan.Class != beyond && p.live(name) {
				t.violate(mutualExclusion, "%s was granted %s while peer%d has it until %v", h.call.caller.Waiter, names[name], p.number+1, p.until())
			}
		}
	}
}

// noticed is handoff for plans with peers: when a lock has become free, a peer or a waiter takes it
// soon. The limit allows for a window, and for waiters of a process that are not the first in the
// queue. Peers without messages are exempt: waiters only poll for them. A process that has not
// observed the peers does not listen for their releases: byPeer tells that one may be the reason.
func (t *tier) noticed(name int, byPeer bool) {
	if t.plan.Class != calm || t.isMulti() || t.isSilent() || !t.free(name, false) {
		return
	}
	moves := func() (n int) {
		for _, p := range t.peers {
			if n += p.moves; p.has() > 0 {
				return -1
			}
		}
		return n + t.watch.names[name].count
	}
	before, began := moves(), t.world.Now()
	told := slices.DeleteFunc(t.waiting(name), func(c *call) bool { return byPeer && c.process.overlooks(name) })
	soon := 40*time.Millisecond + 40*t.plan.Latency + time.Duration(10*len(t.waiting(name)))*time.Millisecond
	t.world.At(began+soon, func() {
		if before < 0 || moves() != before || !t.free(name, false) || t.isMulti() {
			return
		}
		for _, c := range t.waiting(name) {
			if slices.Contains(told, c) && !c.tries && began-c.first > 10*t.plan.Latency && !c.worker.gone {
				t.violate(promptly, "%s was free for %v, while %s waits since %v", names[name], soon, c.caller.Waiter, c.first)
				return
			}
		}
	})
}

// fair checks the shares of a contest. It lasts for two seconds, too short for an exact third, so a
// fifth of the grants is enough; and one grant, if the lock needs each of several nodes. Peers
// without messages are exempt: by chance, no release in this time may be a probe.
func (t *tier) fair() {
	if !t.plan.Contest || len(t.violations) > 0 || t.isSilent() {
		return
	}
	theirs, ours := t.theirs(), t.watch.names[0].count
	least := (theirs + ours) / 5
	if t.plan.Quorum == t.plan.Nodes && t.plan.Nodes > 1 {
		least = 1
	}
	if min(theirs, ours) < least {
		t.violate(bothServed, "%d grants to Redisson's clients, %d to ours", theirs, ours)
	}
}

// isSilent reports whether the releases of some peers have no message.
func (t *tier) isSilent() bool {
	return slices.ContainsFunc(t.peers, func(p *peer) bool { return p.plan.Silent })
}

// theirs is the number of grants to peers.
func (t *tier) theirs() (n int) {
	for _, p := range t.peers {
		n += p.grants
	}
	return n
}

// withoutPeers checks that the processes forget peers that have gone, and stop listening to them.
func (t *tier) withoutPeers() {
	if len(t.peers) == 0 {
		return
	}
	t.advance(engine.PeerMemory*5/4 + time.Second)
	dead := slices.ContainsFunc(t.procs, func(p *process) bool { return p.dead })
	for _, p := range t.procs {
		if n := p.redisson.Known(); n > 0 && !p.dead {
			t.violate(nothingStays, "p%d knows peers at %d places", p.number+1, n)
		}
	}
	for n := range t.plan.Nodes {
		for _, channel := range unlockChannels {
			if node, _ := t.world.Node(n); node.Receivers[channel] > 0 && !dead {
				t.violate(nothingStays, "n%d has %d listeners at %s", n+1, node.Receivers[channel], channel)
			}
		}
	}
}
