package fleet

import (
	"slices"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// node is a server.
type node struct {
	model      *scriptmodel.Node
	clock      clock
	wall       scriptmodel.Time // shown at the beginning, with all steps since
	lag, each  time.Duration    // see Computer
	free       time.Duration    // when it has run all calls that have arrived
	loses, ran int              // see Computer; the calls so far
	down       int              // faults that keep it down
	frozen     int              // faults that keep it from running anything
	held       []*event         // events that arrived while it was frozen
	histories  int
	forgot     bool                  // scripts
	knows      map[*wire.Script]bool // since then
}

func newNode(on Computer) *node {
	n := &node{model: scriptmodel.New("1"), clock: clockOf(on), wall: on.Wall, lag: on.Lag, each: on.Each, loses: on.Loses, histories: 1}
	n.model.Receivers = make(map[string]int)
	return n
}

func (n *node) time(now time.Duration) scriptmodel.Time { return n.wall.Add(n.clock.at(now)) }

// knowsScript reports whether the node knows the script of a call, which may have the source along.
func (n *node) knowsScript(s *wire.Script, source bool) bool {
	if source && n.forgot {
		n.knows[s] = true
	}
	return !n.forgot || n.knows[s]
}

func (n *node) forgetScripts() { n.forgot, n.knows = true, make(map[*wire.Script]bool) }

// history returns an ID that was never used at this node.
func (n *node) history() string {
	n.histories++
	return strconv.Itoa(n.histories)
}

func (w *World) subscribe(client, node int, channel string) {
	e := w.event(subscribeArrives, w.now+w.delayOf(node))
	e.client, e.node, e.of.Channel = client, node, channel
	w.push(e)
}

func (w *World) subscribeArrives(e *event) {
	l, n := w.link(e.client, e.node, 0), w.nodes[e.node]
	if n.down > 0 || n.frozen > 0 || l.cutThere > 0 || l.cutBack > 0 || l.stalled > 0 {
		w.tell(e.client, w.now+w.delayOf(e.node), Event{Kind: Unsubscribed, Node: e.node, Channel: e.of.Channel})
		return
	}
	if !slices.Contains(l.channels, e.of.Channel) {
		l.channels = append(l.channels, e.of.Channel)
		n.model.Receivers[e.of.Channel]++
	}
	l.heard = max(l.heard, w.now+w.delayOf(e.node))
	w.tell(e.client, l.heard, Event{Kind: Subscribed, Node: e.node, Channel: e.of.Channel})
}

// unsubscribe ends a client's subscriptions at a node, with an event.
func (w *World) unsubscribe(client, node int) {
	l := w.link(client, node, 0)
	for _, ch := range l.channels {
		w.nodes[node].model.Receivers[ch]--
	}
	l.channels = l.channels[:0]
	l.heard = max(l.heard, w.now+w.delayOf(node))
	w.tell(client, l.heard, Event{Kind: Unsubscribed, Node: node})
}

func (w *World) publish(node int, m scriptmodel.Message) {
	if w.nodes[node].model.Receivers[m.Channel] == 0 {
		return
	}
	for i := range w.clients {
		l := w.link(i, node, 0)
		if l.cutBack > 0 || !slices.Contains(l.channels, m.Channel) {
			continue
		}
		l.heard = max(l.heard, w.now+w.delayOf(node))
		w.tell(i, l.heard, Event{Kind: Told, Node: node, Channel: m.Channel, Text: m.Text})
	}
}
