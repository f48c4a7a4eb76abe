package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs/refusal"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// maxClockOffset is the largest clock offset without a finding. Locks are safe on clocks that
// differ. But a clock that is off will be set one day, and such a step makes the node forget.
const maxClockOffset = time.Second

// Diagnose reads the status of all nodes, tries a lock on each, and reports these problems:
// unreachable nodes, refused locks or channels, replicas, shards of a cluster, moving slots of a
// cluster, two addresses of one server, several servers behind one address, eviction of keys, loss
// of keys at a restart, wrong clocks, loss of locks at a promotion, and clients with another list of
// nodes, quorum, database or restart guard. It leaves no keys.
//
// Diagnose waits for each node until ctx is done, for twice the node's timeout at most. If fewer
// nodes than the quorum answered, it returns a *[quorumlock.QuorumError] along with the report.
// [node.Node.Status] documents the permissions beyond those of a lock.
func (c *Client) Diagnose(ctx context.Context) (Report, error) {
	r := Report{Quorum: c.set.Quorum, Nodes: make([]NodeReport, len(c.nodes)), Findings: []Finding{}}
	// one name for all nodes, so that of several shards of one cluster one grants it
	name := wire.ReadyName + ":" + settings.NewID()
	err := c.askAll(c.set.Quorum, func(i int, n *node.Node) error {
		r.Nodes[i] = c.examine(ctx, n, name)
		return r.Nodes[i].Err
	})
	for _, n := range r.Nodes {
		r.Findings = append(r.Findings, c.judge(n)...)
	}
	r.Findings = append(r.Findings, judgeTogether(r.Nodes, c.set.Quorum)...)
	r.Findings = append(r.Findings, c.judgeClients(r.Nodes)...)
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	return r, err
}

// examine reads the status of one node, and tries the lock name, which no caller uses.
func (c *Client) examine(ctx context.Context, n *node.Node, name string) NodeReport {
	h := NodeReport{Node: n.String()}
	if h.Status, h.Err = n.Status(ctx); h.Err != nil {
		return h
	}
	if h.Refusal = transport.Of(n).OneServer(ctx); h.Refusal != nil {
		return h
	}
	_, err := transport.Of(n).Ready(ctx, c.set, name)
	if err != nil && !refused(err) && !errors.Is(err, context.DeadlineExceeded) {
		// a first failure may be a connection from before a restart
		_, err = transport.Of(n).Ready(ctx, c.set, name)
	}
	switch {
	case err == nil:
		h.Deaf = transport.Of(n).Channels(ctx, c.locks.ID(), c.set.Prefix+name)
	case refused(err):
		h.Refusal = err
	default:
		h.Err = err
	}
	return h
}

// judge finds the problems of one node.
func (c *Client) judge(n NodeReport) (found []Finding) {
	add := func(k FindingKind, s Severity, problem, fix string) {
		found = append(found, Finding{k, s, n.Node, problem, fix})
	}
	s := n.Status
	if err := cmp.Or(n.Refusal, n.Err); errors.Is(err, quorumlock.ErrSeveralServers) {
		add(FindingSeveralServers, SeverityFailure, "its address leads to several servers: "+strings.TrimPrefix(reason(n, err), quorumlock.ErrSeveralServers.Error()+": "),
			"give each server an address of its own, and the client all of them")
		return found
	}
	if n.Err != nil && refused(n.Err) {
		add(FindingRefuses, SeverityWarning, "refuses this client: "+reason(n, n.Err), fixOf(n.Err))
		return found
	} else if n.Err != nil {
		add(FindingUnreachable, SeverityWarning, "does not answer: "+reason(n, n.Err), "look at the server, its address and the network between")
		return found
	}
	if major, err := strconv.Atoi(strings.Split(s.Version, ".")[0]); err == nil && major < 5 {
		add(FindingTooOld, SeverityFailure, "runs version "+s.Version, "use Redis 5 or newer, or Valkey")
	}
	if s.Role != "" && s.Role != "master" {
		add(FindingNotMaster, SeverityFailure, "is a "+s.Role+", which grants no locks", refusal.NotMaster)
	}
	if s.Shard {
		add(FindingShard, SeverityFailure, "is one server of a Redis cluster, which grants only the names of its own slots", refusal.Shard)
	}
	if s.MaxMemory > 0 && s.Eviction != "noeviction" && s.Eviction != "" {
		add(FindingEvicts, SeverityFailure, fmt.Sprintf("maxmemory is %d bytes and maxmemory-policy %s: keys can be dropped while they are held", s.MaxMemory, s.Eviction),
			"set maxmemory-policy noeviction")
	}
	c.judgeRestart(n, add)
	explained := func(f Finding) bool {
		return f.Kind == FindingNotMaster || f.Kind == FindingShard || f.Kind == FindingQuarantined
	}
	if n.Refusal != nil && !slices.ContainsFunc(found, explained) {
		add(FindingRefuses, SeverityWarning, "refuses a lock: "+reason(n, n.Refusal), fixOf(n.Refusal))
	}
	if n.Deaf != nil {
		add(FindingRefuses, SeverityAdvice, "refuses the channels of waiters, so they hear of no release and look every 600 ms: "+reason(n, n.Deaf),
			"allow the user +subscribe, +publish and the channels in docs/security.md, which a new user lacks since Redis 7")
	}
	if s.MovingSlots > 0 {
		add(FindingRefuses, SeverityWarning, fmt.Sprintf("is a cluster that moves %d of its slots: locks in them are neither granted nor released until the move ends", s.MovingSlots),
			"wait until the move has ended; redis-cli --cluster fix ends one that was interrupted")
	}
	if off := s.ClockOffset.Abs() - s.RoundTrip/2; off > maxClockOffset {
		which := "ahead of"
		if s.ClockOffset < 0 {
			which = "behind"
		}
		add(FindingClockApart, SeverityWarning, fmt.Sprintf("its clock is %v %s this machine's", s.ClockOffset.Abs().Round(time.Millisecond), which),
			"keep both in step with a time server, by slewing: a step at the node can end locks early")
	}
	for _, err := range s.Untold {
		fix := "allow the user that checks +info, +config|get and +client|list, to have the rest checked"
		if r, _ := refusal.Of(err); r.Kind == refusal.Command {
			fix = "check the rest by hand: docs/nodes.md lists the lines of redis.conf"
		}
		add(FindingUntold, SeverityAdvice, "does not report every setting: "+err.Error(), fix)
	}
	return found
}

