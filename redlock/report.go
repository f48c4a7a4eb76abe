package redlock

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/quorumlock/quorumlock/node"
)

// Report is the result of [Client.Diagnose].
type Report struct {
	Quorum   int          // the number of nodes that must agree
	Nodes    []NodeReport // in the order of the client's nodes
	Findings []Finding    // in descending order of severity
}

// NodeReport is the status of one node, or the failure of that node.
type NodeReport struct {
	Node    string
	Status  node.Status
	Refusal error // a *quorumlock.NodeError if the node refuses a lock; nil if it grants one
	Deaf    error // a *quorumlock.NodeError if the node refuses the channels of waiters; or nil
	Err     error // a *quorumlock.NodeError if the node could not be reached; or nil
}

// Finding is a problem and its fix.
type Finding struct {
	Kind     Kind
	Severity Severity
	Node     string // empty for a finding about all nodes together
	Problem  string
	Fix      string
}

// Kind is the subject of a Finding.
type Kind string

const (
	NoQuorum       Kind = "no quorum"       // fewer servers than the quorum grant locks
	Unreachable    Kind = "unreachable"     // a node does not answer
	Refuses        Kind = "refuses"         // a node answers, and refuses this client or a lock
	Shard          Kind = "shard"           // a server of a cluster: it lacks names of other shards
	OneNode        Kind = "one node"        // there is only one node
	EvenNodes      Kind = "even nodes"      // the number of nodes is even: one of them adds no safety
	SameServer     Kind = "same server"     // two nodes lead to one server
	SeveralServers Kind = "several servers" // the address of a node leads to several servers
	NotMaster      Kind = "not a master"    // the server is no master: it takes no writes
	TooOld         Kind = "too old"         // the server is older than the scripts require
	Evicts         Kind = "evicts"          // the server may drop keys that are held
	Forgets        Kind = "forgets"         // a restart may lose locks that are held
	Quarantined    Kind = "quarantined"     // the node is in quarantine by the restart guard
	ClockApart     Kind = "clock apart"     // the server's clock differs from that of this machine
	OtherList      Kind = "other list"      // a client has another list of nodes, quorum, database or restart guard
	Untold         Kind = "untold"          // the server does not report every checked setting
)

// Severity is the urgency of a Finding.
type Severity int

const (
	Advice  Severity = iota // good to know
	Warning                 // locks work; a failure or a restart may break them
	Failure                 // locks do not work, or are not safe
)

func (s Severity) String() string { return [...]string{"advice", "warning", "failure"}[s] }

// String returns the finding in one line.
func (f Finding) String() string {
	where := ""
	if f.Node != "" {
		where = f.Node + ": "
	}
	return fmt.Sprintf("%s: %s%s: %s", f.Severity, where, f.Problem, f.Fix)
}

// OK reports whether the report has no warning and no failure.
func (r Report) OK() bool {
	for _, f := range r.Findings {
		if f.Severity > Advice {
			return false
		}
	}
	return true
}

// String returns a report for people: one line for each node, and one for each finding.
func (r Report) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "node\trole\tversion\tup\tround trip\tclock\tappend-only file\tsnapshots\teviction")
	for _, n := range r.Nodes {
		if n.Err != nil {
			fmt.Fprintf(w, "%s\tfailed\t\t\t\t\t\t\t\n", n.Node)
			continue
		}
		s := n.Status
		fmt.Fprintf(w, "%s\t%s\t%s\t%v\t%v\t%+.1fms\t%s\t%s\t%s\n", n.Node, orUnknown(s.Role), orUnknown(s.Version), s.Uptime,
			s.RoundTrip.Round(10*time.Microsecond), float64(s.ClockOffset)/1e6, orUnknown(s.AppendFsync), orUnknown(s.Save), eviction(s))
	}
	_ = w.Flush() // into memory
	for _, f := range r.Findings {
		fmt.Fprintln(&b, f)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintf(&b, "all is well: %d nodes, of which a quorum of %d must agree\n", len(r.Nodes), r.Quorum)
	}
	return b.String()
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func eviction(s node.Status) string {
	if s.Eviction != "" && s.MaxMemory == 0 {
		return "no limit"
	}
	return orUnknown(s.Eviction)
}
