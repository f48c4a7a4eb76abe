package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// zookeeperJar is where Debian has the server.
const zookeeperJar = "/usr/share/java/zookeeper.jar"

// startZooKeeper starts an ensemble of three. It syncs every write; dir in memory makes that free.
func startZooKeeper(ctx context.Context, dir string) (*service, error) {
	java, err := exec.LookPath("java")
	if err == nil {
		_, err = os.Stat(zookeeperJar)
	}
	if err != nil {
		return nil, &notInstalled{"ZooKeeper", "zookeeper"}
	}
	ports, err := freePorts(3 * members)
	if err != nil {
		return nil, err
	}
	var ensemble strings.Builder
	for i := range members {
		fmt.Fprintf(&ensemble, "server.%d=127.0.0.1:%d:%d\n", i+1, ports[members+i], ports[2*members+i])
	}
	s := &service{}
	for i := range members {
		own := filepath.Join(dir, "zookeeper"+strconv.Itoa(i+1))
		if err := os.Mkdir(own, 0o700); err != nil {
			s.close()
			return nil, err
		}
		config := fmt.Sprintf("tickTime=2000\ninitLimit=10\nsyncLimit=5\nmaxClientCnxns=0\nadmin.enableServer=false\n"+
			"dataDir=%s\nclientPort=%d\nclientPortAddress=127.0.0.1\n%s", own, ports[i], &ensemble)
		for name, text := range map[string]string{"zoo.cfg": config, "myid": strconv.Itoa(i + 1)} {
			if err := os.WriteFile(filepath.Join(own, name), []byte(text), 0o600); err != nil {
				s.close()
				return nil, err
			}
		}
		cmd := exec.Command(java, "-Xmx512m", "-cp", zookeeperJar, "-Dzookeeper.jmx.log4j.disable=true",
			"org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(own, "zoo.cfg"))
		if err := s.start(cmd, filepath.Join(own, "log")); err != nil {
			s.close()
			return nil, err
		}
		s.addrs = append(s.addrs, local(ports[i]))
	}
	err = await(ctx, "ZooKeeper", func(ctx context.Context) error { return trial(ctx, openZooKeeper, s.addrs) })
	if err == nil {
		err = warmUpJava(ctx, s.addrs)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// warmUpJava locks for some seconds: a JVM is slow until it has compiled its code.
func warmUpJava(ctx context.Context, addrs []string) error {
	const callers = 16
	c, err := openZooKeeper(addrs, callers)
	if err != nil {
		return err
	}
	_, err = job{Callers: callers, Time: 3 * time.Second}.run(ctx, []client{c})
	return errors.Join(err, c.close())
}

// zookeeperClient is one session. Its locks are the recipe that comes with the client library.
type zookeeperClient struct{ conn *zk.Conn }

type silent struct{}

func (silent) Printf(string, ...any) {}

func openZooKeeper(addrs []string, _ int) (client, error) {
	conn, _, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	return &zookeeperClient{conn}, nil
}

// lock closes the client if ctx ends while it waits: the recipe has no other way to stop.
func (c *zookeeperClient) lock(ctx context.Context, name string) (func(context.Context) error, error) {
	stop := context.AfterFunc(ctx, c.conn.Close)
	m := zk.NewLock(c.conn, "/"+strings.ReplaceAll(name, ":", "/"), zk.WorldACL(zk.PermAll))
	err := m.Lock()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { return m.Unlock() }, nil
}

func (c *zookeeperClient) close() error {
	c.conn.Close()
	return nil
}
