package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// The scripts drive every command through the real program, against nodes of their own.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			servers, nodes := startServers(e.T().(testing.TB), 3)
			e.Setenv("PATH", filepath.Dir(tool)+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("QUORUMLOCK_NODES", nodes)
			e.Setenv("NODES", nodes)
			e.Setenv("QUORUMLOCK_NODE_TIMEOUT", "5s") // for a busy machine
			e.Setenv("PASSWORD", password)
			for i, s := range servers {
				e.Setenv(fmt.Sprintf("NODE%d", i+1), s.addr)
			}
			e.Values["servers"] = servers
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"redis": askRedis, "freeze": freeze, "held": held, "waiting": waiting, "nokeys": noKeysAt,
			"serve": serveInScript, "get": getInScript,
		},
	})
}

func serversOf(ts *testscript.TestScript) []*nodeProcess { return ts.Value("servers").([]*nodeProcess) }

// askRedis sends a command to all servers, or to one with -node: its arguments are quoted as in Go,
// such as '"\x1b"'.
func askRedis(ts *testscript.TestScript, neg bool, args []string) {
	servers := serversOf(ts)
	if args[0] == "-node" {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		servers, args = servers[n-1:n], args[2:]
	}
	command := make([]any, len(args))
	for i, a := range args {
		if text, err := strconv.Unquote(a); err == nil {
			a = text
		}
		command[i] = a
	}
	for _, s := range servers {
		if err := s.admin.Do(context.Background(), command...).Err(); (err != nil) != neg {
			ts.Fatalf("redis %q: %v", args, err)
		}
	}
}

// freeze stops the servers with the given numbers.
func freeze(ts *testscript.TestScript, _ bool, args []string) {
	ts.Setenv("QUORUMLOCK_NODE_TIMEOUT", "1s")
	for _, a := range args {
		n, err := strconv.Atoi(a)
		ts.Check(err)
		ts.Check(stop(serversOf(ts)[n-1].cmd.Process.Pid))
	}
}

// held waits until the lock is held at a quorum, or, negated, until it is free everywhere. A
// command that ends with UnlockAfter may leave the key at no more than a quorum.
func held(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(patiently(func() bool {
		servers, n := serversOf(ts), 0
		for _, s := range servers {
			n += int(s.admin.Exists(context.Background(), args[0]).Val())
		}
		return neg && n == 0 || !neg && n > len(servers)/2
	}))
}

// waiting waits until each of the servers has a waiter in the queue.
func waiting(ts *testscript.TestScript, _ bool, args []string) {
	ts.Check(patiently(func() bool { return !slices.Contains(queues(serversOf(ts), args[0]), 0) }))
}

// noKeysAt checks that no server, or none with the given numbers, has a key.
func noKeysAt(ts *testscript.TestScript, _ bool, args []string) {
	for i, s := range serversOf(ts) {
		if len(args) > 0 && !slices.Contains(args, strconv.Itoa(i+1)) {
			continue
		}
		if all := s.admin.Keys(context.Background(), "*").Val(); len(all) > 0 {
			ts.Fatalf("%s has %q", s.addr, all)
		}
	}
}