// judgeRestart finds the effects of a restart of the node on locks.
func (c *Client) judgeRestart(n NodeReport, add func(k FindingKind, s Severity, problem, fix string)) {
	s := n.Status
	switch guarded := options.Quarantine(&c.set) > 0; {
	case guarded && s.RunID == "":
		add(FindingQuarantined, SeverityFailure, "does not report its run_id, so the restart guard keeps it out", "allow the user +info")
		return
	case guarded && errors.Is(n.Refusal, quorumlock.ErrQuarantined):
		add(FindingQuarantined, SeverityAdvice, "is in quarantine: "+strings.TrimPrefix(reason(n, n.Refusal), "quorumlock: "), fixOf(n.Refusal))
		return
	case guarded:
		return
	}
	const fix = "set appendonly yes and appendfsync always, or use WithRestartGuard"
	switch {
	case s.AppendFsync == "":
	case s.AppendFsync == "off":
		add(FindingForgets, SeverityWarning, "has no append-only file: a restart loses locks that are held", fix)
	case s.AppendFsync != "always":
		add(FindingForgets, SeverityWarning, "appendfsync is "+s.AppendFsync+": a restart can lose the latest locks", fix)
	case s.NoFsyncOnRewrite:
		add(FindingForgets, SeverityWarning, "no-appendfsync-on-rewrite is yes: a power cut during a save or rewrite loses the latest locks, as with appendfsync no",
			"set no-appendfsync-on-rewrite no, or use WithRestartGuard")
	}
	if s.Replicas > 0 {
		add(FindingForgets, SeverityWarning, fmt.Sprintf("has %d replicas: if one of them takes over, it may lack the latest locks", s.Replicas),
			"detach the replicas, or use WithRestartGuard")
	}
}

// judgeTogether finds the problems of the nodes as a group.
func judgeTogether(nodes []NodeReport, quorum int) (found []Finding) {
	first := make(map[string]string) // the first node of each server
	servers := 0
	for _, n := range nodes {
		if n.Err != nil {
			continue
		}
		run := n.Status.RunID
		if other, ok := first[run]; ok && run != "" {
			found = append(found, Finding{FindingSameServer, SeverityFailure, n.Node, "is the same server as " + other,
				"give each server once: its vote counts once"})
			continue
		}
		first[run] = n.Node
		if n.Refusal == nil || errors.Is(n.Refusal, quorumlock.ErrQuarantined) {
			servers++
		}
	}
	if servers < quorum {
		found = append(found, Finding{FindingNoQuorum, SeverityFailure, "",
			fmt.Sprintf("%d of %d nodes are servers that grant locks, and a lock takes %d", servers, len(nodes), quorum),
			"bring back those that do not answer or refuse, or add servers"})
	}
	switch n := len(nodes); {
	case n == 1:
		found = append(found, Finding{FindingOneNode, SeverityAdvice, "", "there is only one node: its loss is the loss of all locks", "use three or five nodes"})
	case n%2 == 0 && quorum == n/2+1:
		found = append(found, Finding{FindingEvenNodes, SeverityAdvice, "", fmt.Sprintf("there are %d nodes, of which %d may be down, no more than with %d", n, n-quorum, n-1),
			fmt.Sprintf("use %d nodes, or %d", n+1, n-1)})
	}
	return found
}
