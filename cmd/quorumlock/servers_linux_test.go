package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// patience bounds every wait for something that is bound to happen.
const patience = time.Minute

// nodeProcess is a node as a process: redis-server where there is one, or else an embedded node.
type nodeProcess struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	admin *redis.Client
}

// startServers starts nodes that end with the test, and returns them with their URLs. args are for
// redis-server.
func startServers(t testing.TB, n int, args ...string) ([]*nodeProcess, string) {
	t.Helper()
	start := startEmbedded
	if hasRedis() || os.Getenv(requireRedis) == "1" {
		start = func(dir string) (*exec.Cmd, string, error) { return startRedis(dir, args...) }
	}
	servers := make([]*nodeProcess, n)
	urls := make([]string, n)
	for i := range servers {
		s := &nodeProcess{dir: t.TempDir()}
		var err error
		s.cmd, s.addr, err = start(s.dir)
		testkit.Must(t, err, "start")
		s.admin = redis.NewClient(&redis.Options{Addr: s.addr, Password: password, ReadTimeout: patience, DialerRetries: 1})
		t.Cleanup(func() {
			_ = s.admin.Close()
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		})
		servers[i], urls[i] = s, "redis://:"+password+"@"+s.addr
	}
	for _, s := range servers {
		eventually(t, "the node answers", func() bool { return s.admin.Ping(t.Context()).Err() == nil })
	}
	return servers, strings.Join(urls, ",")
}

// grant makes a lock that is held.
func grant(t testing.TB, servers []*nodeProcess, name, owner string) {
	t.Helper()
	for _, s := range servers {
		testkit.Must(t, s.admin.HSet(t.Context(), name, owner, 1, "mode", "mutex").Err(), "HSET")
		testkit.Must(t, s.admin.PExpire(t.Context(), name, time.Hour).Err(), "PEXPIRE")
	}
}

// freeze stops the node, which then writes nothing until its thaw.
func (s *nodeProcess) freeze(t testing.TB) {
	t.Helper()
	testkit.Must(t, stop(s.cmd.Process.Pid), "stop")
}

func (s *nodeProcess) thaw() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// stop stops a process, and returns when all of its threads stand still.
func stop(pid int) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	return patiently(func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		return !slices.ContainsFunc(threads, func(stat string) bool {
			state, err := os.ReadFile(stat)
			return err == nil && !bytes.Contains(state, []byte(") T "))
		})
	})
}

// expiry returns the end of a key, from the append-only file of the node or the log of an embedded
// node. A frozen node's can be read, too. The result is the zero time for an unknown key.
func (s *nodeProcess) expiry(t testing.TB, key string) time.Time {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof"))
	if len(files) == 0 { // before Redis 7
		files, err = filepath.Glob(filepath.Join(s.dir, "appendonly.aof"))
	}
	line := regexp.MustCompile(`(?i)PEXPIREAT\r\n\$\d+\r\n` + regexp.QuoteMeta(key) + `\r\n\$\d+\r\n(\d+)\r\n`)
	if len(files) == 0 {
		files, line = []string{filepath.Join(s.dir, expiryLog)}, regexp.MustCompile(`(?m)^(\d+) `+regexp.QuoteMeta(strconv.Quote(key))+`$`)
	}
	var last int64
	for _, f := range files {
		text, e := os.ReadFile(f)
		err = errors.Join(err, e)
		for _, m := range line.FindAllSubmatch(text, -1) {
			last, e = strconv.ParseInt(string(m[1]), 10, 64)
			err = errors.Join(err, e)
		}
	}
	testkit.Must(t, err, "the end of %q", key)
	if last == 0 {
		return time.Time{}
	}
	return time.UnixMilli(last)
}

// eventually waits for something that is bound to happen.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	testkit.Must(t, patiently(done), "%s", what)
}

// patiently returns nil once done is true.
func patiently(done func() bool) error {
	for began := time.Now(); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > patience {
			return errors.New("it never happened")
		}
	}
	return nil
}

// tool is the real program: this one, under the name that has TestMain run it.
var tool string

// linkTool makes the program in a directory of its own.
func linkTool() (clean func(), err error) {
	dir, err := os.MkdirTemp("", "quorumlock-test-")
	if err != nil {
		return nil, err
	}
	tool = filepath.Join(dir, "quorumlock")
	return func() { _ = os.RemoveAll(dir) }, os.Symlink(testBinary, tool)
}
