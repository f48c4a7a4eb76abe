package scriptmodel

import (
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
)

const (
	noInfo     failure = "ERR the restart guard cannot read INFO: allow the user +info"
	noServer   failure = "ERR the restart guard finds no run_id and replication id in INFO: use it on Redis or Valkey only"
	badAge     failure = "ERR the restart guard cannot use the key quorumlock_age: WRONGTYPE Operation against a key holding the wrong kind of value"
	notAMaster failure = "READONLY the server is a replica"
)

// ageKey keeps the age that a server is known to have.
const ageKey = "quorumlock_age"

// guard is guard.lua. It returns the refusal, if it refuses.
func (n *Node) guard(always bool) (refusal wire.Reply, out bool) {
	mode := ""
	if n.lock.kind == hash {
		mode, _ = n.lock.hget("mode")
	}
	if n.lock.exists() && mode != "shared" && !always {
		return wire.Reply{}, false
	}
	if n.Info.Denied {
		panic(noInfo)
	}
	if n.Info.Foreign {
		panic(noServer)
	}
	key := n.key(ageKey)
	if key.exists() && key.kind != text {
		panic(badAge)
	}

	limit, claim, _ := strings.Cut(n.args[len(n.args)-1], " ")
	kept, _ := key.get()
	quarantine, _ := tonumber(limit)
	server, at, _ := strings.Cut(kept, " ")
	if at == "" || decimal(at) != at {
		server = ""
	}
	age, claimed := n.ageIn(kept, server), n.ageIn(claim, server)
	enough := 2 * age
	if age < quarantine {
		enough = min(age+1000, quarantine)
	}
	server = n.Info.Run + ":" + n.Info.History
	if claimed >= enough {
		key.set(server + " " + whole(claimed))
	}
	if age = max(age, claimed); age >= quarantine {
		return wire.Reply{}, false
	}
	if n.Info.Replica {
		panic(notAMaster)
	}
	return wire.Reply{Value: []any{int64(3), int64(quarantine - age), int64(age), server}}, true
}

// ageIn returns the age in a text `<server> <age>`, or 0 if it is another server's. kept is the
// server that the data name.
func (n *Node) ageIn(s, kept string) float64 {
	server, at, ok := strings.Cut(s, " ")
	if !ok || at == "" || decimal(at) != at {
		return 0
	}
	itself := server == n.Info.Run+":"+n.Info.History ||
		strings.Trim(n.Info.Former, "0") == "" && processOf(server) == n.Info.Run && processOf(kept) == n.Info.Run
	if !itself {
		return 0
	}
	age, _ := tonumber(at)
	return age
}

// processOf returns the process of a server's name; empty if there is none.
func processOf(server string) string {
	return server[:max(strings.LastIndexByte(server, ':'), 0)]
}
