package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/quorumlock/quorumlock/redlock"
)

// design is one way to have a lock, as all of them are measured.
type design struct {
	name    string
	servers kind
	nodes   int // how many of the servers it uses
	// commands are the commands sent to Redis to acquire and release, as commandstats names them. A
	// command run within its scripts must not be one of them.
	commands []string
	// open returns a client for a number of concurrent callers.
	open func(addrs []string, callers int) (client, error)
}

// kind is the kind of servers that a design needs.
type kind string

const (
	onRedis     kind = "Redis"
	onEtcd      kind = "etcd"
	onPostgres  kind = "PostgreSQL"
	onZooKeeper kind = "ZooKeeper"
)

// client is one process's access to the servers, with connections of its own. It is safe for
// concurrent use.
type client interface {
	// lock acquires the lock of that name, waiting for it until ctx is done.
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	close() error
}

var scriptCommands = []string{"evalsha", "eval", "fcall"}

// The names of the designs, as tables and promises have them.
const (
	ours        = "quorumlock"
	redsyncName = "redsync"
	plainName   = "plain EVALSHA"
	rueidisName = "rueidislock, one node"
	etcdName    = "etcd"
	pgName      = "PostgreSQL"
	zkName      = "ZooKeeper"
)

// designs are all that are compared, in the order of the tables.
var designs = []design{
	{ours, onRedis, nodes, scriptCommands, openQuorumlock},
	{redsyncName, onRedis, nodes, append([]string{"set", "setnx"}, scriptCommands...), openRedsync},
	{plainName, onRedis, nodes, scriptCommands, openPlain},
	{rueidisName, onRedis, 1, append([]string{"set"}, scriptCommands...), openRueidislock},
	{etcdName, onEtcd, members, nil, openEtcd},
	{pgName, onPostgres, 1, nil, openPostgres},
	{zkName, onZooKeeper, members, nil, openZooKeeper},
}

func designNamed(name string) (design, error) {
	for _, d := range slices.Concat(designs, kinds, yardsticks) {
		if d.name == name {
			return d, nil
		}
	}
	return design{}, fmt.Errorf("there is no design %q", name)
}

// quorumlockClient is this library, as it comes.
type quorumlockClient struct{ locks *redlock.Client }

func openQuorumlock(addrs []string, _ int) (client, error) {
	urls := make([]string, len(addrs))
	for i, addr := range addrs {
		urls[i] = "redis://" + addr
	}
	locks, err := redlock.Dial(urls)
	if err != nil {
		return nil, err
	}
	return &quorumlockClient{locks}, nil
}

func (c *quorumlockClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := c.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

func (c *quorumlockClient) try(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := c.locks.Mutex(name).TryLock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

func (c *quorumlockClient) close() error { return c.locks.Close() }

// openAll opens n clients of a design, each for one caller.
func (d design) openAll(addrs []string, n int) ([]client, error) {
	clients := make([]client, 0, n)
	for range n {
		c, err := d.open(addrs, 1)
		if err != nil {
			return nil, errors.Join(err, closeAll(clients))
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// closeAll closes clients at the same time and returns their errors.
func closeAll(clients []client) error {
	errs := make(chan error, len(clients))
	for _, c := range clients {
		go func() { errs <- c.close() }()
	}
	var err error
	for range clients {
		err = errors.Join(err, <-errs)
	}
	return err
}
