package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// follower replaces a node of a client when its address in the settings file changes. The number of
// nodes and their positions stay, so the locks see one more case of "an empty server at the same
// address" (docs/upgrades.md): a node that restarts without its data.
//
// Safety. Let C be the old server, D the new one, and G the quarantine of the restart guard. Two
// owners need a vote of C for the one and of D for the other. The steps of each client are:
//
//  1. It leaves: once C no longer answers it and D does, it closes its connections to C and opens
//     no more. Then it publishes the new list, in the names of its connections to the others.
//  2. It looks at the clients of the others until all have the new list. A quorum of the others must
//     show it their clients, and its own new name among them.
//  3. It waits for G, in which C must not answer, looks again, and joins: it connects to D, which the
//     guard has kept from granting since the first call of a client.
//
// Why no lease with a vote of C is left when the first client joins: it has its other votes from
// Q − 1 of the others. One of these is among the Q that the client looks at in step 2. If the holder
// was connected there, it had left C by then, so that its last vote of C is worth nothing G later.
//
// The steps do not protect against a client that cannot be seen: one that may not name its
// connections, that has lost them for a time, or that starts later with the old list. Nor against a
// program that starts with the new list, and so has nothing to wait for. So the rule remains: stop C
// for good, then start D, then change the file.
//
// A client that has left C never returns to it, since others may have joined D.
type follower struct {
	client *Client
	from   options.Follow
	now    options.Fleet // in force, and published
	said   []string      // the reports since the last step, each logged once

	// The replacement that the file asks for; zero if it asks for none.
	to    string     // the URL of the new server
	at    int        // its position
	old   *node.Node // the old server; has connections of its own, like next
	next  *node.Node // the new server
	quiet int        // how often in a row the old server has not answered
	left  bool       // step 1 is done
	ahead list       // a list that clients have after this replacement; zero if none is known
	look  time.Time  // not before this time is step 2 tried again
	since time.Time  // the time of step 2; zero before
}

// followEvery is the time between two readings of the settings file.
const followEvery = 500 * time.Millisecond

// quietLooks is how often in a row the old server must not answer before a client leaves it.
const quietLooks = 3

// lookEach is the time by which the next step 2 is later for each client that was seen: a server
// that lists its clients does nothing else meanwhile, and all clients ask.
const lookEach = 10 * time.Millisecond

// errReplaced is the error of calls to a node between step 1 and step 3.
var errReplaced = errors.New("its server is being replaced: it votes again after the time of the restart guard")

// follow starts the client's follower, and the comparison with other clients. It does neither if
// nothing can come of it.
func (c *Client) follow(from *options.Follow) error {
	compares := c.set.Logger.Enabled(context.Background(), slog.LevelWarn)
	if from.Settings.File == "" && !compares {
		return nil
	}
	f := &follower{client: c, from: *from, now: from.Settings}
	f.now.Nodes = slices.Clone(f.now.Nodes)
	ctx, cancel := context.WithCancel(context.Background())
	if err := c.locks.Aside(func() { <-c.locks.Closed(); cancel() }); err != nil {
		cancel()
		return err
	}
	return c.locks.Aside(func() {
		defer f.drop()
		tick := time.NewTicker(followEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if compares && c.isConnected() {
				compares = false
				c.compare(ctx)
			}
			if f.now.File != "" {
				f.step(ctx)
			} else if !compares {
				return
			}
		}
	})
}

// step reads the settings once, and takes at most one step of a replacement.
func (f *follower) step(ctx context.Context) {
	if f.left {
		f.join(ctx)
	}
	read, err := f.now.Again()
	if err != nil {
		f.report(err)
		return
	}
	moved, rekeyed, err := f.now.Replaced(&read)
	if err != nil {
		f.report(err)
		return
	}
	for _, i := range rekeyed {
		if err := f.rekey(i, read.Nodes[i]); err != nil {
			f.report(err)
			return
		}
	}
	switch {
	case moved < 0 && !f.left:
		f.drop()
		f.said = nil
	case moved >= 0 && f.left:
		f.report(fmt.Errorf("%s does not replace %s yet: leave it at its place in the list, and change node %d later", f.next, f.old, moved+1))
		f.note(moved, read.Nodes[moved])
	case moved >= 0:
		if err := f.leave(ctx, moved, read.Nodes[moved]); err != nil {
			f.report(err)
		}
	}
}

// note records the list of clients for which the next replacement has begun already. They have ended
// this one, so it must not wait for them, who wait for it.
func (f *follower) note(i int, url string) {
	if i == f.at {
		return
	}
	if n, err := f.dial(url); err == nil {
		f.ahead = f.client.listWith(i, n.String())
		_ = n.Close() // it has no calls under way
	}
}

// rekey uses other credentials for the node at a position.
func (f *follower) rekey(i int, url string) error {
	n, err := f.dial(url)
	if err != nil {
		return err
	}
	if f.left && i == f.at {
		n, f.next, f.to = f.next, n, url
		transport.Of(f.client.nodes[i]).Move(transport.Of(f.next), errReplaced)
	} else {
		transport.Of(f.client.nodes[i]).Move(transport.Of(n), nil)
	}
	f.now.Nodes[i] = url
	return n.Close()
}

