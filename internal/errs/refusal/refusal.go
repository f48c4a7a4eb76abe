// Package refusal knows the errors with which servers refuse: what each means, and its remedy.
package refusal

import (
	"errors"
	"strings"
)

// Kind is the meaning of a server's error.
type Kind int

const (
	Other       Kind = iota
	Credentials      // the user or the password is wrong
	Permission       // the user may not use a command, key, channel or database
	Command          // the server has no such command, or has renamed it
	Passing          // the server does not serve now, but may serve later
	Misplaced        // another server has the keys, or some of them
	Stopped          // the script ended midway, since the slot of its keys moves
)

// Refusal is the meaning of a server's error and its remedy.
type Refusal struct {
	Kind Kind
	Fix  string
}

// NotMaster is the remedy for a replica, and Shard that for one server of a cluster.
const (
	NotMaster = "give the address of a server that replicates no other"
	Shard     = "use servers that stand alone, or make the whole cluster one node: node.New with a redis.ClusterClient"
)

const (
	moves   = "wait until the cluster has moved the slot"
	user    = "give the node the right user and password, in its URL, in node.WithCredentials or in the options of its client"
	permit  = "allow the user the commands, keys and channels in docs/security.md"
	command = "let the server have the command under its own name: look for rename-command in its configuration, or for a proxy"
)

// codes are the first words of errors. What follows may contain names of locks and users.
var codes = map[string]Refusal{
	"NOAUTH":      {Credentials, user},
	"WRONGPASS":   {Credentials, user},
	"NOPERM":      {Permission, permit},
	"MOVED":       {Misplaced, Shard},
	"ASK":         {Misplaced, Shard},
	"TRYAGAIN":    {Misplaced, moves},
	"CROSSSLOT":   {Misplaced, Shard},
	"CLUSTERDOWN": {Passing, "look at the cluster: a part of its slots has no server"},
	"READONLY":    {Passing, NotMaster},
	"MASTERDOWN":  {Passing, NotMaster},
	"OOM":         {Passing, "free memory at the server, or raise its maxmemory"},
	"MISCONF":     {Passing, "look at the server's disk and its log: it cannot save its data"},
	"NOREPLICAS":  {Passing, "bring back the server's replicas, or lower min-replicas-to-write"},
	"LOADING":     {Passing, "wait until the server has read its data"},
	"BUSY":        {Passing, "wait until the script of another program has ended, or end it with SCRIPT KILL"},
	"DENIED":      {Passing, "give the server a password, or set protected-mode no in a network of its own"},
}

// texts are the beginnings of errors with the code ERR.
var texts = []struct {
	says string
	Refusal
}{
	{"the restart guard cannot read INFO", Refusal{Permission, "allow the user +info"}},
	{"the restart guard cannot use the key quorumlock_age", Refusal{Permission, "allow the user ~quorumlock_age, and delete the key if it is not a string"}},
	{"ACL failure in script", Refusal{Permission, permit}},               // since Redis 7.2
	{"The user executing the script can't", Refusal{Permission, permit}}, // before
	{"Unknown Redis command called from", Refusal{Command, command}},
	{"Unknown command called from", Refusal{Command, command}}, // Valkey
	{"unknown command", Refusal{Command, command}},
	{"Script attempted to access a non local key", Refusal{Stopped, moves}}, // Redis 7.0
	{"Unable to execute command", Refusal{Stopped, moves}},                  // Redis 8
	{"Attempted to access a non local key", Refusal{Stopped, moves}},        // Valkey
	{"invalid password", Refusal{Credentials, user}},                        // before Redis 6
	{"Client sent AUTH, but no password is set", Refusal{Credentials, user}},
	{"AUTH <password> called without any password configured", Refusal{Credentials, user}},
	{"max number of clients", Refusal{Passing, "raise the server's maxclients, or close connections"}},
	{"DB index is out of range", Refusal{Other, "raise the server's databases, or use a lower number in the URL"}},
}

// Of returns the meaning of an error of a server. ok is false for other errors, such as those of a
// connection.
func Of(err error) (r Refusal, ok bool) {
	said, ok := errors.AsType[interface { // go-redis's form of a server's error
		error
		RedisError()
	}](err)
	if !ok {
		return Refusal{}, false
	}
	text := said.Error()
	code, _, _ := strings.Cut(text, " ")
	if r, ok := codes[code]; ok {
		return r, true
	}
	text = strings.TrimPrefix(text, "ERR ")
	// Before Redis 7, the place in the script precedes the text.
	inScript := strings.HasPrefix(text, "Error running script") || strings.HasPrefix(text, "@")
	for _, t := range texts {
		if strings.HasPrefix(text, t.says) || inScript && strings.Contains(text, t.says) {
			return t.Refusal, true
		}
	}
	return Refusal{Other, "look at the server's configuration and its log"}, true
}
