package redlock

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// list identifies the nodes and the quorum, which all clients of a lock must share. Each connection
// of a node from node.Dial has the list in its name, so that [Client.Diagnose] sees clients with
// another list. The name of a connection cannot contain a space.
type list struct {
	nodes, quorum int
	print         string // a hash of the sorted addresses
	prefix        string // a hash of the client's prefix; empty without a prefix
}

const listPrefix = "quorumlock:"

func (c *Client) list() list {
	names := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		names[i] = n.String()
	}
	slices.Sort(names)
	l := list{nodes: len(c.nodes), quorum: c.set.Quorum, print: hash(strings.Join(names, "\n"))}
	if c.set.Prefix != "" {
		l.prefix = hash(c.set.Prefix)
	}
	return l
}

func hash(text string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return strconv.FormatUint(h.Sum64(), 36)
}

// in returns the name for the connections of a client.
func (l list) in(client string) string {
	return fmt.Sprintf("%s%s:%d:%d:%s:%s", listPrefix, client, l.nodes, l.quorum, l.print, l.prefix)
}

// parseList parses the name of a connection; ok is false for names that list.in did not make.
func parseList(name string) (client string, l list, ok bool) {
	rest, ok := strings.CutPrefix(name, listPrefix)
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 5 {
		return "", list{}, false
	}
	var bad, worse error
	l.print, l.prefix = parts[3], parts[4]
	l.nodes, bad = strconv.Atoi(parts[1])
	l.quorum, worse = strconv.Atoi(parts[2])
	return parts[0], l, bad == nil && worse == nil && parts[0] != ""
}

// judge finds clients with another list. An address has several notations. So a client counts as
// having the same list if it has the same number of nodes and the same quorum, and is connected to
// all of our nodes. judge cannot see a client that is connected to none of them. Clients with
// another prefix share no lock with us, unless a lock has a prefix of its own or one prefix begins
// with the other. So this finding is only advice.
func (l list) judge(nodes []NodeReport) (found []Finding) {
	type other struct {
		client string
		list   list
	}
	at := make(map[other][]string) // the nodes that a client is connected to
	answered := 0
	for _, n := range nodes {
		if n.Err != nil {
			continue
		}
		answered++
		for _, name := range n.Status.Clients {
			if client, theirs, ok := parseList(name); ok && theirs.print != l.print || ok && theirs.quorum != l.quorum {
				o := other{client, theirs}
				at[o] = append(at[o], n.Node)
			}
		}
	}
	first := make(map[list]other) // the first client with each list, for the report
	count := make(map[list]int)
	for o, theirs := range at {
		if o.list.nodes == l.nodes && o.list.quorum == l.quorum && len(theirs) == answered {
			continue
		}
		if f, ok := first[o.list]; !ok || o.client < f.client {
			first[o.list] = o
		}
		count[o.list]++
	}
	for theirs, o := range first {
		severity, prefix := Warning, ""
		if l.prefix != "" && theirs.prefix != "" && l.prefix != theirs.prefix {
			severity, prefix = Advice, " under another prefix"
		}
		found = append(found, Finding{OtherList, severity, "", fmt.Sprintf(
			"another list of nodes is in use%s: %d nodes with a quorum of %d, instead of %d with a quorum of %d; clients that have it: %d, such as %q, which is connected to %s",
			prefix, theirs.nodes, theirs.quorum, l.nodes, l.quorum, count[theirs], o.client, strings.Join(at[o], ", ")),
			"give all clients of a lock the same nodes and the same quorum; docs/upgrades.md says how to replace a node"})
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Problem, b.Problem) })
	return found
}
