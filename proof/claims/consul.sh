#!/usr/bin/env bash
# What docs/coming-from.md says about Consul's locks.
#
# Package: Debian 11's consul 1.8.7, github.com/hashicorp/consul/api v1.34.5
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
port=$(port)
consul_server "$port"
program github.com/hashicorp/consul/api@v1.34.5 <<'END'
package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

func main() {
	c := client(os.Args[2])

	fmt.Println("command: it runs, with the lock held:", tool("job", `echo $CONSUL_LOCK_HELD; `+os.Args[1]+` kv get -detailed job/.lock | grep -c Session`))
	holding := begin("pool", "-n=3")
	defer end(begin("pool", "-n=3"))
	defer end(begin("pool", "-n=3"))
	fmt.Println("slots: three hold; a fourth:", tool("pool", "-n=3", "-timeout=1s", "echo ran"))
	fmt.Println("slots: with another number:", tool("pool", "-n=2", "-timeout=1s", "echo ran"))
	end(holding)
	defer end(begin("job"))
	began := time.Now()
	fmt.Println("wait: a held lock, with -timeout=1s:", tool("job", "-timeout=1s", "echo ran"), "within 5 s:", time.Since(began) < 5*time.Second)
	fmt.Println("status: of a command that exits with 7:", tool("free", "exit 7"))
	fmt.Println("status: with -child-exit-code:", tool("free", "-child-exit-code", "exit 7"))

	first := session(c, &api.SessionEntry{TTL: "10s", LockDelay: time.Second})
	second := session(c, &api.SessionEntry{TTL: "10s", LockDelay: time.Second})
	a := lock(c, &api.LockOptions{Key: "lock", Value: []byte("who"), Session: first})
	b := lock(c, &api.LockOptions{Key: "lock", Session: first})
	other := &api.LockOptions{Key: "lock", Session: second, LockTryOnce: true, LockWaitTime: time.Second}
	lost, err := a.Lock(nil)
	check(err)
	fmt.Println("value: the key's value:", string(pair(c).Value))
	_, err = b.Lock(nil)
	fmt.Println("again: a second lock of the session:", err)
	ch, err := lock(c, other).Lock(nil)
	fmt.Println("again: of another session:", ch != nil, err)
	token, created := pair(c).LockIndex, pair(c).CreateIndex
	changed := make(chan bool, 1)
	go func() {
		next, _, err := c.KV().Get("lock", &api.QueryOptions{WaitIndex: pair(c).ModifyIndex, WaitTime: 20 * time.Second})
		changed <- err == nil && next.Session == ""
	}()
	time.Sleep(500 * time.Millisecond)
	ended := time.Now()
	_, err = c.Session().Destroy(first, nil)
	check(err)
	fmt.Println("loss: the end of the session closes leaderCh:", closes(lost))
	fmt.Println("watch: the blocking query returns:", <-changed)
	fmt.Println("loss: Unlock then returns", a.Unlock())
	other.LockWaitTime = 20 * time.Second
	ch, err = lock(c, other).Lock(nil)
	check(err)
	fmt.Println("delay: the next session has the lock:", ch != nil, "after more than a second:", time.Since(ended) > time.Second)
	fmt.Println("sequencer: LockIndex rises by", pair(c).LockIndex-token, "and the key is the same:", pair(c).CreateIndex == created)
	_, err = c.Session().Destroy(second, nil)
	check(err)

	third := session(c, &api.SessionEntry{TTL: "10s", Behavior: "delete", LockDelay: time.Millisecond})
	time.Sleep(1100 * time.Millisecond) // the delay of the second
	ch, err = lock(c, &api.LockOptions{Key: "lock", Session: third}).Lock(nil)
	check(err)
	began = time.Now()
	fmt.Println("TTL: without a renewal, the lock is lost:", ch != nil && closes(ch), "after 10 to 25 s:", time.Since(began) > 9*time.Second && time.Since(began) < 25*time.Second)
	fmt.Println("TTL: with the behavior delete, the key is gone:", pair(c) == nil)
	_, _, err = c.Session().Create(&api.SessionEntry{TTL: "9s"}, nil)
	fmt.Println("TTL: of 9 s is refused:", err != nil)

	var fail atomic.Int32
	target, err := url.Parse("http://" + os.Args[2])
	check(err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/kv/watched" && fail.Load() > 0 {
			fail.Add(-1)
			http.Error(w, "no leader", http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	for _, retries := range []int{0, 3} {
		watched := session(c, &api.SessionEntry{TTL: "60s"})
		ch, err := lock(client(front.Listener.Addr().String()), &api.LockOptions{Key: "watched", Session: watched, MonitorRetries: retries, MonitorRetryTime: 100 * time.Millisecond}).Lock(nil)
		check(err)
		time.Sleep(300 * time.Millisecond) // until it watches
		fail.Store(2)
		_, err = c.KV().Put(&api.KVPair{Key: "watched", Flags: api.LockFlagValue}, nil) // ends the blocking query
		check(err)
		time.Sleep(time.Second)
		fail.Store(0)
		select {
		case <-ch:
			fmt.Printf("retries: after two errors, %d retries, lost; ", retries)
		default:
			fmt.Printf("retries: after two errors, %d retries, held; ", retries)
		}
		p, _, err := c.KV().Get("watched", nil)
		check(err)
		fmt.Println("the server still has the session:", p.Session == watched)
		_, err = c.KV().Delete("watched", nil)
		check(err)
	}
}

func client(addr string) *api.Client {
	c, err := api.NewClient(&api.Config{Address: addr})
	check(err)
	return c
}

func session(c *api.Client, e *api.SessionEntry) string {
	id, _, err := c.Session().Create(e, nil)
	check(err)
	return id
}

func lock(c *api.Client, o *api.LockOptions) *api.Lock {
	l, err := c.LockOpts(o)
	check(err)
	return l
}

func pair(c *api.Client) *api.KVPair {
	p, _, err := c.KV().Get("lock", nil)
	check(err)
	return p
}

func closes(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	case <-time.After(30 * time.Second):
		return false
	}
}

// tool runs consul lock with the options before the command, and prints its output and status.
func tool(name string, args ...string) string {
	last := len(args) - 1
	out, err := exec.Command(os.Args[1], append(append([]string{"lock", "-http-addr=" + os.Args[2]}, args[:last]...), name, args[last])...).CombinedOutput()
	status := 0
	if exit := (&exec.ExitError{}); errors.As(err, &exit) {
		status = exit.ExitCode()
	}
	return fmt.Sprintf("%q, status %d", strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "; "), status)
}

