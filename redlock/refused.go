package redlock

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
)

const (
	notMasterFix = "give the address of a server that replicates no other"
	shardFix     = "use servers that stand alone, or make the whole cluster one node: node.New with a redis.ClusterClient"
	userFix      = "give the node the right user and password, in its URL, in node.WithCredentials or in the options of its client"
	permitFix    = "allow the user the commands, keys and channels in docs/security.md"
)

// fixes are the remedies for the errors of servers, by a part of the text.
var fixes = []struct{ says, fix string }{
	{"NOAUTH", userFix},
	{"WRONGPASS", userFix},
	{"invalid password", userFix}, // before Redis 6
	{"no password is set", userFix},
	{"without any password configured", userFix},
	{"NOPERM", permitFix},
	{"can't run this command", permitFix}, // in a script, before Redis 7.2
	{"can't access at least one of the keys", permitFix},
	{"restart guard cannot read INFO", "allow the user +info"},
	{"MOVED ", shardFix},
	{"ASK ", shardFix},
	{"CLUSTERDOWN", "look at the cluster: a part of its slots has no server"},
	{"READONLY", notMasterFix},
	{"OOM", "free memory at the server, or raise its maxmemory"},
	{"MISCONF", "look at the server's disk and its log: it cannot save its data"},
	{"NOREPLICAS", "bring back the server's replicas, or lower min-replicas-to-write"},
	{"LOADING", "wait until the server has read its data"},
}

// fixOf returns the remedy for a refusal.
func fixOf(err error) string {
	for _, f := range fixes {
		if strings.Contains(err.Error(), f.says) {
			return f.fix
		}
	}
	return "look at the server's configuration and its log"
}

// refused reports whether an error is a server's answer, and not a failure to reach the server.
func refused(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return answered || errors.Is(err, quorumlock.ErrQuarantined) || errors.Is(err, quorumlock.ErrSeveralServers)
}

// reason returns the error without the name of the node, because a finding already has the name.
func reason(n NodeReport, err error) string {
	_, why, _ := strings.Cut(err.Error(), n.Node+": ")
	return why
}
