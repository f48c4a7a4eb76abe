package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/freeport"
)

// patience bounds every wait for something that is bound to happen.
const patience = 20 * time.Second

// redisServer is a redis-server process.
type redisServer struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	admin *redis.Client
}

// startServers starts redis-server processes that end with the test, and returns them with their URLs. They write an append-only file, which
// shows what they did while they were frozen later.
func startServers(t testing.TB, n int, args ...string) ([]*redisServer, string) {
	t.Helper()
	servers := make([]*redisServer, n)
	urls := make([]string, n)
	for i := range servers {
		addr, err := freeport.Addr()
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(addr)
		s := &redisServer{addr: addr, dir: t.TempDir()}
		s.cmd = exec.Command("redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "",
			"--appendonly", "yes", "--appendfsync", "no", "--requirepass", password}, args...)...)
		s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := s.cmd.Start(); err != nil {
			t.Fatalf("redis-server: %v: install it", err)
		}
		s.admin = redis.NewClient(&redis.Options{Addr: addr, Password: password, ReadTimeout: patience, DialerRetries: 1})
		t.Cleanup(func() {
			_ = s.admin.Close()
			s.thaw()
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		})
		servers[i], urls[i] = s, "redis://:"+password+"@"+addr
	}
	for _, s := range servers {
		eventually(t, "redis-server answers", func() bool { return s.admin.Ping(t.Context()).Err() == nil })
	}
	return servers, strings.Join(urls, ",")
}

func (s *redisServer) freeze() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) thaw()   { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// expiry returns until when the server keeps a key, by what it has written into its append-only file. It can be read while
// the server is frozen. It is the zero time if there is nothing of it.
func (s *redisServer) expiry(t testing.TB, key string) time.Time {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "appendonlydir", "*.incr.aof"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no append-only file: %v", err)
	}
	var last int64
	find := regexp.MustCompile(`(?i)PEXPIREAT\r\n\$\d+\r\n` + regexp.QuoteMeta(key) + `\r\n\$\d+\r\n(\d+)\r\n`)
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range find.FindAllSubmatch(text, -1) {
			if ms, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
				last = ms
			}
		}
	}
	if last == 0 {
		return time.Time{}
	}
	return time.UnixMilli(last)
}

// eventually waits for something that is bound to happen.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	if err := patiently(done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
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

// tool is the real program, built once.
var tool string

// buildTool builds the program into a directory of its own.
func buildTool() (clean func(), err error) {
	dir, err := os.MkdirTemp("", "quorumlock-test-")
	if err != nil {
		return nil, err
	}
	tool = filepath.Join(dir, "quorumlock")
	build := exec.Command("go", "build", "-o", tool, ".")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return func() { _ = os.RemoveAll(dir) }, nil
}
