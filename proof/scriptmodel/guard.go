package scriptmodel

import "strings"

const (
	noInfo   failure = "ERR the restart guard cannot read INFO: allow the user +info"
	noUptime failure = "ERR the restart guard finds no uptime and replication id in INFO: use it on Redis or Valkey only"
)

// guard is guard.lua. It returns how many ms of the quarantine are left, if it refuses.
func (n *Node) guard(always bool) (left float64, out bool) {
	mode := ""
	if n.lock.kind == hash {
		mode, _ = n.lock.hget("mode")
	}
	if n.lock.exists() && mode != "shared" && !always {
		return 0, false
	}
	if n.Info.Denied {
		panic(noInfo)
	}
	if n.Info.Foreign {
		panic(noUptime)
	}
	uptime := float64(n.now/1000000 - n.Info.Started/1000000)
	quarantine := n.number(len(n.args))
	left = quarantine - (uptime-1)*1000
	if strings.Trim(n.Info.Former, "0") != "" {
		now := n.clock()
		since, known := n.promoted()
		if known != n.Info.History || since > now {
			since = now
			n.key(promotedKey).set(n.Info.History + " " + whole(now))
		}
		left = max(left, quarantine-(now-since))
	}
	return left, left > 0
}

// promotedKey keeps when the guard noticed a promotion, and of which history.
const promotedKey = "quorumlock_promoted"

// promoted matches ^(%x+) (%d+)$.
func (n *Node) promoted() (since float64, history string) {
	s, _ := n.key(promotedKey).get()
	history, at, ok := strings.Cut(s, " ")
	if !ok || history == "" || strings.Trim(history, "0123456789abcdefABCDEF") != "" || at == "" || decimal(at) != at {
		return 0, ""
	}
	since, _ = tonumber(at)
	return since, history
}
