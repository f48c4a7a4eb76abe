package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// members is how many servers etcd and ZooKeeper have: with three, one may fail.
const members = 3

// startEtcd starts a cluster of three. It syncs every write; to make that free, put dir in memory.
func startEtcd(ctx context.Context, dir string) (*service, error) {
	program, err := exec.LookPath("etcd")
	if err != nil {
		return nil, &notInstalled{"etcd", "etcd-server"}
	}
	ports, err := freePorts(2 * members)
	if err != nil {
		return nil, err
	}
	cluster := make([]string, members)
	for i := range cluster {
		cluster[i] = fmt.Sprintf("m%d=http://%s", i, local(ports[members+i]))
	}
	s := &service{}
	for i := range members {
		name, peer, client := fmt.Sprintf("m%d", i), "http://"+local(ports[members+i]), "http://"+local(ports[i])
		own := filepath.Join(dir, "etcd-"+name)
		cmd := exec.Command(program, "--name", name, "--data-dir", own, "--log-level", "error",
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--initial-cluster", strings.Join(cluster, ","), "--initial-cluster-state", "new", "--initial-cluster-token", filepath.Base(dir))
		if err := s.start(cmd, own+".log"); err != nil {
			s.close()
			return nil, err
		}
		s.addrs = append(s.addrs, local(ports[i]))
	}
	err = await(ctx, "etcd", func(ctx context.Context) error { return trial(ctx, openEtcd, s.addrs) })
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// trial opens a client, and locks and unlocks once.
func trial(ctx context.Context, open func([]string, int) (client, error), addrs []string) error {
	c, err := open(addrs, 1)
	if err != nil {
		return err
	}
	_, err = lockUnlock(ctx, c, "trial")
	c.close() //nolint:errcheck // what counts is whether it locked
	return err
}

// etcdClient is a client with one session for all its locks, as in etcd's documentation.
type etcdClient struct {
	client  *clientv3.Client
	session *concurrency.Session
}

func openEtcd(addrs []string, _ int) (client, error) {
	c, err := clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	lease, err := c.Grant(ctx, 60)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	session, err := concurrency.NewSession(c, concurrency.WithLease(lease.ID))
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &etcdClient{c, session}, nil
}

func (c *etcdClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	m := concurrency.NewMutex(c.session, "/"+name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return m.Unlock, nil
}

func (c *etcdClient) close() error {
	_ = c.session.Close() // revokes the lease; it expires anyway
	return c.client.Close()
}