func (f *follower) dial(url string) (*node.Node, error) {
	n, err := f.from.Dial(url)
	if err != nil {
		return nil, err
	}
	return n.(*node.Node), nil
}

// leave takes step 1, or returns the reason why it must wait.
func (f *follower) leave(ctx context.Context, i int, url string) error {
	c := f.client
	if c.set.MaxTTL == 0 {
		return fmt.Errorf("node %d has another address, but there is no restart guard that keeps an empty server from granting: set %s, or replace the node as docs/upgrades.md says for another address",
			i+1, options.RestartGuardVariable)
	}
	if c.set.Quorum == len(c.nodes) {
		return fmt.Errorf("node %d has another address, but a quorum of %d needs all nodes, so none can be replaced while clients run: docs/upgrades.md has other ways", i+1, c.set.Quorum)
	}
	if f.to != url || f.at != i {
		if err := f.prepare(i, url); err != nil {
			return err
		}
	}
	for j, n := range c.nodes {
		if j != i && n.String() == f.next.String() {
			return fmt.Errorf("nodes %d and %d both have the address %s: give each server once", i+1, j+1, n)
		}
	}
	if transport.Of(f.old).Answers(ctx) {
		f.quiet = 0
		return fmt.Errorf("%s is to replace %s, which still answers: stop it for good first", f.next, f.old)
	}
	if f.quiet++; f.quiet < quietLooks {
		return nil
	}
	if err := f.ready(ctx); err != nil && !errors.Is(err, quorumlock.ErrQuarantined) {
		return fmt.Errorf("%s, which is to replace %s, does not grant locks: %w", f.next, f.old, err)
	}
	if err := f.isNew(ctx, i); err != nil {
		return err
	}
	if err := f.quorum(ctx, i); err != nil {
		return err
	}
	was := f.old.String()
	f.left, f.said = true, nil
	f.now.Nodes[i] = url
	transport.Of(c.nodes[i]).Move(transport.Of(f.next), errReplaced)
	c.publish()
	c.set.Logger.Info("quorumlock: a node is being replaced: its votes count again after the time of the restart guard",
		"node", i+1, "old", was, "new", f.next.String(), "guard", options.Quarantine(&c.set))
	return nil
}

// prepare makes the nodes for questions to the old and the new server.
func (f *follower) prepare(i int, url string) (err error) {
	f.drop()
	if f.old, err = f.dial(f.now.Nodes[i]); err != nil {
		return err
	}
	if f.next, err = f.dial(url); err != nil {
		f.drop()
		return fmt.Errorf("node %d of %d: %w", i+1, len(f.now.Nodes), err)
	}
	f.to, f.at = url, i
	return nil
}

// drop ends the questions to the two servers.
func (f *follower) drop() {
	for _, n := range []*node.Node{f.old, f.next} {
		if n != nil {
			_ = n.Close() // it has no calls under way
		}
	}
	f.old, f.next, f.to, f.quiet, f.left = nil, nil, "", 0, false
	f.ahead, f.look, f.since = list{}, time.Time{}, time.Time{}
}

// ready asks the new server whether it would grant a lock. So the guard's time begins there.
func (f *follower) ready(ctx context.Context) error {
	_, err := transport.Of(f.next).Ready(ctx, f.client.set, wire.ReadyName)
	return err
}

// isNew refuses a server that is a node of the client already.
func (f *follower) isNew(ctx context.Context, i int) error {
	ctx = options.WithoutClients(ctx)
	next, err := f.next.Status(ctx)
	if err != nil {
		return fmt.Errorf("%s, which is to replace %s, does not answer: %w", f.next, f.old, err)
	}
	run := make([]string, len(f.client.nodes))
	_ = f.client.askAll(0, func(j int, n *node.Node) error {
		if j != i {
			s, _ := n.Status(ctx) // without an answer it has no run ID
			run[j] = s.RunID
		}
		return nil
	})
	if j := slices.Index(run, next.RunID); j >= 0 && next.RunID != "" {
		return fmt.Errorf("%s, which is to replace %s, is the same server as %s: give each server once", f.next, f.old, f.client.nodes[j])
	}
	return nil
}

// quorum refuses to go on unless a quorum grants locks without the node.
func (f *follower) quorum(ctx context.Context, i int) error {
	err := f.client.askAll(f.client.set.Quorum, func(j int, n *node.Node) error {
		if j == i {
			return &quorumlock.NodeError{Node: n.String(), Err: errReplaced}
		}
		_, err := transport.Of(n).Ready(ctx, f.client.set, wire.ReadyName)
		return err
	})
	if err != nil {
		return fmt.Errorf("a node cannot be replaced while the others are no quorum: wait until they grant locks: %w", err)
	}
	return nil
}