// begin returns when its command holds the lock, until end.
func begin(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[1], append(append([]string{"lock", "-http-addr=" + os.Args[2]}, args...), name, "echo held; exec sleep 300")...)
	out, err := cmd.StdoutPipe()
	check(err)
	check(cmd.Start())
	b := make([]byte, 4)
	_, err = out.Read(b)
	check(err)
	return cmd
}

func end(cmd *exec.Cmd) {
	check(cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait() // its status depends on the signal
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 300 "$program" "$consul" "127.0.0.1:$port" 2>&1)" <<'END'
command: it runs, with the lock held: "true; 1", status 0
slots: three hold; a fourth: "Shutdown triggered or timeout during lock acquisition", status 1
slots: with another number: "Lock acquisition failed: semaphore limit conflict (lock: 3, local: 2)", status 1
wait: a held lock, with -timeout=1s: "Shutdown triggered or timeout during lock acquisition", status 1 within 5 s: true
status: of a command that exits with 7: "Error running handler: exit status 7", status 0
status: with -child-exit-code: "Error running handler: exit status 7", status 2
value: the key's value: who
again: a second lock of the session: <nil>
again: of another session: false <nil>
loss: the end of the session closes leaderCh: true
watch: the blocking query returns: true
loss: Unlock then returns <nil>
delay: the next session has the lock: true after more than a second: true
sequencer: LockIndex rises by 1 and the key is the same: true
TTL: without a renewal, the lock is lost: true after 10 to 25 s: true
TTL: with the behavior delete, the key is gone: true
TTL: of 9 s is refused: true
retries: after two errors, 0 retries, lost; the server still has the session: true
retries: after two errors, 3 retries, held; the server still has the session: true
END
