package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// nodes is how many Redis servers a lock has in all measurements.
const nodes = 5

// redisServers are independent Redis servers.
type redisServers struct {
	service
	admins []*redis.Client // for statistics and flushes, never for locks
}

// startRedis starts n servers. Durable ones sync every change to a file before they answer.
func startRedis(ctx context.Context, dir string, n int, durable bool) (*redisServers, error) {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, &notInstalled{"redis-server", "redis-server"}
	}
	ports, err := freePorts(n)
	if err != nil {
		return nil, err
	}
	appendonly := "no"
	if durable {
		appendonly = "yes"
	}
	s := &redisServers{}
	for i, port := range ports {
		own := filepath.Join(dir, "redis"+strconv.Itoa(i))
		if err := os.Mkdir(own, 0o700); err != nil {
			return nil, errors.Join(err, s.close())
		}
		cmd := exec.Command(program, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", own, "--save", "",
			"--appendonly", appendonly, "--appendfsync", "always", "--maxclients", "10000", "--daemonize", "no")
		if err := s.start(cmd, filepath.Join(own, "log")); err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.addrs = append(s.addrs, local(port))
		s.admins = append(s.admins, redis.NewClient(&redis.Options{Addr: local(port), MaxRetries: -1}))
	}
	for i := range s.admins {
		if err := await(ctx, "redis-server", func(ctx context.Context) error { return s.isOurs(ctx, i) }); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	return s, nil
}

// isOurs makes sure that it is the process started here that answers on a port.
func (s *redisServers) isOurs(ctx context.Context, i int) error {
	info, err := s.admins[i].InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	if pid := info["Server"]["process_id"]; pid != strconv.Itoa(s.processes[i].Process.Pid) {
		return fmt.Errorf("%s is served by process %s, not by the one started here", s.addrs[i], pid)
	}
	return nil
}

func (s *redisServers) close() error {
	var err error
	for _, a := range s.admins {
		err = errors.Join(err, a.Close())
	}
	s.service.close()
	return err
}

// clear empties all servers, so that one measurement finds no keys of another. It returns when each
// has served its earlier requests.
func (s *redisServers) clear(ctx context.Context) error {
	for _, a := range s.admins {
		if err := a.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// settle returns when the servers have closed all connections of workers that have ended. So they
// have run what these had sent: a lock that fails may leave seconds of work.
func (s *redisServers) settle(ctx context.Context) error {
	for i, a := range s.admins {
		err := await(ctx, s.addrs[i]+" without other clients", func(ctx context.Context) error {
			info, err := a.InfoMap(ctx, "clients").Result()
			if n := info["Clients"]["connected_clients"]; err == nil && n != "1" {
				err = fmt.Errorf("it has %s clients", n)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// version is that of Redis.
func (s *redisServers) version(ctx context.Context) (string, error) {
	info, err := s.admins[0].InfoMap(ctx, "server").Result()
	return info["Server"]["redis_version"], err
}
