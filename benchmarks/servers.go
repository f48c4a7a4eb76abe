package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// servers are redis-server processes of this program alone, on free loopback ports. They keep their
// data in memory: what is measured is the locks, not a disk.
type servers struct {
	dir string
	all []*server
}

type server struct {
	addr  string
	cmd   *exec.Cmd
	admin *redis.Client // for statistics and flushes, never for locks
}

// startServers starts n servers and returns when all of them answer.
func startServers(ctx context.Context, n int) (*servers, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, errors.New("redis-server is not in the PATH: install Redis (on Debian: apt-get install redis-server) and run this again")
	}
	dir, err := os.MkdirTemp("", "quorumlock-bench-")
	if err != nil {
		return nil, err
	}
	s := &servers{dir: dir}
	for i := range n {
		one, err := startServer(ctx, program, filepath.Join(dir, strconv.Itoa(i)))
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.all = append(s.all, one)
	}
	return s, nil
}

// startServer tries a few ports: one that was free a moment ago may have been taken since.
func startServer(ctx context.Context, program, dir string) (*server, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	var last error
	for range 3 {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		cmd := exec.Command(program, "--port", port, "--bind", "127.0.0.1", "--dir", dir, "--logfile", "log",
			"--save", "", "--appendonly", "no", "--daemonize", "no", "--maxclients", "10000")
		if err := cmd.Start(); err != nil {
			return nil, fmt.Errorf("starting redis-server: %w", err)
		}
		addr := net.JoinHostPort("127.0.0.1", port)
		s := &server{addr: addr, cmd: cmd, admin: redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})}
		if last = s.ready(ctx); last == nil {
			return s, nil
		}
		s.end()
	}
	return nil, fmt.Errorf("redis-server does not answer: %w", last)
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close() //nolint:errcheck // it has accepted nothing
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// ready waits until the server answers, and makes sure that it is the process started here.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		info, err := s.admin.InfoMap(ctx, "server").Result()
		if err == nil {
			if pid := info["Server"]["process_id"]; pid != strconv.Itoa(s.cmd.Process.Pid) {
				return fmt.Errorf("%s is served by process %s, not by the one started here", s.addr, pid)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// end kills the process that was started, by its own handle, and waits for it.
func (s *server) end() {
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // "signal: killed" is what was asked for
}

func (s *servers) close() error {
	for _, one := range s.all {
		one.end()
	}
	return os.RemoveAll(s.dir)
}

func (s *servers) addrs() []string {
	addrs := make([]string, len(s.all))
	for i, one := range s.all {
		addrs[i] = one.addr
	}
	return addrs
}

// clear empties all servers, so that one measurement finds no keys of another.
func (s *servers) clear(ctx context.Context) error {
	for _, one := range s.all {
		if err := one.admin.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// settle returns when what was sent to the servers before has most likely been served: they serve in
// turn, and each has answered once more.
func (s *servers) settle(ctx context.Context) error {
	for range 2 {
		for _, one := range s.all {
			if err := one.admin.Ping(ctx).Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

// version is that of Redis.
func (s *servers) version(ctx context.Context) (string, error) {
	info, err := s.all[0].admin.InfoMap(ctx, "server").Result()
	return info["Server"]["redis_version"], err
}