// join takes the next of steps 2 and 3.
func (f *follower) join(ctx context.Context) {
	c, now := f.client, time.Now()
	if transport.Of(f.old).Answers(ctx) {
		f.since = time.Time{}
		f.report(fmt.Errorf("%s, which %s replaces, answers again: stop it for good; the replacement waits", f.old, f.next))
		return
	}
	err := f.ready(ctx) // also before its time: so the new server learns its age
	if err != nil && !errors.Is(err, quorumlock.ErrQuarantined) {
		f.report(fmt.Errorf("%s, which replaces %s, does not grant locks: %w", f.next, f.old, err))
		return
	}
	if now.Before(f.look) || !f.since.IsZero() && (err != nil || now.Sub(f.since) < options.Quarantine(&c.set)) {
		return
	}
	err = f.quorum(ctx, f.at) // it also connects to the others, where the client must be seen
	if err == nil {
		err = f.alike(ctx)
	}
	switch {
	case err != nil:
		f.since = time.Time{}
		f.report(err)
	case f.since.IsZero():
		f.since, f.said = time.Now(), nil
	default:
		transport.Of(c.nodes[f.at]).Move(transport.Of(f.next), nil)
		c.set.Logger.Info("quorumlock: a node is replaced", "node", f.at+1, "old", f.old.String(), "new", f.next.String())
		f.said = nil
		f.drop()
	}
}

// alike returns an error unless a quorum of the others shows its clients, and all have this list. A
// client under another prefix shares no lock with this one.
func (f *follower) alike(ctx context.Context) error {
	c := f.client
	ours, id := c.list(), c.locks.ID()
	all := make([][]string, len(c.nodes))
	_ = c.askAll(0, func(j int, n *node.Node) error {
		if j != f.at {
			s, _ := n.Status(ctx) // without an answer it has no clients
			all[j] = s.Clients
		}
		return nil
	})
	shown, seen := 0, 0
	for _, names := range all {
		seen = max(seen, len(names))
	}
	f.look = time.Now().Add(time.Duration(seen) * lookEach)
	for j, names := range all {
		itself := false
		for _, name := range names {
			other, theirs, _, ok := parseList(name)
			switch {
			case !ok:
			case other == id:
				itself = itself || theirs == ours
			case theirs.prefix != ours.prefix && theirs.prefix != "" && ours.prefix != "":
			default:
				theirs.prefix = ours.prefix
				if theirs != ours && theirs != f.ahead {
					return fmt.Errorf("%s replaces %s, but client %q, connected to %s, still has another list of nodes, quorum or restart guard: the replacement waits until it follows or ends",
						f.next, f.old, other, c.nodes[j])
				}
			}
		}
		if itself {
			shown++
		}
	}
	if shown < c.set.Quorum {
		return fmt.Errorf("%s replaces %s, but only %d nodes show who is connected, and a quorum is %d: allow the user +client|list and +client|setname, and put no client_name into URLs",
			f.next, f.old, shown, c.set.Quorum)
	}
	return nil
}

// changing matches what changes between two texts of one reason: durations and our own ports.
var changing = regexp.MustCompile(`\b[0-9][0-9.hmsnµ]*s\b|:[0-9]+->`)

// maxSaid bounds the reports that a follower remembers.
const maxSaid = 256

// report logs a reason why the settings file is not followed, once.
func (f *follower) report(reason error) {
	text := strings.ReplaceAll(reason.Error(), "quorumlock: ", "")
	lasting := changing.ReplaceAllString(text, "")
	if slices.Contains(f.said, lasting) || f.client.isClosed() {
		return
	}
	f.said = append(f.said[max(0, len(f.said)+1-maxSaid):], lasting)
	f.client.set.Logger.Warn("quorumlock: the settings file has changed, and the change does not count yet", "file", f.now.File, "reason", text)
}

// compare logs the settings in which other clients differ from c.
func (c *Client) compare(ctx context.Context) {
	nodes := make([]NodeReport, len(c.nodes))
	_ = c.askAll(0, func(i int, n *node.Node) error {
		nodes[i].Node = n.String()
		nodes[i].Status, nodes[i].Err = n.Status(ctx)
		return nil
	})
	for _, f := range c.judgeClients(nodes) {
		if f.Severity > SeverityAdvice {
			c.set.Logger.Warn("quorumlock: another client has other settings", "problem", f.Problem, "fix", f.Fix)
		}
	}
}

// isConnected reports whether a quorum of the nodes has a connection.
func (c *Client) isConnected() bool {
	n := 0
	for _, at := range c.nodes {
		if transport.Of(at).IsConnected() {
			n++
		}
	}
	return n >= c.set.Quorum
}

func (c *Client) isClosed() bool {
	select {
	case <-c.locks.Closed():
		return true
	default:
		return false
	}
}

// publish names the connections of the nodes, for other clients: see list.
func (c *Client) publish() {
	own := c.list()
	for _, n := range c.nodes {
		transport.Of(n).Rename(own.in(c.locks.ID(), transport.Of(n).Database()))
	}
}
