#!/usr/bin/env bash
# A Go lock of ZooKeeper cannot be used again after its session was lost while it was held.
#
# Expected: after the loss, Unlock says so, and the lock can be taken anew: the connection has a new session.
# Seen:     Unlock returns "node does not exist", each time, and every later Lock returns "trying to acquire a lock twice",
#           though nobody has the lock. The connection itself goes on: another zk.Lock of the same connection gets it.
# Package:  github.com/go-zookeeper/zk v1.0.4, Debian's zookeeper 3.8.0
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
program github.com/go-zookeeper/zk@v1.0.4 <<'END'
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

func main() {
	if len(os.Args) > 2 {
		holder()
		return
	}
	conn, _, err := zk.Connect(os.Args[1:2], time.Second, zk.WithLogger(silent{}))
	check(err)
	process := exec.Command(os.Args[0], os.Args[1], "hold")
	process.Stdout = os.Stdout
	process.Stderr = os.Stderr
	check(process.Start())
	held := func() bool {
		nodes, _, err := conn.Children("/lock")
		return err == nil && len(nodes) > 0
	}
	for !held() {
		time.Sleep(20 * time.Millisecond)
	}
	check(process.Process.Signal(syscall.SIGSTOP))
	for held() {
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println("the holder was frozen, and its session has ended")
	check(process.Process.Signal(syscall.SIGCONT))
	check(process.Wait())
}

func holder() {
	conn, events, err := zk.Connect(os.Args[1:2], time.Second, zk.WithLogger(silent{}))
	check(err)
	lock := zk.NewLock(conn, "/lock", zk.WorldACL(zk.PermAll))
	check(lock.Lock())
	expired := false
	for event := range events {
		expired = expired || event.State == zk.StateExpired
		if expired && event.State == zk.StateHasSession {
			break
		}
	}
	fmt.Println("with a new session")
	fmt.Println("Unlock:", lock.Unlock())
	fmt.Println("Lock:", lock.Lock())
	fmt.Println("Unlock:", lock.Unlock())
	fmt.Println("Lock:", lock.Lock())
	fmt.Println("Lock of a new zk.Lock:", zk.NewLock(conn, "/lock", zk.WorldACL(zk.PermAll)).Lock())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
port=$(port)
zookeeper "$port"
recorded "$(timeout 60 "$program" "127.0.0.1:$port" 2>&1)" <<'END'
the holder was frozen, and its session has ended
with a new session
Unlock: zk: node does not exist
Lock: zk: trying to acquire a lock twice
Unlock: zk: node does not exist
Lock: zk: trying to acquire a lock twice
Lock of a new zk.Lock: <nil>
END
