package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/redlock"
)

type topCommand struct {
	connection
	Pattern  string        `arg:"" optional:"" help:"A pattern of names, as in Redis."`
	Interval time.Duration `default:"2s" placeholder:"D" help:"The interval between looks, at least 200ms."`
	Rounds   *int          `short:"n" placeholder:"N" help:"End after N looks. Default: continue until interrupted."`
	Limit    int           `default:"1000" placeholder:"N" help:"The maximum number of locks."`
	JSON     bool          `name:"json" help:"Print one line of JSON for each look."`
}

func (topCommand) manual() manual {
	return manual{
		synopsis: "[PATTERN] [--interval D] [-n N] [--limit N] [--json] [flags]",
		description: `Shows the nodes with their health and round trip, and the locks with their
holder, the time since the first sight of the holder, the length of the queue, and the first waiter
with its waiting time. Locks with the longest queue come first.

A time with > began before top did: the nodes do not store the time of the grant. On a terminal, q
quits, the arrows, j, k and the space bar scroll, Enter shows all about the lock in the first line,
and ? shows the keys. Into a pipe, top prints a plain line for each node and lock. It changes
nothing, and looks at a limited number of locks, so it is not a load; see list.`,
		environment: environment,
		statuses:    statuses,
		examples: `quorumlock top 'myapp:lock:*'
quorumlock top -n 1 | sort -k2`,
	}
}

// topView is one look.
type topView struct {
	At     time.Time  `json:"at"`
	Quorum int        `json:"quorum"`
	MayDie int        `json:"may_fail"`
	Nodes  []topNode  `json:"nodes"`
	Locks  []*topLock `json:"locks"`
	More   bool       `json:"more"` // there are more locks than shown
	Error  string     `json:"error,omitempty"`
}

type topNode struct {
	Node      string  `json:"node"`
	OK        bool    `json:"ok"`
	RoundTrip float64 `json:"round_trip_seconds"`
	Error     string  `json:"error,omitempty"`
}

type topLock struct {
	lockView
	// since the first sight of this holder; of several holders, the first
	Seen   float64 `json:"seen_seconds"`
	Before bool    `json:"or_longer"` // it held the lock when top began

	holders int // number of holders, including those that are dropped
}

// sighting has the first sight of each owner of a lock.
type sighting struct {
	owners map[quorumlock.Owner]seenOwner
	look   int // the last look at which the lock was seen
}

type seenOwner struct {
	since  time.Time
	before bool // it held the lock at the first look
}

// spotter looks at locks repeatedly, and remembers the first sight of their owners.
type spotter struct {
	client  *cluster
	pattern string
	limit   int
	brief   bool // for long runs: keep little of each lock; see survey.queues
	looks   int
	seen    map[string]*sighting // by the name of the lock
}

func newSpotter(client *cluster, pattern string, limit int) *spotter {
	return &spotter{client: client, pattern: pattern, limit: limit, seen: make(map[string]*sighting)}
}

// watcher looks repeatedly.
type watcher struct {
	*topCommand
	*spotter
}

func (c *topCommand) Run(e *env) (err error) {
	switch {
	case c.Interval < 200*time.Millisecond:
		return usageError(fmt.Sprintf("top: --interval %v is too short: use at least 200ms", c.Interval))
	case c.Rounds != nil && *c.Rounds < 1:
		return usageError(fmt.Sprintf("top: -n %d: use a positive number, or leave it out", *c.Rounds))
	case c.Limit < 1 || c.Limit > 10000:
		return usageError(fmt.Sprintf("top: --limit %d: use 1 to 10000", c.Limit))
	}
	client, err := c.dial("top")
	if err != nil {
		return err
	}
	defer func() { err = errs.Join(err, client.Close()) }()
	w := &watcher{c, newSpotter(client, c.Pattern, c.Limit)}
	if out, ok := e.stdout.(*os.File); ok && !c.JSON && term.IsTerminal(int(out.Fd())) {
		return w.draw(e, out)
	}
	return w.print(e)
}

// isOver reports whether the requested number of looks is reached.
func (w *watcher) isOver() bool { return w.Rounds != nil && w.looks == *w.Rounds }

// print writes plain lines, or JSON, for each look.
func (w *watcher) print(e *env) error {
	for {
		v, err := w.look(e.ctx)
		if e.ctx.Err() != nil {
			return e.ctx.Err()
		}
		if w.JSON {
			err = errs.Join(err, writeJSON(e.text, v))
		} else {
			_, failed := io.WriteString(e.text, v.plain())
			err = errs.Join(err, failed)
		}
		if w.isOver() {
			return err
		}
		// an outage is worth watching
		if _, few := errors.AsType[*quorumlock.QuorumError](err); err != nil && !few {
			return err
		}
		select {
		case <-time.After(w.Interval):
		case <-e.ctx.Done():
			return e.ctx.Err()
		}
	}
}

