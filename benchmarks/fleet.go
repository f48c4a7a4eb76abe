package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"
)

// store is where servers keep writes: in memory, or synced to a disk before they answer.
type store string

const (
	inMemory store = "in memory"
	durable  store = "durable"
)

// fleet is the servers of one store. Each kind is started at its first use.
type fleet struct {
	store   store
	dir     string // on a disk
	memory  string // a directory in memory, if there is one
	redis   *redisServers
	others  map[kind]*service
	missing map[kind]error // why a kind cannot be measured
	proxies []*slowProxy
}

// newFleet starts the Redis servers.
func newFleet(ctx context.Context, s store) (*fleet, error) {
	f := &fleet{store: s, others: make(map[kind]*service), missing: make(map[kind]error)}
	var err error
	if f.dir, err = os.MkdirTemp("", "quorumlock-bench-"); err != nil {
		return nil, err
	}
	if f.memory, err = os.MkdirTemp("/dev/shm", "quorumlock-bench-"); err != nil {
		f.memory = ""
	}
	if f.redis, err = startRedis(ctx, f.dir, nodes, s == durable); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// serversOf returns the servers of a kind, or why there are none.
func (f *fleet) serversOf(ctx context.Context, k kind) (*service, error) {
	if k == onRedis {
		return &f.redis.service, nil
	}
	if s, ok := f.others[k]; ok {
		return s, nil
	}
	if err, ok := f.missing[k]; ok {
		return nil, err
	}
	dir := f.dir
	if f.store == inMemory && f.memory != "" {
		dir = f.memory
	}
	start := map[kind]func(context.Context, string) (*service, error){onEtcd: startEtcd, onPostgres: startPostgres, onZooKeeper: startZooKeeper}[k]
	s, err := start(ctx, dir)
	if err != nil {
		f.missing[k] = err
		return nil, err
	}
	f.others[k] = s
	return s, nil
}

// far returns addresses of the last Redis servers behind proxies, one for each delay.
func (f *fleet) far(delays []time.Duration) ([]string, error) {
	addrs := make([]string, len(delays))
	for i, d := range delays {
		p, err := startSlowProxy(f.redis.addrs[nodes-len(delays)+i], d)
		if err != nil {
			return nil, err
		}
		f.proxies = append(f.proxies, p)
		addrs[i] = p.addr()
	}
	return addrs, nil
}

func (f *fleet) close() error {
	var err error
	for _, p := range f.proxies {
		err = errors.Join(err, p.close())
	}
	if f.redis != nil {
		err = errors.Join(err, f.redis.close())
	}
	for _, s := range f.others {
		s.close()
	}
	err = errors.Join(err, os.RemoveAll(f.dir))
	if f.memory != "" {
		err = errors.Join(err, os.RemoveAll(f.memory))
	}
	return err
}

// pids are those of all servers.
func (f *fleet) pids() []int {
	pids := f.redis.pids()
	for _, s := range f.others {
		pids = append(pids, s.pids()...)
	}
	return pids
}

// entry makes an entry of a contest: a design, named name, on its servers, with a job for it.
// Without the servers, the entry has the reason.
func (f *fleet) entry(ctx context.Context, name string, j job) entry {
	d, err := designNamed(name)
	if err != nil {
		return entry{name: name, missing: err}
	}
	s, err := f.serversOf(ctx, d.servers)
	if err != nil {
		return entry{name: name, missing: err}
	}
	j.Design = name
	j.Servers = s.pids()
	j.Addrs = slices.Clone(s.addrs[:d.nodes])
	if d.servers == onRedis {
		j.Servers = j.Servers[:d.nodes]
		j.Redis = j.Addrs
	}
	return entry{name: name, job: j}
}

// label names a number of things, such as "16 callers".
func label(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}
