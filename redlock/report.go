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
	Quorum   int          `json:"quorum"`   // the number of nodes that must agree
	Nodes    []NodeReport `json:"nodes"`    // in the order of the client's nodes
	Findings []Finding    `json:"findings"` // in descending order of severity
}

// NodeReport is the status of one node, or the failure of that node.
type NodeReport struct {
	Node    string      `json:"node"`
	Status  node.Status `json:"status,omitzero"`
	Refusal error       `json:"refusal,omitempty"` // a *quorumlock.NodeError if the node refuses a lock; nil if it grants one
	Deaf    error       `json:"deaf,omitempty"`    // a *quorumlock.NodeError if the node refuses the channels of waiters; or nil
	Err     error       `json:"error,omitempty"`   // a *quorumlock.NodeError if the node could not be reached; or nil
}

// Finding is a problem and its fix.
type Finding struct {
	Kind     FindingKind `json:"kind"`
	Severity Severity    `json:"severity"`
	Node     string      `json:"node,omitempty"` // empty for a finding about all nodes together
	Problem  string      `json:"problem"`
	Fix      string      `json:"fix"`
}

// FindingKind is the subject of a Finding.
type FindingKind string

const (
	FindingNoQuorum       FindingKind = "no_quorum"       // fewer servers than the quorum grant locks
	FindingUnreachable    FindingKind = "unreachable"     // a node does not answer
	FindingRefuses        FindingKind = "refuses"         // a node answers, and refuses this client or a lock
	FindingShard          FindingKind = "shard"           // a server of a cluster: it lacks names of other shards
	FindingOneNode        FindingKind = "one_node"        // there is only one node
	FindingEvenNodes      FindingKind = "even_nodes"      // the number of nodes is even: one of them adds no safety
	FindingSameServer     FindingKind = "same_server"     // two nodes lead to one server
	FindingSeveralServers FindingKind = "several_servers" // the address of a node leads to several servers
	FindingNotMaster      FindingKind = "not_a_master"    // the server is no master: it takes no writes
	FindingTooOld         FindingKind = "too_old"         // the server is older than the scripts require
	FindingEvicts         FindingKind = "evicts"          // the server may drop keys that are held
	FindingForgets        FindingKind = "forgets"         // a restart may lose locks that are held
	FindingQuarantined    FindingKind = "quarantined"     // the node is in quarantine by the restart guard
	FindingClockApart     FindingKind = "clock_apart"     // the server's clock differs from that of this machine
	FindingOtherList      FindingKind = "other_list"      // a client has another list of nodes, quorum, database or restart guard
	FindingUntold         FindingKind = "untold"          // the server does not report every checked setting
)

// Severity is the urgency of a Finding. Compare severities only with ==: they are words.
type Severity string

const (
	SeverityAdvice  Severity = "advice"  // good to know
	SeverityWarning Severity = "warning" // locks work; a failure or a restart may break them
	SeverityFailure Severity = "failure" // locks do not work, or are not safe
)

// severities are in the order of a report.
var severities = []Severity{SeverityFailure, SeverityWarning, SeverityAdvice}

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
		if f.Severity != SeverityAdvice {
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
