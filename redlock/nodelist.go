package redlock

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/transport"
)

// list has the settings that all clients of a lock must share. The name of each connection of a
// node from node.Dial has these settings and the number of the database. So [Client.Diagnose] sees
// clients with other settings. The name of a connection cannot contain a space.
type list struct {
	nodes, quorum int
	print         string        // a hash of the sorted addresses
	prefix        string        // a hash of the client's prefix; empty without a prefix
	guard         time.Duration // in whole milliseconds; 0 without a restart guard
}

const listPrefix = "quorumlock:"

func (c *Client) list() list { return c.listWith(-1, "") }

// listWith is list with another node at a position.
func (c *Client) listWith(i int, name string) list {
	names := make([]string, len(c.nodes))
	for j, n := range c.nodes {
		if names[j] = n.String(); j == i {
			names[j] = name
		}
	}
	slices.Sort(names)
	l := list{nodes: len(c.nodes), quorum: c.set.Quorum, print: hash(strings.Join(names, "\n")), guard: c.set.MaxTTL.Truncate(time.Millisecond)}
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

// in returns the name for the connections of a client to a database.
func (l list) in(client string, database int) string {
	return fmt.Sprintf("%s%s:%d:%d:%s:%s:%d:%d", listPrefix, client, l.nodes, l.quorum, l.print, l.prefix, l.guard.Milliseconds(), database)
}

// parseList parses the name of a connection; ok is false for names that list.in did not make.
func parseList(name string) (client string, l list, database int, ok bool) {
	rest, ok := strings.CutPrefix(name, listPrefix)
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 7 || parts[0] == "" {
		return "", list{}, 0, false
	}
	number := func(i int) int {
		n, err := strconv.Atoi(parts[i])
		ok = ok && err == nil
		return n
	}
	l = list{number(1), number(2), parts[3], parts[4], time.Duration(number(5)) * time.Millisecond}
	database = number(6)
	return parts[0], l, database, ok
}

// otherClient is a client as the names of its connections show it.
type otherClient struct {
	id string
	list
}

// difference is a setting of other clients that differs from ours, as a finding shows it.
type difference struct {
	severity     Severity
	problem, fix string
}

// judgeClients finds clients with other settings. An address has several notations. So a client
// counts as having the same list if it has the same number of nodes, and is connected to all of our
// nodes. judgeClients cannot see a client that is connected to none of them. Clients with another
// prefix share no lock with us, unless a lock has a prefix of its own or one prefix begins with the
// other. So such a finding is only advice.
func (c *Client) judgeClients(nodes []NodeReport) (found []Finding) {
	ours := c.list()
	answered := 0
	databases := make(map[otherClient]map[int]int) // by node, for each client
	for i, n := range nodes {
		if n.Err != nil {
			continue
		}
		answered++
		for _, name := range n.Status.Clients {
			if id, l, database, ok := parseList(name); ok {
				client := otherClient{id, l}
				if databases[client] == nil {
					databases[client] = make(map[int]int)
				}
				databases[client][i] = database
			}
		}
	}
	seen := make(map[difference]map[string][]string) // the nodes that each client with it is connected to
	for client, at := range databases {
		severity, where := SeverityWarning, ""
		if ours.prefix != "" && client.prefix != "" && ours.prefix != client.prefix {
			severity, where = SeverityAdvice, " under another prefix"
		}
		differs := func(node int, what, fix, says string, args ...any) {
			d := difference{severity, what + " is in use" + where + ": " + fmt.Sprintf(says, args...), fix}
			if seen[d] == nil {
				seen[d] = make(map[string][]string)
			}
			seen[d][client.id] = append(seen[d][client.id], nodes[node].Node)
		}
		for _, i := range slices.Sorted(maps.Keys(at)) {
			if client.nodes != ours.nodes || client.quorum != ours.quorum || client.print != ours.print && len(at) < answered {
				differs(i, "another list of nodes", "give all clients of a lock the same nodes and the same quorum; docs/upgrades.md says how to replace a node",
					"%d nodes with a quorum of %d, instead of %d with a quorum of %d", client.nodes, client.quorum, ours.nodes, ours.quorum)
			}
			if client.guard != ours.guard {
				differs(i, "another restart guard", "give all clients of a lock WithRestartGuard with the same duration, or none of them, and check the same --restart-guard",
					"%s, instead of %s", guardOf(client.guard), guardOf(ours.guard))
			}
			if own := transport.Of(c.nodes[i]).Database(); at[i] != own {
				differs(i, "another database", "give all clients of a lock the same database of each server, and services that share no lock a prefix each",
					"number %d, instead of %d", at[i], own)
			}
		}
	}
	for d, clients := range seen {
		first := slices.Min(slices.Collect(maps.Keys(clients)))
		found = append(found, Finding{FindingOtherList, d.severity, "", fmt.Sprintf("%s; clients that have it: %d, such as %q, which is connected to %s",
			d.problem, len(clients), first, strings.Join(clients[first], ", ")), d.fix})
	}
	slices.SortFunc(found, func(a, b Finding) int { return cmp.Compare(a.Problem, b.Problem) })
	return found
}

func guardOf(maxTTL time.Duration) string {
	if maxTTL == 0 {
		return "none"
	}
	return maxTTL.String()
}
