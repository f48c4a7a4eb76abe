package integration

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
)

// patience bounds every wait for something that is bound to happen. A long soak has more.
var patience = time.Minute

// patiently returns a context that ends after patience, not with the test: its Cleanups need one.
func patiently(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// server is one Redis in a container. Its port of this machine stays the same when it restarts.
type server struct {
	id    string // of its container
	addr  string
	admin *redis.Client // for looking at the data, and for settings
}

// startAll starts n servers at once that are fit for locks.
func startAll(n int) ([]*server, error) {
	servers := make([]*server, n)
	var g errgroup.Group
	for i := range servers {
		g.Go(func() (err error) {
			servers[i], err = launch(&redis.Options{}, []string{"--appendonly", "yes", "--appendfsync", "always"})
			return err
		})
	}
	return servers, g.Wait()
}

// launch starts a server with arguments on top of the common ones, sets the address of o, and waits
// until o reaches the server. A returned server must be ended, also after an error.
func launch(o *redis.Options, args []string, with ...setting) (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	o.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	command := append([]string{"redis-server", "--protected-mode", "no", "--save", ""}, args...)
	id, err := create(ctx, port, append([]setting{withCommand(command...)}, with...))
	if err != nil {
		return nil, err
	}
	s := &server{id: id, addr: o.Addr, admin: redis.NewClient(o)}
	if _, err := docker.ContainerStart(ctx, id, client.ContainerStartOptions{}); err != nil {
		return s, err
	}
	if err := s.ready(ctx); err != nil {
		return s, fmt.Errorf("%w\n%s", err, s.log())
	}
	return s, nil
}

// start is launch for a server of one test, which ends with it.
func start(t *testing.T, o *redis.Options, args []string, with ...setting) *server {
	t.Helper()
	s, err := launch(o, args, with...)
	if s != nil {
		t.Cleanup(func() { must(t, s.end()) })
	}
	must(t, err)
	return s
}

// freePort returns an unused port. It must be known beforehand: otherwise Docker gives a container
// another one at every start.
func freePort() (int, error) {
	addr, err := freeport.Addr()
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(port)
}

// ready waits until the server answers.
func (s *server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := s.admin.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", s.addr, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end removes the server.
func (s *server) end() error {
	_ = s.admin.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := docker.ContainerRemove(ctx, s.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	return err
}

// url is the server's address for node.Dial.
func (s *server) url() string { return "redis://" + s.addr }

// pause freezes the server until resume or the end of the test. Connections stay, and their
// requests run afterwards.
func (s *server) pause(t *testing.T) {
	t.Helper()
	for ctx := patiently(t); ; {
		_, err := docker.ContainerPause(ctx, s.id, client.ContainerPauseOptions{})
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "unable to freeze") { // a process that waits for a disk cannot be frozen just then
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Cleanup(func() { s.resume(t) })
}

// resume ends a pause, if there is one.
func (s *server) resume(t *testing.T) {
	t.Helper()
	_, err := docker.ContainerUnpause(patiently(t), s.id, client.ContainerUnpauseOptions{})
	if err != nil && !strings.Contains(err.Error(), "is not paused") {
		t.Error(err)
	}
}

// kill ends the server without a warning, until restart or the end of the test.
func (s *server) kill(t *testing.T) {
	t.Helper()
	ctx := patiently(t)
	_, err := docker.ContainerKill(ctx, s.id, client.ContainerKillOptions{})
	must(t, err)
	eventually(t, patience, s.addr+" is dead", func() bool {
		now, err := docker.ContainerInspect(ctx, s.id, client.ContainerInspectOptions{})
		must(t, err)
		return !now.Container.State.Running
	})
	t.Cleanup(func() { s.restart(t) })
}

// restart starts a killed server again, with its data on disk.
func (s *server) restart(t *testing.T) {
	t.Helper()
	_, err := docker.ContainerStart(patiently(t), s.id, client.ContainerStartOptions{})
	must(t, err)
	must(t, s.ready(patiently(t)))
}

// wipe deletes the server's data on disk: it comes back from a kill with nothing.
func (s *server) wipe(t *testing.T) {
	t.Helper()
	s.exec(t, "rm", "-rf", "/data/appendonlydir", "/data/appendonly.aof", "/data/dump.rdb")
}

// bridge is the default network of containers.
const bridge = "bridge"

// cut takes the server off the network until join or the end of the test. Packets to it vanish.
func (s *server) cut(t *testing.T) {
	t.Helper()
	_, err := docker.NetworkDisconnect(patiently(t), bridge, client.NetworkDisconnectOptions{Container: s.id})
	must(t, err)
	t.Cleanup(func() { s.join(t) })
}

// join ends a cut, if there is one.
func (s *server) join(t *testing.T) {
	t.Helper()
	ctx := patiently(t)
	_, err := docker.NetworkConnect(ctx, bridge, client.NetworkConnectOptions{Container: s.id})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Error(err)
		return
	}
	must(t, s.ready(ctx))
}
