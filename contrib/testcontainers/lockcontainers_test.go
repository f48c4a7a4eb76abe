package lockcontainers_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/testcontainers/testcontainers-go"

	lockcontainers "github.com/quorumlock/quorumlock/contrib/testcontainers"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
	"github.com/quorumlock/quorumlock/redlock"
)

// imageOf returns the image of the nodes, or skips the test. .ci/redis-image builds one.
func imageOf(t *testing.T) string {
	t.Helper()
	image := os.Getenv("QUORUMLOCK_REDIS_IMAGE")
	if image == "" {
		require.Skip(t, "QUORUMLOCK_REQUIRE_DOCKER", "QUORUMLOCK_REDIS_IMAGE names no image")
	}
	// The reaper of testcontainers is an image of its own, which this machine may be unable to pull.
	t.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
	if os.Getenv("TESTCONTAINERS_HOST_OVERRIDE") == "" {
		// Its default is another address if the tests themselves run in a container.
		t.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "localhost")
	}
	return image
}

// run starts nodes, which end with the test.
func run(t *testing.T, opts ...testcontainers.ContainerCustomizer) *lockcontainers.Container {
	t.Helper()
	nodes, err := lockcontainers.Run(t.Context(), imageOf(t), opts...)
	testcontainers.CleanupContainer(t, nodes)
	testkit.Must(t, err, "Run")
	return nodes
}

func TestTheNodesAreFitForLocks(t *testing.T) {
	nodes := run(t)
	urls, err := nodes.ConnectionStrings(t.Context())
	testkit.Must(t, err, "ConnectionStrings")
	if len(urls) != 3 || len(slices.Compact(slices.Sorted(slices.Values(urls)))) != 3 {
		t.Fatalf("the URLs are %q, want three", urls)
	}
	client, err := redlock.Dial(urls)
	testkit.Must(t, err, "Dial")
	t.Cleanup(func() { testkit.OK(t, client.Close(), "Close") })
	report, err := client.Diagnose(t.Context())
	testkit.OK(t, err, "Diagnose")
	if len(report.Findings) > 0 {
		t.Errorf("findings:\n%v", report)
	}
	testkit.Unlock(t, testkit.Lock(t, client.Mutex("x")))
}

func TestANodeHasItsDataAfterAStart(t *testing.T) {
	nodes := run(t, testcontainers.WithCmdArgs("--databases", "7"))
	last, c := nodes.Containers()[2], connect(t, nodes)
	setting, err := c.ConfigGet(t.Context(), "databases").Result()
	testkit.OK(t, err, "CONFIG GET")
	testkit.Equal(t, setting["databases"], "7", "the setting of WithCmdArgs")
	testkit.OK(t, c.Set(t.Context(), "k", "v", 0).Err(), "SET")

	testkit.Must(t, last.Stop(t.Context(), nil), "Stop")
	if _, err := nodes.ConnectionStrings(t.Context()); err == nil || !strings.Contains(err.Error(), "node 3 of 3") {
		t.Errorf("ConnectionStrings while a node is stopped: %v, want its number", err)
	}
	testkit.Must(t, last.Start(t.Context()), "Start")
	v, err := connect(t, nodes).Get(t.Context(), "k").Result()
	testkit.OK(t, err, "GET")
	testkit.Equal(t, v, "v", "the value after a start")
}

// connect connects to the last node.
func connect(t *testing.T, nodes *lockcontainers.Container) *redis.Client {
	t.Helper()
	urls, err := nodes.ConnectionStrings(t.Context())
	testkit.Must(t, err, "ConnectionStrings")
	o, err := redis.ParseURL(urls[len(urls)-1])
	testkit.Must(t, err, "the URL")
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestTerminateRemovesAllNodesThatWereStarted(t *testing.T) {
	image, requests := imageOf(t), 0
	nodes, err := lockcontainers.Run(t.Context(), image, testcontainers.CustomizeRequestOption(func(r *testcontainers.GenericContainerRequest) error {
		if requests++; requests == 3 {
			r.Cmd = []string{"redis-server", "--no-such-setting", "1"}
		}
		return nil
	}))
	testcontainers.CleanupContainer(t, nodes)
	if err == nil || !strings.Contains(err.Error(), "node 3 of 3") {
		t.Fatalf("Run with a third node that does not start: %v, want its number", err)
	}
	testkit.Equal(t, len(nodes.Containers()), 3, "containers")
	testkit.OK(t, nodes.Terminate(t.Context()), "Terminate")
	for i, n := range nodes.Containers() {
		if _, err := n.Inspect(t.Context()); err == nil || !strings.Contains(err.Error(), "No such container") {
			t.Errorf("node %d after Terminate: %v, want that there is no such container", i+1, err)
		}
	}
}

func TestOptionsThatContainersCannotShareAreNamed(t *testing.T) {
	for want, opt := range map[string]testcontainers.ContainerCustomizer{
		`WithName "x": the nodes are 3 containers, which cannot share a name: leave it out`:         testcontainers.WithName("x"),
		`WithName "y": the nodes are 3 containers, which cannot share a name: leave it out`:         testcontainers.WithReuseByName("y"),
		`WithFiles "/f": the nodes are 3 containers, which cannot share a Reader: use HostFilePath`: testcontainers.WithFiles(testcontainers.ContainerFile{Reader: strings.NewReader("x"), ContainerFilePath: "/f"}),
		`container name must be provided`: testcontainers.WithName(""),
	} {
		nodes, err := lockcontainers.Run(t.Context(), "no-such-image", opt)
		if nodes != nil || err == nil || err.Error() != "lockcontainers: "+want {
			t.Errorf("%v, %v, want no nodes and %q", nodes, err, want)
		}
	}
}

func TestTheExample(t *testing.T) { testWork(t, imageOf(t)) }
