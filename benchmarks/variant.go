package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// variant is one design of a lock, as all of them are measured.
type variant struct {
	name string
	// commands are those it sends to acquire and release, as commandstats names them. A command that
	// its scripts run within the server must not be one of them.
	commands []string
	open     func(addrs []string) (client, error)
}

// client is one process's access to the servers, with connections of its own. It is safe for
// concurrent use.
type client interface {
	// lock acquires the lock of that name, waiting for it until ctx is done.
	lock(ctx context.Context, name string) (unlock func(context.Context) error, err error)
	close() error
}

var scriptCommands = []string{"evalsha", "eval"}

// contentionVariants are the designs that work over several independent nodes.
func contentionVariants() []variant {
	return []variant{
		{name: "quorumlock", commands: scriptCommands, open: openQuorumlock},
		{name: "redsync", commands: append([]string{"set", "setnx"}, scriptCommands...), open: openRedsync},
		{name: "wake everybody", commands: scriptCommands, open: openWakeAll},
	}
}

// quorumlockClient is this library, as it comes.
type quorumlockClient struct{ locks *redlock.Client }

func openQuorumlock(addrs []string) (client, error) {
	nodes, err := dialNodes(addrs)
	if err != nil {
		return nil, err
	}
	locks, err := redlock.New(nodes)
	if err != nil {
		return nil, err
	}
	return &quorumlockClient{locks}, nil
}

func dialNodes(addrs []string) ([]*node.Node, error) {
	nodes := make([]*node.Node, len(addrs))
	for i, addr := range addrs {
		n, err := node.Dial("redis://" + addr)
		if err != nil {
			return nil, err
		}
		nodes[i] = n
	}
	return nodes, nil
}

func (c *quorumlockClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	lease, err := c.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lease.Unlock, nil
}

func (c *quorumlockClient) close() error { return c.locks.Close() }

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

// openAll opens n clients of a variant.
func openAll(v variant, addrs []string, n int) ([]client, error) {
	clients := make([]client, 0, n)
	for range n {
		c, err := v.open(addrs)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", v.name, err), closeAll(clients))
		}
		clients = append(clients, c)
	}
	return clients, nil
}