// look asks the nodes once. The error is a *quorumlock.QuorumError if too few answered.
func (w *watcher) look(ctx context.Context) (topView, error) {
	v, err := w.client.lookAtNodes(ctx)
	locks, more, _, failed := w.lookAtLocks(ctx)
	v.Locks, v.More = locks, more
	if err = errs.Join(err, failed); err != nil {
		v.Error = errorText(err)
	}
	return v, err
}

// lookAtNodes returns a look without locks.
func (c *cluster) lookAtNodes(ctx context.Context) (topView, error) {
	health, err := c.Ready(ctx)
	return topView{At: time.Now(), Quorum: health.Quorum, MayDie: health.MayFail(), Nodes: topNodes(health), Locks: []*topLock{}}, err
}

// lookAtLocks returns the locks, those with the longest queue first, whether there are more than
// the limit, and whether a node failed.
func (w *spotter) lookAtLocks(ctx context.Context) (locks []*topLock, more, failing bool, err error) {
	now := time.Now()
	w.looks++
	locks = []*topLock{}
	s := newSurvey(w.client, w.pattern, w.limit)
	s.queues = w.brief
	err = s.run(ctx, func(l lockView) error {
		l.Nodes = nil
		locks = append(locks, w.sight(l, now))
		return nil
	})
	for name, s := range w.seen {
		// If the search failed, locks that it missed may still be held.
		if unseen := w.looks - s.look; unseen > 100 || err == nil && unseen > 0 {
			delete(w.seen, name)
		}
	}
	slices.SortStableFunc(locks, func(a, b *topLock) int {
		return cmp.Or(cmp.Compare(b.State.Waiting, a.State.Waiting), cmp.Compare(b.Seen, a.Seen), strings.Compare(a.Name, b.Name))
	})
	return locks, s.More, err != nil || len(s.Failed) > 0, err
}

// sight records the owners of a lock. The lock has been held since the first sight of the oldest
// owner.
func (w *spotter) sight(l lockView, now time.Time) *topLock {
	holders := len(l.owners())
	if w.brief {
		l.shorten()
	}
	s := w.seen[l.Name]
	if s == nil {
		s = &sighting{}
		w.seen[l.Name] = s
	}
	oldest := seenOwner{since: now}
	owners := make(map[quorumlock.Owner]seenOwner)
	for _, o := range l.owners() {
		seen, known := s.owners[o]
		if !known {
			seen = seenOwner{now, w.looks == 1}
		}
		owners[o] = seen
		if seen.since.Before(oldest.since) || seen.before {
			oldest = seen
		}
	}
	s.owners, s.look = owners, w.looks
	return &topLock{l, now.Sub(oldest.since).Seconds(), oldest.before, holders}
}

func topNodes(r redlock.Readiness) []topNode {
	nodes := make([]topNode, len(r.Nodes))
	for i, n := range r.Nodes {
		nodes[i] = topNode{n.Node, n.Err == nil, n.RoundTrip.Seconds(), ""}
		if n.Err != nil {
			// the line has the name of the node already
			_, why, _ := strings.Cut(errorText(n.Err), n.Node+": ")
			nodes[i].Error = why
		}
	}
	return nodes
}

// ready returns how many nodes would grant a lock.
func (v topView) ready() (n int) {
	for _, node := range v.Nodes {
		if node.OK {
			n++
		}
	}
	return n
}

// summary describes the nodes in one line.
func (v topView) summary() string {
	end := "NO LOCK IS GRANTED"
	if v.MayDie >= 0 {
		end = fmt.Sprintf("%d more may fail", v.MayDie)
	}
	return fmt.Sprintf("%d of %d nodes ready, quorum %d, %s", v.ready(), len(v.Nodes), v.Quorum, end)
}

// held formats the time since the first sight of the holder.
func (l *topLock) held() string {
	if !l.Held {
		return "-"
	}
	held := seconds(time.Duration(l.Seen * float64(time.Second)))
	if l.Before {
		return ">" + held
	}
	return held
}

// head returns the first waiter, and the time of its wait.
func (l *topLock) head() (first, waits string) {
	if len(l.State.Queue) == 0 {
		return "-", "-"
	}
	return who(l.State.Queue[0].Owner), seconds(l.wait())
}

// plain formats a look as lines for programs: a type, and fields without spaces.
func (v topView) plain() string {
	var b strings.Builder
	for _, n := range v.Nodes {
		state := "ok"
		if !n.OK {
			state = "failed"
		}
		fmt.Fprintf(&b, "node %s %s %.2fms\n", n.Node, state, n.RoundTrip*1000)
	}
	for _, l := range v.Locks {
		who, waits := l.head()
		fmt.Fprintf(&b, "lock %s %s holder=%s held=%s ttl=%s token=%d waiting=%d head=%s waits=%s\n", shownWord(l.Name), l.Kind, strings.ReplaceAll(l.holder(), " ", "_"),
			l.held(), seconds(l.State.TTL), l.State.Token, l.State.Waiting, who, waits)
	}
	if v.More {
		b.WriteString("more\n")
	}
	return b.String()
}

// shownWord is shown without spaces.
func shownWord(s string) string { return strings.ReplaceAll(shown(s), " ", `\x20`) }
