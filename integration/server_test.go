package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"
	"golang.org/x/sync/errgroup"
)

// patience bounds every wait for something that is bound to happen.
const patience = 30 * time.Second

// patiently returns a context that ends when patience does, and not with the test: its Cleanups need one.
func patiently(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// server is one Redis in a container, at a port of this machine that stays the same when it restarts.
type server struct {
	container testcontainers.Container
	addr      string
	admin     *redis.Client // looks at the data, and sets what the tests need
}

// image is the image of all servers.
func image() string {
	if name := os.Getenv("QUORUMLOCK_REDIS_IMAGE"); name != "" {
		return name
	}
	return "redis:8"
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

// launch starts a server with arguments on top of the common ones, and waits until o, whose address it
// sets, reaches it.
func launch(o *redis.Options, args []string, opts ...testcontainers.ContainerCustomizer) (*server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute) // the image may have to be fetched
	defer cancel()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	o.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	cmd := append([]string{"redis-server", "--protected-mode", "no", "--save", ""}, args...)
	opts = append([]testcontainers.ContainerCustomizer{
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithHostConfigModifier(func(host *container.HostConfig) {
			host.PortBindings = network.PortMap{network.MustParsePort("6379/tcp"): {{
				HostIP:   netip.MustParseAddr("127.0.0.1"),
				HostPort: strconv.Itoa(port),
			}}}
		}),
		testcontainers.WithCmd(cmd...),
		testcontainers.WithLabels(map[string]string{"quorumlock.run": os.Getenv("QUORUMLOCK_RUN")}),
	}, opts...)
	c, err := testcontainers.Run(ctx, image(), opts...)
	if err != nil {
		return nil, err
	}
	s := &server{container: c, addr: o.Addr, admin: redis.NewClient(o)}
	if err := s.ready(ctx); err != nil {
		return s, fmt.Errorf("%w\n%s", err, s.log())
	}
	return s, nil
}

// start is launch for a server of one test, which ends with it.
func start(t *testing.T, o *redis.Options, args []string, opts ...testcontainers.ContainerCustomizer) *server {
	t.Helper()
	s, err := launch(o, args, opts...)
	if s != nil {
		t.Cleanup(func() { must(t, s.end()) })
	}
	must(t, err)
	return s
}

// freePort returns a port that nobody listens on. It must be known beforehand: Docker gives a container
// another one at every start otherwise.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // nothing was done with it
	return l.Addr().(*net.TCPAddr).Port, nil
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

// log returns what the server wrote to its log.
func (s *server) log() string {
	r, err := s.container.Logs(context.Background())
	if err != nil {
		return err.Error()
	}
	defer r.Close() //nolint:errcheck // it is only read
	b, err := io.ReadAll(r)
	return fmt.Sprint(string(b), err)
}

// end removes the server.
func (s *server) end() error {
	_ = s.admin.Close()
	return testcontainers.TerminateContainer(s.container, testcontainers.StopTimeout(0))
}

// url is the server's address for node.Dial.
func (s *server) url() string { return "redis://" + s.addr }

// pause freezes the server until resume or the end of the test. Connections stay, and what is sent to
// it meanwhile is done afterwards.
func (s *server) pause(t *testing.T) {
	t.Helper()
	_, err := docker.ContainerPause(patiently(t), s.container.GetContainerID(), client.ContainerPauseOptions{})
	must(t, err)
	t.Cleanup(func() { s.resume(t) })
}

// resume ends a pause, if there is one.
func (s *server) resume(t *testing.T) {
	t.Helper()
	_, err := docker.ContainerUnpause(patiently(t), s.container.GetContainerID(), client.ContainerUnpauseOptions{})
	if err != nil && !strings.Contains(err.Error(), "is not paused") {
		t.Error(err)
	}
}

// kill ends the server without a warning, until restart or the end of the test.
func (s *server) kill(t *testing.T) {
	t.Helper()
	ctx, id := patiently(t), s.container.GetContainerID()
	_, err := docker.ContainerKill(ctx, id, client.ContainerKillOptions{})
	must(t, err)
	eventually(t, patience, s.addr+" is dead", func() bool {
		now, err := docker.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
		must(t, err)
		return !now.Container.State.Running
	})
	t.Cleanup(func() { s.restart(t) })
}

// restart starts a killed server again, with what it has on disk.
func (s *server) restart(t *testing.T) {
	t.Helper()
	ctx := patiently(t)
	_, err := docker.ContainerStart(ctx, s.container.GetContainerID(), client.ContainerStartOptions{})
	must(t, err)
	must(t, s.ready(ctx))
}

// wipe takes the server's disk away from under it: it comes back from a kill with nothing.
func (s *server) wipe(t *testing.T) {
	t.Helper()
	status, _, err := s.container.Exec(patiently(t), []string{"rm", "-rf", "/data/appendonlydir", "/data/dump.rdb"})
	must(t, err)
	if status != 0 {
		t.Fatalf("rm in the container: status %d", status)
	}
}

// bridge is the network that containers are on, unless they are told otherwise.
const bridge = "bridge"

// cut takes the server off the network until join or the end of the test. Packets to it vanish.
func (s *server) cut(t *testing.T) {
	t.Helper()
	_, err := docker.NetworkDisconnect(patiently(t), bridge, client.NetworkDisconnectOptions{Container: s.container.GetContainerID()})
	must(t, err)
	t.Cleanup(func() { s.join(t) })
}

// join ends a cut, if there is one.
func (s *server) join(t *testing.T) {
	t.Helper()
	ctx := patiently(t)
	_, err := docker.NetworkConnect(ctx, bridge, client.NetworkConnectOptions{Container: s.container.GetContainerID()})
	if err != nil && !strings.Contains(err.Error(), "already exists") {
		t.Error(err)
		return
	}
	must(t, s.ready(ctx))
}
