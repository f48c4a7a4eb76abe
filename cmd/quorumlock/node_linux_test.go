package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

// requireRedis is the variable that makes it a failure if there is no redis-server.
const requireRedis = "QUORUMLOCK_REQUIRE_REDIS"

// needRedis skips a test without redis-server. Embedded nodes would be too slow for it: each
// command takes time in proportion to the keys, and SCAN returns all keys at once.
func needRedis(t testing.TB) {
	t.Helper()
	if !hasRedis() {
		require.Skip(t, requireRedis, "there is no redis-server, and embedded nodes are too slow with so many keys")
	}
}

func hasRedis() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}

// The test binary is also a node, as a process that can be stopped and killed, for machines without
// redis-server.

// nodeDir is the variable with the directory of such a node.
const nodeDir = "QUORUMLOCK_TEST_NODE"

// expiryLog is the file in that directory that LogExpiry writes.
const expiryLog = "expiry.log"

// embeddedNode is that process: it prints its address, and runs until stdin closes at the end of
// the test binary.
func embeddedNode(dir string) error {
	log, err := os.OpenFile(filepath.Join(dir, expiryLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	s := embedded.Start("")
	s.Redis.RequireAuth(password)
	s.Configure("appendfsync", "no")
	s.LogExpiry(log)
	if err := s.Listen(); err != nil {
		return err
	}
	fmt.Println(s.Redis.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startEmbedded starts an embedded node in a directory.
func startEmbedded(dir string) (cmd *exec.Cmd, addr string, err error) {
	cmd = exec.Command(testBinary)
	cmd.Env = append(os.Environ(), nodeDir+"="+dir)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Setpgid: true}
	if _, err = cmd.StdinPipe(); err != nil {
		return nil, "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	addr, err = bufio.NewReader(out).ReadString('\n')
	return cmd, strings.TrimSpace(addr), err
}

// startRedis starts a redis-server in a directory.
func startRedis(dir string, args ...string) (cmd *exec.Cmd, addr string, err error) {
	if addr, err = freeport.Addr(); err != nil {
		return nil, "", err
	}
	_, port, _ := net.SplitHostPort(addr)
	cmd = exec.Command("redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "",
		"--appendonly", "yes", "--appendfsync", "no", "--requirepass", password}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, addr, cmd.Start()
}
